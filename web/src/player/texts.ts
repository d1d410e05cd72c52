// The texts of a video as files: its chapters, and what a transcript shows. Captions come with the
// playlist.
import { type Choice, label } from '../lib/choice'
import type { Line } from '../lib/lines'

export interface TextFile extends Choice {
  id: string
  kind: 'subtitles' | 'chapters'
}

// listTexts returns the texts of a video; none if they can't be read.
export async function listTexts(root: string, id: string): Promise<TextFile[]> {
  try {
    const answer = await fetch(`${root}api/playback/${encodeURIComponent(id)}`, { cache: 'no-store' })
    const tracks: (TextFile & { type: string })[] = answer.ok ? ((await answer.json()).meta.tracks ?? []) : []
    return tracks
      .filter(({ type }) => type === 'text')
      .map((track) => ({ ...track, language: track.language ?? '', name: label(track.name, track.language ?? '') }))
  } catch {
    return []
  }
}

// readLines lets the browser read a file of WebVTT. Its element belongs to the video, because some
// browsers read only those in a page, and shows nothing.
export function readLines(video: HTMLVideoElement, address: string): Promise<Line[]> {
  const element = document.createElement('track')
  element.kind = 'metadata'
  return new Promise<Line[]>((resolve, reject) => {
    element.addEventListener('load', () => resolve([...(element.track.cues ?? [])].map(asLine)))
    element.addEventListener('error', () => reject(new Error('The text could not be loaded.')))
    element.src = address
    video.append(element)
    element.track.mode = 'hidden' // now it is loaded
  }).finally(() => element.remove())
}

// asLine leaves the markup out: somebody else wrote it.
const asLine = (cue: TextTrackCue): Line => ({
  start: cue.startTime,
  text: ((cue as VTTCue).getCueAsHTML().textContent ?? '').replace(/\s+/g, ' ').trim(),
})
