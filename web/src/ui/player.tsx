// The player of streams and assets on the pages of the console: that of the watch page. It is loaded
// when a page shows it.
import { useEffect, useState } from 'preact/hooks'
import { root } from '../lib/api'
import type { Playback } from '../player/playback'
import type { Stage as StageType } from '../player/stage'
import { Loading, Unloaded } from './states'

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
  const [Stage, setStage] = useState<typeof StageType>()
  const [failed, setFailed] = useState(false)
  useEffect(() => {
    import('../player/stage').then(
      (loaded) => setStage(() => loaded.Stage),
      () => setFailed(true),
    )
  }, [])
  if (failed) return <Unloaded what="player" />
  if (!Stage) return <Loading what="Loading the player" />
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
