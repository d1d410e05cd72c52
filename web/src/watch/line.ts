import { useEffect, useState } from 'preact/hooks'
import { type Line, lineAt } from '../lib/lines'

// useLine returns the index of the line that is said at the moment, or was last; -1 = none.
export function useLine(video: HTMLVideoElement, lines: readonly Line[]): number {
  const [at, setAt] = useState(-1)
  useEffect(() => {
    const ended = new AbortController()
    const look = () => setAt(lineAt(lines, video.currentTime))
    for (const event of ['timeupdate', 'seeking', 'seeked'])
      video.addEventListener(event, look, { signal: ended.signal })
    look()
    return () => ended.abort()
  }, [video, lines])
  return at
}
