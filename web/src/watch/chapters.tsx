import { duration } from '../lib/format'
import type { Playback } from '../player/playback'
import { useLine } from './line'

// Chapters lists the chapters that somebody gave the video.
export function Chapters({ playback }: { playback: Playback }) {
  const chapters = playback.titles.value
  const at = useLine(playback.video, chapters)
  if (chapters.length === 0) return null
  return (
    <section class="part" aria-label="Chapters">
      <h2>Chapters</h2>
      <ol class="text-lines columns-of-lines">
        {chapters.map(({ start, text }, i) => (
          <li key={i}>
            <button type="button" aria-current={i === at} onClick={() => playback.seek(start)}>
              <span class="line-time">{duration(start)}</span> <span dir="auto">{text}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  )
}
