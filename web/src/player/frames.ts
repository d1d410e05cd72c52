// Which frame is shown, and how to step by one.
import type { Playback } from './playback'

export class Frames {
  private shortest = 0 // measured time between two frames, in seconds
  private picture: number | null = null // time of the frame that is shown, if the browser tells
  private last: VideoFrameCallbackMetadata | null = null
  private ended = false

  constructor(private readonly playback: Playback) {
    this.wait()
  }

  destroy() {
    this.ended = true
  }

  private wait() {
    this.playback.video.requestVideoFrameCallback?.((_, now) => {
      const passed = this.last ? now.presentedFrames - this.last.presentedFrames : 0
      const step = passed > 0 && passed < 5 ? (now.mediaTime - this.last!.mediaTime) / passed : 0
      if (step > 0.002 && step < 0.2 && (!this.shortest || step < this.shortest)) this.shortest = step
      this.picture = now.mediaTime
      this.last = now
      if (!this.ended) this.wait()
    })
  }

  // duration returns that of a frame in seconds: as the playlist says, because a browser that is busy
  // leaves out frames.
  duration(): number {
    const rate = this.playback.frameRate()
    return rate > 0 ? 1 / rate : this.shortest || 1 / 30
  }

  // shownAt returns the time of the frame that is shown, on the timeline of the player. A step leads
  // to the middle of a frame.
  shownAt(): number {
    const { video } = this.playback
    const at = video.currentTime
    if (this.picture === null) return at
    // Chromium does not always tell of the frame after a step back: the last one it told of is later
    // then. A browser that is busy tells late. In both cases the frames between are counted.
    const untold = video.seeking || (video.paused && this.picture > at)
    const since = at - this.picture
    if (!untold && Math.abs(since) < 0.25) return this.picture
    const frame = this.duration()
    return this.picture + Math.round(since / frame - 0.5) * frame
  }

  // mark returns the time of the frame that is shown as the first of a clip, or as its last, in ms: of
  // the wall clock for a stream, from the start for a video; undefined = it is not known yet.
  mark(end: 'first' | 'last'): number | undefined {
    if (!this.playback.playing()) return undefined
    const time = this.shownAt() + (end === 'last' ? this.duration() / 2 : 0)
    if (!this.playback.options.live) return Math.max(0, time * 1000)
    const now = this.playback.wallClock()
    return now === undefined ? undefined : now + (time - this.playback.video.currentTime) * 1000
  }

  step(frames: number) {
    if (!this.playback.playing()) return
    const { video } = this.playback
    video.pause()
    video.currentTime = Math.max(0, this.shownAt() + (frames + 0.5) * this.duration())
  }
}
