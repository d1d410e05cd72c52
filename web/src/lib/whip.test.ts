import { beforeEach, describe, expect, test, vi } from 'vitest'
import { base, cut, pass, serve } from '../test/browser'

const endpoint = `${base}webrtc/key`

// Peer is the connection of a browser, whose state the test sets.
class Peer {
  static last: Peer
  connectionState = 'new'
  iceGatheringState = 'new'
  onconnectionstatechange: (() => void) | null = null
  localDescription = { sdp: 'offer' }
  closed = false
  answer = ''
  reports: object[] = []
  senders: { track: { kind: string }; replaceTrack: (track: object) => Promise<void> }[] = []
  preferred: string[] = []
  private readonly listeners: (() => void)[] = []

  constructor() {
    Peer.last = this
  }
  addTransceiver = (track: { kind: string }) => {
    const sender = {
      track,
      replaceTrack: async (other: object) => {
        sender.track = other as { kind: string }
      },
    }
    this.senders.push(sender)
    return {
      setCodecPreferences: (codecs: { mimeType: string }[]) => {
        this.preferred = codecs.map((codec) => codec.mimeType)
      },
    }
  }
  addEventListener = (_: string, listener: () => void) => this.listeners.push(listener)
  createOffer = async () => ({})
  setLocalDescription = async () => {}
  setRemoteDescription = async ({ sdp }: { sdp: string }) => {
    this.answer = sdp
  }
  getSenders = () => this.senders
  getStats = async () => this.reports
  close() {
    this.closed = true
  }

  become(state: string) {
    this.connectionState = state
    this.onconnectionstatechange?.()
  }
  gathered() {
    this.iceGatheringState = 'complete'
    for (const listener of this.listeners) listener()
  }
}

const video = { kind: 'video' }
const audio = { kind: 'audio' }
const camera = { getTracks: () => [video, audio] } as unknown as MediaStream

let codecs: { mimeType: string }[]

beforeEach(() => {
  codecs = [{ mimeType: 'video/VP8' }, { mimeType: 'video/H264' }, { mimeType: 'video/AV1' }]
  vi.stubGlobal('RTCPeerConnection', Peer)
  vi.stubGlobal('RTCRtpSender', { getCapabilities: () => ({ codecs }) })
})

const accepted = () => new Response('answer', { status: 201, headers: { Location: '/webrtc/key/session' } })

// begin starts to send, with a server that answers.
async function begin(answer: () => Response | Promise<Response> = accepted) {
  const { Whip } = await import('./whip')
  const got = serve((request) => (request.method === 'POST' ? answer() : new Response()))
  const lost = vi.fn()
  const whip = new Whip(endpoint, lost)
  const started = whip.start(camera).then(
    () => 'started' as const,
    (e: Error) => e,
  )
  await pass(0)
  return { whip, got, lost, started, peer: Peer.last, requests: () => got.map((r) => `${r.method} ${r.url}`) }
}

// connected returns a connection that is there.
async function connected() {
  const all = await begin()
  all.peer.gathered()
  await pass(0)
  all.peer.become('connected')
  expect(await all.started).toBe('started')
  return all
}

