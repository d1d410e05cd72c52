// The player of streams and assets on the pages of the console: that of the watch page.
import { root } from '../lib/api'
import type { Playback } from '../player/playback'
import { Stage } from '../player/stage'

// PlayerHandle lets the page around the player read and set what it shows.
export type PlayerHandle = Playback

interface PlayerProps {
  playbackID: string
  title: string
  live?: boolean
  jwt?: string // of a viewer, for what is not public
  onReady?: (handle: PlayerHandle) => void
}

export function Player({ playbackID, title, live = false, jwt, onReady }: PlayerProps) {
  return (
    <Stage
      id={playbackID}
      title={title}
      live={live}
      root={root + '/'}
      credentials={jwt ? new URLSearchParams({ jwt }) : undefined}
      autoplay={live ? 'muted' : 'off'}
      onReady={onReady}
    />
  )
}
