// Plays a stream or a video, and says in words how that goes. It asks again and again for a stream
// that is not on air, so that nobody needs to reload.
import { computed, signal } from '@preact/signals'
import Hls, { type Fragment } from 'hls.js'
import { match, some } from '../lib/choice'
import { bitrate as asBitrate } from '../lib/format'
import type { Line } from '../lib/lines'
import { recall } from '../lib/viewer'
import { Choices } from './choices'
import { listTexts, readLines, type TextFile } from './texts'

export interface PlaybackOptions {
  id: string // playback id
  live: boolean
  seen?: boolean // the stream was on air before
  root: string // address of weir, with a slash at its end
  // credentials are query parameters of the viewer: jwt, accessKey; and ll=0, which turns low latency off.
  credentials?: URLSearchParams
  autoplay: 'on' | 'muted' | 'off'
}

// Message is what the player says over the picture.
export interface Message {
  headline: string
  detail?: string
  again?: boolean // the viewer may try again
  over?: boolean // the picture stays visible
}

export interface Level {
  index: number
  label: string
}

const stalledAfter = 4000
const endedAfter = 1500
const restartAfter = 10_000

export class Playback {
  readonly message = signal<Message | null>({ headline: 'Loading …' })
  readonly onAir = signal(false) // the picture is live and moves
  readonly latency = signal<number | undefined>(undefined) // seconds behind the encoder
  readonly levels = signal<Level[]>([])
  readonly level = signal(-1) // -1 = automatic
  readonly files = signal<TextFile[]>([]) // of the texts
  readonly titles = signal<Line[]>([]) // of chapters that somebody made
  readonly periods = signal<Line[]>([]) // of a recording
  readonly chapters = computed(() => (this.titles.value.length > 0 ? this.titles.value : this.periods.value))
  readonly silenced = signal(false) // the browser allowed it only without sound
  readonly waiting = signal(false) // there is something to play, and the viewer has not asked for it
  readonly fragment = signal<Fragment | null>(null) // that is shown; null = not known

  readonly folder: string
  readonly query: string
  readonly source: string
  readonly choices: Choices
  // transcribed is the text of the transcript: the one that is shown, or the viewer had last.
  readonly transcribed = computed(() => {
    const files = this.files.value.filter(({ kind }) => kind === 'subtitles')
    const { texts, text } = this.choices
    const shown = texts.value[text.value]
    const found = shown && (files.find(({ id }) => id === shown.id) ?? files[match(files, shown)])
    return found ?? files[some(files, recall().text)]
  })

  private hls: Hls | null = null
  private timer = 0
  private watching = 0
  private over: boolean // the stream was on air, and the last thing known of it is its end
  private growing = false // the playlist says that more will be added to it
  private closing = false // the playlist of a stream says that nothing will be added to it
  private asked = 0 // when the server was last asked whether a stalled stream is on air
  private moved = Date.now() // when the picture last did
  private at = 0
  private wanted: boolean // it shall play
  private ended = new AbortController()

  constructor(
    readonly video: HTMLVideoElement,
    readonly options: PlaybackOptions,
  ) {
    this.query = options.credentials?.size ? '?' + options.credentials : ''
    this.folder = `${options.root}hls/${encodeURIComponent(options.id)}/`
    this.source = this.folder + 'index.m3u8' + this.query
    this.choices = new Choices(video)
    this.over = options.seen ?? false
    this.wanted = options.autoplay !== 'off'
    if (options.autoplay === 'muted') video.muted = true
    const { signal } = this.ended
    video.addEventListener(
      'volumechange',
      () => {
        if (!video.muted) this.silenced.value = false
      },
      { signal },
    )
    video.addEventListener('ended', () => options.live && this.end(), { signal })
    video.addEventListener('error', () => this.failed(), { signal })
    this.watching = window.setInterval(() => this.watch(), 250)
    this.showPoster()
    void this.ask()
  }

  destroy() {
    this.ended.abort()
    clearInterval(this.watching)
    this.stop()
  }

  // again asks once more, because the viewer wants it.
  again() {
    this.say({ headline: 'Loading …' })
    void this.ask()
  }

  // start plays what waits for the viewer.
  start() {
    this.wanted = true
    this.waiting.value = false
    this.play()
  }

  setLevel(index: number) {
    this.level.value = index
    if (this.hls) this.hls.nextLevel = index
  }

  // seek shows a time of what is stored.
  seek(time: number) {
    if (this.waiting.value) this.start()
    this.video.currentTime = time
  }

  // lines reads a text.
  lines = ({ id }: TextFile): Promise<Line[]> => readLines(this.video, `${this.folder}text/${id}.vtt${this.query}`)

  toLive() {
    const { seekable } = this.video
    const end = this.hls?.liveSyncPosition ?? (seekable.length ? seekable.end(seekable.length - 1) : NaN)
    if (Number.isFinite(end)) this.video.currentTime = end
    void this.video.play()
  }