describe('starting', () => {
  test('sends one offer with all addresses, and is there when the connection is', async () => {
    const { got, peer, started, requests } = await begin()
    expect(got).toHaveLength(0)
    peer.gathered()
    await pass(0)
    expect(requests()).toEqual([`POST ${endpoint}`])
    expect(got[0]!.headers.get('Content-Type')).toBe('application/sdp')
    expect(await got[0]!.text()).toBe('offer')
    expect(peer.answer).toBe('answer')
    peer.become('connecting')
    peer.become('connected')
    expect(await started).toBe('started')
  })

  test('does not wait for ever for addresses', async () => {
    const { requests } = await begin()
    await pass(500)
    expect(requests()).toEqual([`POST ${endpoint}`])
  })

  test('H.264 comes first', async () => {
    const { peer } = await begin()
    expect(peer.preferred).toEqual(['video/H264', 'video/VP8', 'video/AV1'])
  })

  test('a browser without H.264 can’t send', async () => {
    codecs = [{ mimeType: 'video/VP8' }]
    const { started, got } = await begin()
    expect(await started).toMatchObject({ message: expect.stringContaining('H.264') })
    expect(got).toHaveLength(0)
  })

  test.each([
    [
      'a refusal',
      () => Response.json({ errors: ['the stream is suspended'] }, { status: 403 }),
      403,
      'the stream is suspended',
    ],
    ['the page of a proxy', () => new Response('<html>', { status: 502 }), 502, 'The server answered with status 502.'],
    ['no connection', cut, 0, 'The server does not answer.'],
  ] as const)('%s is an error with its status', async (_, answer, status, message) => {
    const { started } = await begin(answer)
    await pass(500)
    expect(await started).toMatchObject({ status, message })
  })

  test('a firewall between is said', async () => {
    const { peer, started } = await begin()
    peer.gathered()
    await pass(0)
    peer.become('failed')
    expect(await started).toMatchObject({ message: expect.stringContaining('firewall') })
  })

  test('who stops meanwhile leaves no session', async () => {
    let answer!: (response: Response) => void
    const { whip, peer, requests } = await begin(
      () =>
        new Promise((resolve) => {
          answer = resolve
        }),
    )
    peer.gathered()
    await pass(0)
    await whip.stop()
    answer(accepted())
    await pass(0)
    expect(requests()).toEqual([`POST ${endpoint}`, `DELETE ${endpoint}/session`])
  })
})

describe('on air', () => {
  test('stopping ends the session before the connection', async () => {
    const { whip, peer, requests, lost } = await connected()
    const stopped = whip.stop()
    expect(peer.closed).toBe(false)
    await stopped
    await whip.stop()
    expect(requests()).toEqual([`POST ${endpoint}`, `DELETE ${endpoint}/session`]) // below the prefix, and once
    expect(peer.closed).toBe(true)
    expect(lost).not.toHaveBeenCalled()
  })

  test('a short interruption is none', async () => {
    const { peer, lost } = await connected()
    peer.become('disconnected')
    await pass(4999)
    peer.become('connected')
    await pass(60_000)
    expect(lost).not.toHaveBeenCalled()
  })

  test.each(['disconnected', 'failed', 'closed'])('a connection that is %s is lost, once', async (state) => {
    const { peer, lost, requests } = await connected()
    peer.become(state)
    await pass(5000)
    peer.become('closed')
    expect(lost).toHaveBeenCalledTimes(1)
    expect(peer.closed).toBe(true)
    expect(requests()).toHaveLength(1) // the server ends what it does not hear of
  })

  test('another camera takes the place of the first', async () => {
    const { whip, peer } = await connected()
    const other = { kind: 'video', label: 'other' }
    await whip.replace(other as unknown as MediaStreamTrack)
    expect(peer.senders.map((sender) => sender.track)).toEqual([other, audio])
  })

  test('measures since the call before', async () => {
    const { whip, peer } = await connected()
    await pass(1000)
    const sent = (videoBytes: number, audioBytes: number) => [
      {
        type: 'outbound-rtp',
        kind: 'video',
        bytesSent: videoBytes,
        framesPerSecond: 30,
        frameWidth: 1280,
        frameHeight: 720,
      },
      { type: 'outbound-rtp', kind: 'audio', bytesSent: audioBytes },
      { type: 'candidate-pair', nominated: false, currentRoundTripTime: 9 },
      { type: 'candidate-pair', nominated: true, currentRoundTripTime: 0.05 },
      { type: 'remote-inbound-rtp', kind: 'video', fractionLost: 0.02 },
      { type: 'remote-inbound-rtp', kind: 'audio', fractionLost: 0.5 },
    ]
    peer.reports = sent(1000, 100)
    expect(await whip.sending()).toMatchObject({ bitrate: 0 })
    await pass(2000)
    peer.reports = sent(501_000, 12_600)
    expect(await whip.sending()).toEqual({
      bitrate: 2_050_000,
      fps: 30,
      width: 1280,
      height: 720,
      roundTrip: 0.05,
      lost: 0.02,
    })
  })
})
