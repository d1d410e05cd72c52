// What pages that show streams have in common.
import { useEffect, useState } from 'preact/hooks'
import { api, ask, root, type Schemas } from '../lib/api'
import type { WeirEvent } from '../lib/events'
import { count, plural, profileName } from '../lib/format'
import { useLoad } from '../lib/load'
import { Badge } from '../ui/values'

export type Stream = Schemas['Stream']

export const isPublic = ({ playbackPolicy: policy }: { playbackPolicy?: Stream['playbackPolicy'] }) =>
  !policy || policy.type === 'public'

// StreamState is whether a stream is on air.
export function StreamState({ stream }: { stream: Stream }) {
  if (stream.suspended) return <Badge tone="warn">suspended</Badge>
  return stream.isActive ? <Badge tone="live">on air</Badge> : <Badge tone="soft">idle</Badge>
}

// StreamHealth is whether a stream on air has problems.
export function StreamHealth({ stream }: { stream: Stream }) {
  if (!stream.isActive || stream.isHealthy === undefined || stream.isHealthy === null)
    return <span class="hint">–</span>
  if (stream.isHealthy) return <Badge tone="good">healthy</Badge>
  return (
    <a href={`streams/${stream.id}?tab=health`} title={profileName(stream.issues?.join('\n') ?? '')}>
      <Badge tone="warn">{stream.issues?.length ? plural(stream.issues.length, 'problem') : 'problems'}</Badge>
    </a>
  )
}

const pictureEvery = 10 // seconds

// Picture is what a stream on air shows now.
export function Picture({ stream }: { stream: Stream }) {
  const shown = stream.isActive && isPublic(stream)
  const [at, setAt] = useState(Date.now())
  const [failed, setFailed] = useState(false)
  useEffect(() => {
    if (!shown) return
    const timer = setInterval(() => {
      if (document.hidden) return
      setFailed(false)
      setAt(Date.now())
    }, pictureEvery * 1000)
    return () => clearInterval(timer)
  }, [shown])
  if (!shown || failed) return <span class="picture none" aria-hidden="true" />
  return (
    <img
      class="picture"
      src={`${root}/hls/${stream.playbackId}/poster.jpg?at=${at}`}
      alt=""
      onError={() => setFailed(true)}
    />
  )
}

// useViewers returns how many viewers everything has at the moment, by playback id.
export function useViewers(): Map<string, number> {
  const rows = useLoad(
    () => ask(api.GET('/api/data/views/now', { params: { query: { 'breakdownBy[]': ['playbackId'] } } })),
    [],
    { every: 10 },
  )
  return new Map(rows.data?.map((row) => [row.playbackId ?? '', row.viewCount]))
}

export const Viewers = ({ of }: { of?: number }) => <>{of ? count(of) : '0'}</>

// onStreams says whether an event changes what a list of streams shows.
export const onStreams = (event: WeirEvent) => event.event.startsWith('stream.')

// concerns says whether an event is about a stream, its sessions or its clips.
export function concerns(event: WeirEvent, stream: { id: string; playbackId: string }): boolean {
  if (event.stream) return event.stream.id === stream.id
  const { asset } = (event.payload ?? {}) as { asset?: { snapshot?: { source?: { playbackId?: string } } } }
  return asset?.snapshot?.source?.playbackId === stream.playbackId
}

// startPull pulls a stream from its source. It returns when the source plays.
export const startPull = (id: string) => ask(api.POST('/api/stream/{id}/start-pull', { params: { path: { id } } }))

// GoLive leads to the page that sends the camera. It makes a stream when the broadcast starts.
export const GoLive = ({ class: extra = '' }: { class?: string }) => (
  <a class={'button ' + extra} href="live">
    Go live from this browser
  </a>
)