  playing = () => Boolean(this.hls || this.video.getAttribute('src'))

  // wallClock returns when the frame that is shown was sent, in ms; undefined = it is not known.
  wallClock(): number | undefined {
    if (this.hls) return this.hls.playingDate?.getTime()
    const start = (this.video as { getStartDate?: () => Date }).getStartDate?.().getTime() ?? NaN
    return Number.isNaN(start) ? undefined : start + this.video.currentTime * 1000
  }

  // frameRate returns the rate that the playlist says.
  frameRate(): number {
    const level = this.hls?.levels?.[Math.max(this.hls.currentLevel, 0)]
    return Number(level?.attrs['FRAME-RATE']) || 0
  }

  // token returns what proves that the viewer may play, if that is needed.
  token(): string | undefined {
    const uri = this.hls?.levels?.[0]?.uri
    return uri ? /\/t\/([^/]+)\//.exec(new URL(uri, location.href).pathname)?.[1] : undefined
  }

  private say(message: Message | null) {
    this.message.value = message
  }

  private stop() {
    clearTimeout(this.timer)
    this.hls?.destroy()
    this.hls = null
    this.fragment.value = null
    this.video.removeAttribute('src')
    this.growing = false
    this.onAir.value = this.waiting.value = false
    this.latency.value = undefined
    this.levels.value = []
    this.choices.clear()
  }

  // showPoster shows the latest picture, until there is one that moves.
  private showPoster() {
    const at = this.options.live ? (this.query ? '&' : '?') + 'at=' + Math.floor(Date.now() / 5000) : ''
    this.video.poster = this.folder + 'poster.jpg' + this.query + at
  }

  private later() {
    this.stop()
    const after = this.options.live ? 2000 : 5000
    this.timer = window.setTimeout(() => this.ask(), after * (0.75 + Math.random() / 2))
  }

  // sent finds out whether an encoder sends the stream. The playlist does not tell: it stays as it is
  // for a while, for an encoder that comes back.
  private async sent(): Promise<boolean> {
    const answer = await fetch(`${this.options.root}api/playback/${encodeURIComponent(this.options.id)}`, {
      cache: 'no-store',
    })
    return !answer.ok || (await answer.json()).meta.live === 1
  }

  // ask finds out whether there is something to play, without counting as a viewer.
  private async ask() {
    const { live } = this.options
    let answer: Response
    let idle = false
    try {
      answer = await fetch(this.source, { method: 'HEAD', cache: 'no-store' })
      idle = live && answer.ok && !(await this.sent())
    } catch {
      this.say({ headline: 'No connection', detail: 'The server does not answer. This page keeps trying.' })
      return this.later()
    }
    if (this.ended.signal.aborted) return
    if (answer.ok && !idle) {
      if (!live) void this.loadTexts()
      return this.wanted ? this.play() : this.wait()
    }
    if (answer.status === 401 || answer.status === 403) {
      this.stop()
      return this.say(this.refusal())
    }
    if (!answer.ok && answer.status !== 404) {
      this.say({
        headline: 'It can’t be played at the moment',
        detail: `The server answers with ${answer.status}. This page keeps trying.`,
      })
    } else if (!live) {
      this.say({ headline: 'The video is being prepared', detail: 'It plays here as soon as it is ready.' })
    } else if (idle || this.over) {
      this.say({ headline: 'The stream has ended', detail: 'If it goes on air again, it plays here by itself.' })
    } else {
      this.say({ headline: 'Not on air yet', detail: 'It plays here by itself as soon as it starts.' })
    }
    this.later()
  }

  // refusal is for viewers; what the API says is for those who make tokens.
  private refusal(): Message {
    const { credentials } = this.options
    const headline = 'This video is not open to everybody'
    return credentials?.has('jwt') || credentials?.has('accessKey')
      ? {
          headline,
          detail: 'Your link does not let you in, or no longer. Ask whoever gave it to you for a new one.',
          again: true,
        }
      : { headline, detail: 'You need a link that lets you in. Ask whoever published the video for one.' }
  }

  // loadTexts finds out which texts there are. Chapters that can't be read are left out: the video plays
  // without them.
  private async loadTexts() {
    if (this.files.value.length > 0) return
    const files = await listTexts(this.options.root, this.options.id)
    if (this.ended.signal.aborted || this.files.value.length > 0) return
    this.files.value = files
    const chapters = files.filter(({ kind }) => kind === 'chapters')
    const file = chapters[some(chapters, { language: navigator.language })]
    this.titles.value = file ? await this.lines(file).catch(() => []) : []
  }

  private wait() {
    this.say(null)
    this.waiting.value = true
  }

