const paths = {
  play: 'M8 5v14l11-7z',
  pause: 'M6 5h4v14H6zM14 5h4v14h-4z',
  sound: 'M4 9v6h4l5 5V4L8 9zM16 8.5a5 5 0 0 1 0 7M18.5 6a8.5 8.5 0 0 1 0 12',
  muted: 'M4 9v6h4l5 5V4L8 9zM16 9l5 6M21 9l-5 6',
  captions: 'M3 5h18v14H3zM6.5 11h3M12.5 11h5M6.5 15h5M14.5 15h3',
  settings: 'M4 7h10M18 7h2M4 17h2M10 17h10M14 4.5v5M6 14.5v5',
  pip: 'M3 5h18v14H3zM12 12h7v5h-7z',
  full: 'M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5',
}

// Icon is a drawing for a button; the button has the name.
export const Icon = ({ name }: { name: keyof typeof paths }) => (
  <svg
    class={name === 'play' || name === 'pause' ? 'icon solid' : 'icon'}
    viewBox="0 0 24 24"
    width="24"
    height="24"
    aria-hidden="true"
  >
    <path d={paths[name]} />
  </svg>
)
