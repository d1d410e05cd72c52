// Cameras, microphones and screens of this machine.

export interface Choice {
  source: 'camera' | 'screen'
  camera: string // device id, '' = any
  microphone: string // device id, '' = any, noMicrophone = none
}

export const noMicrophone = 'none'

// insecure says whether the browser gives no devices to this page, whatever the person wants.
export const insecure = () => !window.isSecureContext || !navigator.mediaDevices

let silence: AudioContext | undefined
const silent = new WeakSet<MediaStreamTrack>()

// silentTrack is sent when there is no microphone: a stream whose audio comes and goes makes players
// stop.
function silentTrack(): MediaStreamTrack {
  silence ??= new AudioContext()
  const source = new ConstantSourceNode(silence, { offset: 0 })
  const end = silence.createMediaStreamDestination()
  source.connect(end)
  source.start()
  startSilence()
  const track = end.stream.getAudioTracks()[0]!
  silent.add(track)
  return track
}

// startSilence lets the browser make silence; it wants a click before.
export const startSilence = () => void silence?.resume()

// hasSound says whether there is something to mute.
export const hasSound = (media?: MediaStream) => media?.getAudioTracks().some((track) => !silent.has(track)) ?? false

const audio = (id: string): MediaTrackConstraints | false =>
  id === noMicrophone ? false : id ? { deviceId: { exact: id } } : {}
const video = (id: string): MediaTrackConstraints => ({
  ...(id && { deviceId: { exact: id } }),
  width: { ideal: 1280 },
  height: { ideal: 720 },
  frameRate: { ideal: 30 },
})

// openMedia asks for what was chosen. The answer has one video and one audio track.
export async function openMedia(choice: Choice): Promise<MediaStream> {
  const media = await openDevices(choice)
  if (media.getAudioTracks().length === 0) media.addTrack(silentTrack())
  return media
}

async function openDevices({ source, camera, microphone }: Choice): Promise<MediaStream> {
  if (source === 'screen') {
    const screen = await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 30 } }, audio: true })
    for (const track of screen.getVideoTracks()) track.contentHint = 'detail'
    if (microphone === noMicrophone) return screen
    const voice = await navigator.mediaDevices.getUserMedia({ audio: audio(microphone) }).catch(() => undefined)
    if (!voice) return screen
    for (const track of screen.getAudioTracks()) track.stop()
    return new MediaStream([...screen.getVideoTracks(), ...voice.getAudioTracks()])
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ video: video(camera), audio: audio(microphone) })
  } catch (e) {
    // A machine without a microphone can still send video.
    if (microphone || (e as Error).name !== 'NotFoundError') throw e
    return navigator.mediaDevices.getUserMedia({ video: video(camera) })
  }
}

// mediaProblem says in words why there is no video.
export function mediaProblem(e: unknown, source: Choice['source']): string {
  switch ((e as Error).name) {
    case 'NotAllowedError':
      return source === 'screen'
        ? 'No screen was chosen. Try again and choose one.'
        : 'The browser does not let this page use camera and microphone. Allow it with the icon beside the address of the page, then try again.'
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'No camera was found. Connect one and try again, or share your screen.'
    case 'NotReadableError':
    case 'AbortError':
      return 'The camera or the microphone can’t be used. Another program may have it: close that and try again.'
  }
  return (e as Error).message
}

export interface Devices {
  cameras: MediaDeviceInfo[]
  microphones: MediaDeviceInfo[]
}

// listDevices returns the devices. Browsers give their names only once one of them may be used.
export async function listDevices(): Promise<Devices> {
  const all = await navigator.mediaDevices.enumerateDevices()
  const of = (kind: MediaDeviceKind) => all.filter((device) => device.kind === kind && device.deviceId)
  return { cameras: of('videoinput'), microphones: of('audioinput') }
}
