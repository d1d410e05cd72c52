// Which text and which audio is played: what the playlist offers, what the viewer chose, and what the
// browser remembers of that.
import { signal } from '@preact/signals'
import Hls, { type MediaPlaylist } from 'hls.js'
import { type Choice, first, label, match, some } from '../lib/choice'
import { recall, remember } from '../lib/viewer'

const asChoice = ({ name, lang = '', default: byDefault, forced, url }: MediaPlaylist): Choice => ({
  id: /\/text\/([^/]+)\/index\.m3u8/.exec(url)?.[1],
  name: label(name, lang),
  language: lang,
  default: byDefault,
  forced,
})

export class Choices {
  readonly texts = signal<Choice[]>([])
  readonly text = signal(-1) // index; -1 = off
  readonly above = signal(false) // some of the text is in the upper half of the picture
  readonly audios = signal<Choice[]>([])
  readonly audio = signal(-1)

  private show: (index: number) => void = () => {}
  private hear: (index: number) => void = () => {}
  private ended = new AbortController()

  constructor(private readonly video: HTMLVideoElement) {}

  setText(index: number) {
    const chosen = this.texts.value[index]
    const { text } = recall()
    remember({ text: chosen ? { language: chosen.language, name: chosen.name } : { ...text, off: true } })
    this.text.value = index
    this.show(index)
  }

  // toggleText turns text off, or the one on that the viewer had last.
  toggleText() {
    if (this.texts.value.length > 0) this.setText(this.text.value < 0 ? some(this.texts.value, recall().text) : -1)
  }

  setAudio(index: number) {
    const chosen = this.audios.value[index]
    if (!chosen) return
    remember({ audio: { language: chosen.language, name: chosen.name } })
    this.audio.value = index
    this.hear(index)
  }

  // clear forgets what the playlist offered.
  clear() {
    this.ended.abort()
    this.texts.value = this.audios.value = []
    this.text.value = this.audio.value = -1
    this.above.value = false
  }

  follow(h: Hls) {
    this.show = (index) => (h.subtitleTrack = index)
    this.hear = (index) => (h.audioTrack = index)
    h.on(Hls.Events.MANIFEST_PARSED, (_, { subtitleTracks, audioTracks }) => {
      const { text, audio } = recall()
      // Nothing is in the group '': without a preference, hls.js shows the default.
      h.config.subtitlePreference = subtitleTracks[first(subtitleTracks.map(asChoice), text)] ?? { groupId: '' }
      const heard = audioTracks[match(audioTracks.map(asChoice), audio)]
      if (heard) h.config.audioPreference = { lang: heard.lang, name: heard.name }
    })
    h.on(Hls.Events.SUBTITLE_TRACKS_UPDATED, (_, { subtitleTracks }) => {
      this.addElements(subtitleTracks)
      this.texts.value = subtitleTracks.map(asChoice)
    })
    h.on(Hls.Events.MEDIA_ATTACHING, () => this.addElements(h.subtitleTracks))
    h.on(Hls.Events.SUBTITLE_TRACK_SWITCH, (_, { id }) => (this.text.value = id))
    h.on(Hls.Events.AUDIO_TRACKS_UPDATED, (_, { audioTracks }) => (this.audios.value = audioTracks.map(asChoice)))
    h.on(Hls.Events.AUDIO_TRACK_SWITCHING, (_, { id }) => (this.audio.value = id))
  }

  // addElements gives texts the elements that show them. Those that hls.js makes have a data: address,
  // which the policy of the pages refuses.
  private addElements(tracks: MediaPlaylist[]) {
    for (const track of tracks) {
      if (track.trackNode) continue
      const element = document.createElement('track')
      element.kind = track.characteristics?.includes('transcribes-spoken-dialog') ? 'captions' : 'subtitles'
      element.label = track.name
      element.srclang = track.lang ?? ''
      element.src = emptyText() // Safari takes the cues out of a text without an address
      element.track.addEventListener('cuechange', () => {
        this.above.value = [...(element.track.activeCues ?? [])].some(isAbove)
      })
      this.video.append(element)
      track.trackNode = element
    }
  }

  // followVideo does the same where the browser plays the playlist by itself. It shows the default then.
  followVideo() {
    this.ended = new AbortController()
    const { signal } = this.ended
    const { textTracks } = this.video
    const isText = ({ kind }: TextTrack) => kind === 'subtitles' || kind === 'captions'
    const tracks = () => [...textTracks].filter(isText)
    const read = () => {
      const now = tracks()
      this.texts.value = now.map(({ label: name, language }) => ({
        name: label(name, language),
        language,
        default: false,
        forced: false,
      }))
      this.text.value = now.findIndex(({ mode }) => mode === 'showing')
    }
    this.show = (index) => {
      for (const [i, track] of tracks().entries()) track.mode = i === index ? 'showing' : 'disabled'
      read()
    }
    const added = () => {
      read()
      const { text } = recall()
      const wanted = match(this.texts.value, text)
      if (text.off || wanted >= 0) this.show(text.off ? -1 : wanted)
    }
    textTracks.addEventListener('addtrack', ({ track }) => track && isText(track) && added(), { signal })
    textTracks.addEventListener('removetrack', read, { signal })
    textTracks.addEventListener('change', read, { signal })
    added()
  }
}

function isAbove(cue: TextTrackCue): boolean {
  const { line, snapToLines } = cue as VTTCue
  return line !== 'auto' && (snapToLines ? line >= 0 : line < 50)
}

let empty = ''

function emptyText(): string {
  empty ||= URL.createObjectURL(new Blob(['WEBVTT'], { type: 'text/vtt' }))
  return empty
}
