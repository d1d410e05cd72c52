// The player of streams and assets. It loads hls.js when it is shown.
import { useEffect, useRef } from 'preact/hooks'
import { root } from '../lib/api'

// PlayerHandle lets the page around the player read and set what it shows.
export interface PlayerHandle {
  video: HTMLVideoElement
  // wallClock returns when the frame that is shown was sent, as Unix time in ms; undefined when the
  // player does not know it.
  wallClock: () => number | undefined
  // latency returns how many seconds the picture is behind the encoder; undefined for what is stored.
  latency: () => number | undefined
}

interface PlayerProps {
  playbackID: string
  title: string
  jwt?: string // of a viewer, for what is not public
  onReady?: (handle: PlayerHandle) => void
}

export function Player({ playbackID, title, jwt, onReady }: PlayerProps) {
  const element = useRef<HTMLVideoElement>(null)
  useEffect(() => {
    const video = element.current!
    const folder = `${root}/hls/${encodeURIComponent(playbackID)}/`
    const query = jwt ? '?jwt=' + encodeURIComponent(jwt) : ''
    video.poster = folder + 'poster.jpg' + query
    let stop = () => {}
    let gone = false
    void import('hls.js').then(({ default: Hls }) => {
      if (gone) return
      const hls = new Hls({ lowLatencyMode: true })
      stop = () => hls.destroy()
      hls.loadSource(folder + 'index.m3u8' + query)
      hls.attachMedia(video)
      onReady?.({
        video,
        wallClock: () => hls.playingDate?.getTime(),
        latency: () => (hls.latestLevelDetails?.live ? hls.latency : undefined),
      })
    })
    return () => {
      gone = true
      stop()
    }
  }, [playbackID, jwt])
  return <video ref={element} class="player" controls playsInline muted aria-label={title} />
}