  private play() {
    this.stop()
    this.closing = false
    this.moved = Date.now()
    this.showPoster()
    if (Hls.isSupported()) {
      this.playWithHls()
    } else if (this.video.canPlayType('application/vnd.apple.mpegurl')) {
      this.video.src = this.source
      this.choices.followVideo()
      void this.begin()
    } else {
      this.say({
        headline: 'This browser can’t play it',
        detail: 'It has neither Media Source Extensions nor HLS. Try another browser.',
      })
    }
  }

  private playWithHls() {
    const h = new Hls({ enableWorker: false, lowLatencyMode: true, backBufferLength: 30, maxLiveSyncPlaybackRate: 1.1 })
    this.hls = h
    this.choices.follow(h)
    let recovered = 0
    h.on(Hls.Events.MANIFEST_PARSED, () => {
      this.listLevels()
      void this.begin()
    })
    h.on(Hls.Events.LEVELS_UPDATED, () => this.listLevels())
    h.on(Hls.Events.FRAG_CHANGED, (_, { frag }) => (this.fragment.value = frag))
    h.on(Hls.Events.LEVEL_LOADED, (_, { details }) => {
      this.growing = details.live
      this.closing = this.options.live && !this.growing
      if (!this.options.live) this.periods.value = periodsOf(details.fragments)
      if (this.closing && this.over) this.later() // still the playlist of the last session
    })
    h.on(Hls.Events.ERROR, (_, error) => {
      if (!error.fatal || h !== this.hls) return
      if (error.type === Hls.ErrorTypes.MEDIA_ERROR && Date.now() - recovered > 5000) {
        recovered = Date.now()
        return h.recoverMediaError()
      }
      this.stop()
      void this.ask()
    })
    h.loadSource(this.source)
    h.attachMedia(this.video)
  }

  private listLevels() {
    if (!this.hls) return
    const levels = this.hls.levels.map(({ height, bitrate }, index) => ({ index, height, bitrate }))
    levels.sort((a, b) => b.height - a.height || b.bitrate - a.bitrate)
    this.levels.value = levels.map(({ index, height, bitrate }) => {
      const rate = asBitrate(bitrate)
      return { index, label: height ? `${height}p · ${rate}` : rate }
    })
    this.level.value = this.hls.autoLevelEnabled ? -1 : this.hls.currentLevel
  }

  // begin plays with sound if the browser lets us, otherwise without.
  private async begin() {
    this.moved = Date.now()
    try {
      await this.video.play()
    } catch (error) {
      if ((error as Error).name !== 'NotAllowedError') return
      this.video.muted = true
      this.silenced.value = true
      this.video.play().catch(() => this.wait())
    }
  }

  private failed() {
    if (this.hls || !this.video.getAttribute('src')) return // hls.js looks after its own
    this.stop()
    void this.ask()
  }

  // checkEnd ends a stalled stream whose encoder is gone.
  private async checkEnd() {
    if (Date.now() - this.asked < 2000) return
    this.asked = Date.now()
    const stalled = this.moved
    const sent = await this.sent().catch(() => true)
    if (!sent && this.playing() && this.moved === stalled) this.end()
  }

  private end() {
    this.over = true
    this.showPoster()
    this.say({ headline: 'The stream has ended', detail: 'If it goes on air again, it plays here by itself.' })
    this.later()
  }

  // watch looks whether the picture moves: only that proves that all is well.
  private watch() {
    if (!this.playing()) return
    const { video } = this
    const { live } = this.options
    const step = video.currentTime - this.at
    const still = Date.now() - this.moved
    this.at = video.currentTime
    if (step > 0 && step < 2 && !video.seeking && !video.paused) {
      this.moved = Date.now()
      this.over = false
      this.say(null)
    } else if (video.paused || video.ended) {
      this.moved = Date.now()
      if (video.readyState >= 2 && !this.over) this.say(null) // somebody paused it
    } else if (still > endedAfter) {
      // Audio and video seldom end together, and players wait for the shorter one.
      if (this.closing) return this.end()
      if (live) void this.checkEnd()
      // hls.js does not get over every hole that an encoder leaves.
      if (live && this.hls && still > restartAfter) return this.play()
      if (still > stalledAfter) {
        const detail = live
          ? 'The encoder or the network is interrupted; playback continues by itself.'
          : 'The network is slow; playback continues by itself.'
        this.say({ headline: 'Waiting for video', detail, over: true })
      }
    }
    this.onAir.value = this.growing && still <= stalledAfter
    this.latency.value = (live && this.onAir.value && this.hls?.latency) || undefined
  }
}

// periodsOf returns the periods of a recording: its encoder connected anew where they start.
function periodsOf(fragments: Fragment[]): Line[] {
  const starts = fragments.filter((frag, i) => i === 0 || frag.cc !== fragments[i - 1]!.cc)
  if (starts.length < 2) return []
  return starts.map((frag, i) => ({
    start: frag.start,
    text: frag.programDateTime ? new Date(frag.programDateTime).toLocaleTimeString() : `Part ${i + 1}`,
  }))
}
