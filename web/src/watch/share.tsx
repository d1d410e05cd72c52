import { useRef, useState } from 'preact/hooks'
import { Code } from '../ui/code'
import { Copyable } from '../ui/copy'
import { embedCode } from '../lib/embed'
import type { Playback } from '../player/playback'

// Share shows the address of the page and the code to embed it.
export function Share({ id, name, root, playback }: { id: string; name: string; root: string; playback?: Playback }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const address = `${root}play/${encodeURIComponent(id)}`
  const [from, setFrom] = useState(0) // seconds
  const open = () => {
    setFrom(playback && !playback.options.live ? Math.floor(playback.video.currentTime) : 0)
    dialog.current?.showModal()
  }
  return (
    <>
      <button type="button" class="quiet" onClick={open}>
        Share
      </button>
      <dialog ref={dialog} aria-label="Share" onClick={(e) => e.target === dialog.current && dialog.current?.close()}>
        <div class="dialog">
          <div class="head">
            <h2>Share</h2>
            <button type="button" class="plain" aria-label="Close" onClick={() => dialog.current?.close()}>
              ✕
            </button>
          </div>
          <h3>Link</h3>
          <p>
            <Copyable text={address + (from > 0 ? `?t=${from}` : '')} />
          </p>
          <Code label="Embed it in a page" text={embedCode(address, name)} />
          <p class="hint">
            Add ?autoplay=1 to the address to play at once, &amp;muted=1 for browsers that allow only muted autoplay,
            &amp;loop=1 to repeat.
          </p>
        </div>
      </dialog>
    </>
  )
}
