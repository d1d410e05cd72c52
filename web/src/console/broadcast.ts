// A broadcast from this browser: the devices, the connection and its state.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, ask, root } from '../lib/api'
import { ApiError } from '../lib/error'
import { insecure, listDevices, mediaProblem, openMedia, startSilence, type Choice, type Devices } from '../lib/media'
import { Whip, type Sending } from '../lib/whip'
import type { Stream } from './stream'

// Media is what the preview shows.
export interface Media {
  stream?: MediaStream
  problem: string
  devices: Devices
  choice: Choice
  choose: (part: Partial<Choice>) => Promise<void>
}

// useMedia opens the camera when the page is shown, and what the person chooses afterwards.
export function useMedia(): Media {
  const [choice, setChoice] = useState<Choice>({ source: 'camera', camera: '', microphone: '' })
  const [stream, setStream] = useState<MediaStream>()
  const [problem, setProblem] = useState('')
  const [devices, setDevices] = useState<Devices>({ cameras: [], microphones: [] })
  const current = useRef<MediaStream | undefined>(undefined)
  const gone = useRef(false)
  const list = () => listDevices().then((found) => gone.current || setDevices(found))
  const choose = async (part: Partial<Choice>) => {
    const wanted = { ...choice, ...part }
    setChoice(wanted)
    setProblem('')
    try {
      const opened = await openMedia(wanted)
      if (gone.current) return close(opened)
      const before = current.current
      current.current = opened
      setStream(opened)
      // What is sent is replaced first, so viewers see no gap.
      setTimeout(() => close(before), 500)
      opened.getVideoTracks()[0]?.addEventListener('ended', () => {
        if (current.current === opened)
          setProblem(
            wanted.source === 'screen'
              ? 'The screen is not shared any more. Choose it again, or the camera.'
              : 'The camera is gone. Choose another one.',
          )
      })
      await list()
    } catch (e) {
      if (!gone.current) setProblem(mediaProblem(e, wanted.source))
    }
  }
  useEffect(() => {
    if (insecure()) return
    void choose({})
    navigator.mediaDevices.addEventListener('devicechange', list)
    return () => {
      gone.current = true
      navigator.mediaDevices.removeEventListener('devicechange', list)
      close(current.current)
    }
  }, [])
  return { stream, problem, devices, choice, choose }
}

function close(stream?: MediaStream) {
  for (const track of stream?.getTracks() ?? []) track.stop()
}

export type Phase = 'off' | 'connecting' | 'on' | 'reconnecting'

export interface Broadcast {
  phase: Phase
  problem: string
  sending?: Sending
  start: () => Promise<void>
  stop: () => Promise<void>
}

const steadyAfter = 30_000 // ms after which a connection was a good one
const maxLosses = 3 // of connections that were not: another encoder may want the stream as well
const tryFor = 60_000 // ms to get a lost connection back
const retryEvery = 2000 // ms

// useBroadcast sends media to a stream while the person wants it. A lost connection is made again. make
// makes the stream if there is none yet.
export function useBroadcast(of: Stream | undefined, make: () => Promise<Stream>, media?: MediaStream): Broadcast {
  const [phase, setPhase] = useState<Phase>('off')
  const [problem, setProblem] = useState('')
  const [sending, setSending] = useState<Sending>()
  const whip = useRef<Whip | undefined>(undefined)
  const latest = useRef({ media, of })
  latest.current = { media, of }
  const target = useRef(of)
  const starts = useRef(0) // what an earlier start waits for is not wanted after a stop
  const losses = useRef(0)

  // connect returns when media reaches the server, or when the person wants it no longer.
  const connect = async () => {
    const since = Date.now()
    const to = target.current!
    const terminated = (latest.current.of ?? to).lastTerminatedAt
    const connection: Whip = new Whip(`${root}/webrtc/${to.streamKey}`, () => void lost(connection, since, terminated))
    whip.current = connection
    try {
      await connection.start(latest.current.media!)
    } catch (e) {
      await connection.stop()
      if (whip.current === connection) throw e
    }
    if (whip.current === connection) setPhase('on')
  }
  const end = (problem: string) => {
    starts.current++
    whip.current = undefined
    setPhase('off')
    setSending(undefined)
    setProblem(problem)
  }
  const lost = async (connection: Whip, since: number, terminated: Stream['lastTerminatedAt']) => {
    if (Date.now() - since > steadyAfter) losses.current = 0
    if (++losses.current > maxLosses) return end('The connection is lost. Look at your network and start again.')
    setPhase('reconnecting')
    const until = Date.now() + tryFor
    let current: Whip | undefined = connection // another one, or none, if the person did something meanwhile
    while (whip.current === current) {
      try {
        const stream = await ask(api.GET('/api/stream/{id}', { params: { path: { id: target.current!.id } } }))
        if (whip.current !== current) return
        if (stream.lastTerminatedAt !== terminated) return end('The broadcast was ended in the console or by the API.')
        const connecting = connect()
        current = whip.current
        return await connecting
      } catch (e) {
        if (whip.current !== current) return
        if ((e instanceof ApiError && !e.temporary) || Date.now() > until) return end((e as Error).message)
      }
      await new Promise((resolve) => setTimeout(resolve, retryEvery))
    }
  }
  const start = async () => {
    startSilence()
    losses.current = 0
    setPhase('connecting')
    setProblem('')
    const mine = ++starts.current
    try {
      target.current = latest.current.of ?? (await make())
      if (starts.current === mine) await connect()
    } catch (e) {
      end((e as Error).message)
    }
  }
  const stop = async () => {
    const connection = whip.current
    end('')
    await connection?.stop()
  }

  // Another camera or microphone is sent in place of the one before.
  useEffect(() => {
    media?.getTracks().forEach((track) => void whip.current?.replace(track))
  }, [media])
  useEffect(() => {
    if (phase !== 'on') return
    const timer = setInterval(async () => whip.current && setSending(await whip.current.sending()), 1000)
    return () => clearInterval(timer)
  }, [phase])
  useEffect(() => {
    const leave = () => void whip.current?.stop()
    addEventListener('pagehide', leave)
    return () => {
      removeEventListener('pagehide', leave)
      leave()
      starts.current++
      whip.current = undefined
    }
  }, [])
  return { phase, problem, sending, start, stop }
}

// useLeaveWarning asks before a person leaves a page that sends.
export function useLeaveWarning(on: boolean, question: string) {
  useEffect(() => {
    if (!on) return
    const unload = (e: BeforeUnloadEvent) => e.preventDefault()
    const click = (e: MouseEvent) => {
      const link = (e.target as Element).closest('a')
      if (!link || link.target === '_blank' || e.ctrlKey || e.metaKey || e.shiftKey || confirm(question)) return
      e.preventDefault()
      e.stopPropagation()
    }
    addEventListener('beforeunload', unload)
    document.addEventListener('click', click, true)
    return () => {
      removeEventListener('beforeunload', unload)
      document.removeEventListener('click', click, true)
    }
  }, [on])
}

// useWakeLock keeps the screen on, so that a phone does not stop the camera.
export function useWakeLock(on: boolean) {
  useEffect(() => {
    if (!on || !navigator.wakeLock) return
    const lock = navigator.wakeLock.request('screen').catch(() => undefined)
    return () => void lock.then((held) => held?.release())
  }, [on])
}
