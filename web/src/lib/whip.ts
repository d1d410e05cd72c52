// Sends camera, screen and microphone to a stream over WebRTC (WHIP).
import { ApiError, sentence } from './error'

// Sending is how the connection does.
export interface Sending {
  bitrate: number // bits a second
  fps: number
  width: number
  height: number
  roundTrip?: number // seconds
  lost?: number // share of the packets, from 0 to 1
}

const gatherWithin = 500 // ms
const lostAfter = 5000 // ms without a connection
const maxBitrate = 2_500_000

export class Whip {
  private readonly peer = new RTCPeerConnection({ bundlePolicy: 'max-bundle' })
  private resource = ''
  private ended = false
  private timer = 0
  private before = { at: 0, bytes: 0 }

  // onLost is called once if the connection is lost after it was there.
  constructor(
    private readonly endpoint: string,
    private readonly onLost: () => void,
  ) {}

  // start sends the tracks of a stream and returns when they reach the server.
  async start(media: MediaStream): Promise<void> {
    for (const track of media.getTracks()) this.add(track, media)
    await this.peer.setLocalDescription(await this.peer.createOffer())
    await this.gathered()
    const answer = await fetch(this.endpoint, {
      method: 'POST',
      headers: { 'Content-Type': 'application/sdp' },
      body: this.peer.localDescription!.sdp,
    }).catch(() => undefined)
    if (!answer) throw new ApiError(0, sentence(0, undefined))
    if (!answer.ok)
      throw new ApiError(answer.status, sentence(answer.status, await answer.json().catch(() => undefined)))
    // The path may be below a prefix that the server does not know, so only its last part counts.
    this.resource = this.endpoint + '/' + (answer.headers.get('Location') ?? '').split('/').at(-1)
    if (this.ended) return this.leave()
    await this.peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() })
    await this.connected()
    this.peer.onconnectionstatechange = () => this.changed()
  }

  private add(track: MediaStreamTrack, media: MediaStream) {
    const video = track.kind === 'video'
    const transceiver = this.peer.addTransceiver(track, {
      direction: 'sendonly',
      streams: [media],
      ...(video && { sendEncodings: [{ maxBitrate }] }),
    })
    if (!video) return
    const codecs = RTCRtpSender.getCapabilities('video')?.codecs ?? []
    const isH264 = (codec: { mimeType: string }) => codec.mimeType.toLowerCase() === 'video/h264'
    if (!codecs.some(isH264))
      throw new Error(
        'This browser can’t send H.264, which viewers need. Use another browser, or send with OBS or ffmpeg.',
      )
    transceiver.setCodecPreferences?.([...codecs.filter(isH264), ...codecs.filter((codec) => !isH264(codec))])
  }

  // gathered waits for the addresses of this machine, so that one request is enough.
  private gathered(): Promise<void> {
    return new Promise((resolve) => {
      const check = () => this.peer.iceGatheringState === 'complete' && resolve()
      this.peer.addEventListener('icegatheringstatechange', check)
      setTimeout(resolve, gatherWithin)
      check()
    })
  }

  private connected(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.peer.onconnectionstatechange = () => {
        const state = this.peer.connectionState
        if (state === 'connected') resolve()
        if (state === 'failed' || state === 'closed')
          reject(
            new Error(
              'The server answers, but no media reaches it. A firewall may block its WebRTC port, UDP and TCP 8189 by default.',
            ),
          )
      }
      this.peer.onconnectionstatechange(new Event('connectionstatechange'))
    })
  }

  private changed() {
    clearTimeout(this.timer)
    const state = this.peer.connectionState
    if (state === 'failed' || state === 'closed') this.lose()
    if (state === 'disconnected') this.timer = window.setTimeout(() => this.lose(), lostAfter)
  }

  private lose() {
    if (this.ended) return
    this.resource = '' // the server ends what it does not hear of
    void this.stop()
    this.onLost()
  }

  // replace sends another track of the same kind.
  async replace(track: MediaStreamTrack): Promise<void> {
    await this.peer
      .getSenders()
      .find((sender) => sender.track?.kind === track.kind)
      ?.replaceTrack(track)
  }

  // sending measures since the call before.
  async sending(): Promise<Sending> {
    const now: Sending = { bitrate: 0, fps: 0, width: 0, height: 0 }
    let bytes = 0
    ;(await this.peer.getStats()).forEach((report) => {
      if (report.type === 'outbound-rtp') {
        bytes += report.bytesSent
        if (report.kind === 'video')
          Object.assign(now, {
            fps: report.framesPerSecond ?? 0,
            width: report.frameWidth ?? 0,
            height: report.frameHeight ?? 0,
          })
      }
      if (report.type === 'candidate-pair' && report.nominated) now.roundTrip = report.currentRoundTripTime
      if (report.type === 'remote-inbound-rtp' && report.kind === 'video') now.lost = report.fractionLost
    })
    const at = performance.now()
    if (this.before.at > 0) now.bitrate = Math.max(0, ((bytes - this.before.bytes) * 8000) / (at - this.before.at))
    this.before = { at, bytes }
    return now
  }

  // stop ends the broadcast.
  async stop(): Promise<void> {
    if (this.ended) return
    this.ended = true
    clearTimeout(this.timer)
    this.peer.onconnectionstatechange = null
    await this.leave() // before the connection closes, with which the session is gone
    this.peer.close()
  }

  private async leave() {
    if (this.resource) await fetch(this.resource, { method: 'DELETE', keepalive: true }).catch(() => {})
    this.resource = ''
  }
}
