import { beforeEach, describe, expect, test, vi } from 'vitest'

type Kind = 'audio' | 'video'

class Track {
  stopped = false
  contentHint = ''
  constructor(
    readonly kind: Kind,
    readonly label: string,
  ) {}
  stop() {
    this.stopped = true
  }
}

class Stream {
  constructor(readonly tracks: Track[]) {}
  getTracks = () => this.tracks
  getVideoTracks = () => this.tracks.filter((track) => track.kind === 'video')
  getAudioTracks = () => this.tracks.filter((track) => track.kind === 'audio')
  addTrack = (track: Track) => void this.tracks.push(track)
}

const failure = (name: string) => Object.assign(new Error(`${name}.`), { name })

// The machine of the person: what it has, and what the browser says to requests.
let machine: { camera: boolean; microphone: boolean | Error; screenAudio: boolean }
let asked: MediaStreamConstraints[]

beforeEach(() => {
  machine = { camera: true, microphone: true, screenAudio: false }
  asked = []
  vi.stubGlobal('MediaStream', Stream)
  vi.stubGlobal(
    'AudioContext',
    class {
      createMediaStreamDestination = () => ({ stream: new Stream([new Track('audio', 'silence')]) })
      resume() {}
    },
  )
  vi.stubGlobal(
    'ConstantSourceNode',
    class {
      connect() {}
      start() {}
    },
  )
  vi.stubGlobal('navigator', {
    mediaDevices: {
      getUserMedia: async (wanted: MediaStreamConstraints) => {
        asked.push(wanted)
        if (wanted.audio && machine.microphone instanceof Error) throw machine.microphone
        if ((wanted.video && !machine.camera) || (wanted.audio && !machine.microphone)) throw failure('NotFoundError')
        return new Stream([
          ...(wanted.video ? [new Track('video', 'camera')] : []),
          ...(wanted.audio ? [new Track('audio', 'microphone')] : []),
        ])
      },
      getDisplayMedia: async () =>
        new Stream([new Track('video', 'screen'), ...(machine.screenAudio ? [new Track('audio', 'sound')] : [])]),
      enumerateDevices: async () => [
        { kind: 'videoinput', deviceId: 'v1', label: 'A camera' },
        { kind: 'videoinput', deviceId: '', label: '' }, // before the person allowed it
        { kind: 'audioinput', deviceId: 'a1', label: 'A microphone' },
        { kind: 'audiooutput', deviceId: 'o1', label: 'A speaker' },
      ],
    },
  })
})

// open returns the names of the tracks that are sent.
async function open(choice: { source: 'camera' | 'screen'; camera?: string; microphone?: string }) {
  const { openMedia, hasSound } = await import('./media')
  const media = await openMedia({ camera: '', microphone: '', ...choice })
  const tracks = media.getTracks() as unknown as Track[]
  return { tracks, names: tracks.map((track) => track.label), sound: hasSound(media) }
}

describe('there is always one track of video and one of audio', () => {
  test('camera and microphone', async () => {
    expect(await open({ source: 'camera' })).toMatchObject({ names: ['camera', 'microphone'], sound: true })
  })

  test('a machine without a microphone sends silence', async () => {
    machine.microphone = false
    expect(await open({ source: 'camera' })).toMatchObject({ names: ['camera', 'silence'], sound: false })
  })

  test('so does who wants no microphone, which is not asked for then', async () => {
    const { noMicrophone } = await import('./media')
    expect(await open({ source: 'camera', microphone: noMicrophone })).toMatchObject({ names: ['camera', 'silence'] })
    expect(asked).toMatchObject([{ audio: false }])
  })

  test('a screen with the microphone', async () => {
    const { names, tracks } = await open({ source: 'screen' })
    expect(names).toEqual(['screen', 'microphone'])
    expect(tracks[0]!.contentHint).toBe('detail') // text stays sharp
  })

  test('a screen with its sound, if there is no microphone or it is refused', async () => {
    machine.screenAudio = true
    for (const microphone of [false, failure('NotAllowedError')]) {
      machine.microphone = microphone
      expect(await open({ source: 'screen' })).toMatchObject({ names: ['screen', 'sound'], sound: true })
    }
  })

  test('a screen without any sound', async () => {
    machine.microphone = false
    expect(await open({ source: 'screen' })).toMatchObject({ names: ['screen', 'silence'], sound: false })
  })
})

test('the device that was chosen is asked for', async () => {
  await open({ source: 'camera', camera: 'v2', microphone: 'a2' })
  expect(asked).toMatchObject([{ video: { deviceId: { exact: 'v2' } }, audio: { deviceId: { exact: 'a2' } } }])
})

test('a microphone that was chosen and is gone is a problem', async () => {
  machine.microphone = false
  await expect(open({ source: 'camera', microphone: 'a2' })).rejects.toMatchObject({ name: 'NotFoundError' })
})

test('without a camera there is a problem', async () => {
  machine.camera = false
  await expect(open({ source: 'camera' })).rejects.toMatchObject({ name: 'NotFoundError' })
})

test('devices are those that can be chosen', async () => {
  const { listDevices } = await import('./media')
  expect(await listDevices()).toMatchObject({ cameras: [{ deviceId: 'v1' }], microphones: [{ deviceId: 'a1' }] })
})

test.each([
  ['NotAllowedError', 'camera', 'does not let this page use camera and microphone'],
  ['NotAllowedError', 'screen', 'No screen was chosen'],
  ['NotFoundError', 'camera', 'No camera was found'],
  ['OverconstrainedError', 'camera', 'No camera was found'],
  ['NotReadableError', 'camera', 'Another program may have it'],
  ['TypeError', 'camera', 'TypeError.'],
] as const)('%s of the %s: “%s”', async (name, source, text) => {
  const { mediaProblem } = await import('./media')
  expect(mediaProblem(failure(name), source)).toContain(text)
})
