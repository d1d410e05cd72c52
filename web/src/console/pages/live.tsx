// Go live from the browser: choose camera or screen, look at the preview, send.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, ask, root } from '../../lib/api'
import { bitrate, local, plural, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { hasSound, insecure, noMicrophone } from '../../lib/media'
import { Copyable } from '../../ui/copy'
import { Check, SelectField } from '../../ui/form'
import { Card, Facts, Page } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { toast } from '../../ui/toast'
import { Badge } from '../../ui/values'
import {
  useBroadcast,
  useLeaveWarning,
  useMedia,
  useWakeLock,
  type Broadcast,
  type Media,
  type Phase,
} from '../broadcast'
import { isPublic, type Stream } from '../stream'
import { Screen } from './stream_watch'

// LivePage sends to a stream, or to one that it makes when the broadcast starts.
export default function LivePage({ id: given = '' }: { id?: string }) {
  const [made, setMade] = useState('')
  const id = given || made
  const stream = useLoad<Stream | null>(
    async (signal) => (id ? ask(api.GET('/api/stream/{id}', { params: { path: { id } }, signal })) : null),
    [id],
    { follows: (event) => event.stream?.id === id, every: 5 },
  )
  const make = async (record: boolean) => {
    const body = { name: `Live from the browser, ${local(Date.now())}`, ...(record && { record }) }
    const next = await ask(api.POST('/api/stream', { body }))
    setMade(next.id)
    return next
  }
  const page = id ? 'streams/' + id : 'streams'
  return (
    <Page
      title="Go live from this browser"
      back={{ href: page, label: id ? stream.data?.name || 'Stream' : 'Streams' }}
      calls={[
        id
          ? { method: 'GET', path: `/api/stream/${id}` }
          : { method: 'POST', path: '/api/stream', body: { name: 'my show' } },
      ]}
    >
      <Show of={stream}>
        {(data) =>
          insecure() ? (
            <Insecure page={page} />
          ) : data?.suspended ? (
            <Suspended page={page} />
          ) : (
            <Studio key={given} stream={data ?? undefined} make={make} reload={stream.reload} />
          )
        }
      </Show>
    </Page>
  )
}

const Insecure = ({ page }: { page: string }) => (
  <Card>
    <Empty title="Browsers need HTTPS for this">
      <p>
        A browser gives camera, microphone and screen only to pages that came over HTTPS or from localhost. Open the
        console at an https address, or send with OBS or ffmpeg.
      </p>
      <a class="button" href={page}>
        Send with OBS or ffmpeg
      </a>
    </Empty>
  </Card>
)

const Suspended = ({ page }: { page: string }) => (
  <Card>
    <Empty title="The stream is suspended">
      <p>Nobody can send to it until it is resumed.</p>
      <a class="button" href={page}>
        To the stream
      </a>
    </Empty>
  </Card>
)

function Studio({
  stream,
  make,
  reload,
}: {
  stream?: Stream
  make: (record: boolean) => Promise<Stream>
  reload: () => void
}) {
  const media = useMedia()
  const [record, setRecord] = useState(false) // of a stream that is made
  const broadcast = useBroadcast(stream, () => make(record), media.stream)
  const sends = broadcast.phase !== 'off'
  const onAir = stream?.isActive === true
  const [stopped, stop] = useState(false) // what the server still has on air is ours
  useEffect(() => {
    if (sends || !onAir) stop(false)
  }, [sends, onAir])
  useLeaveWarning(sends, 'You are on air. Leaving this page ends the broadcast.')
  useWakeLock(sends)
  return (
    <div class="columns">
      <div>
        <Card>
          <Preview media={media.stream} />
          {media.problem && (
            <p class="error" role="alert">
              {media.problem}
            </p>
          )}
          {broadcast.problem && (
            <p class="error" role="alert">
              {broadcast.problem}
            </p>
          )}
          <State phase={broadcast.phase} onAir={onAir} />
          <Controls
            stream={stream}
            media={media}
            broadcast={broadcast}
            taken={!sends && onAir && !stopped}
            stop={() => {
              stop(true)
              void broadcast.stop()
            }}
          />
        </Card>
        {sends && stream && <Viewers stream={stream} />}
      </div>
      <div>
        <Choices
          stream={stream}
          media={media}
          broadcast={broadcast}
          recorded={stream ? stream.record : record}
          record={async (on) => {
            if (!stream) return setRecord(on)
            await recordStream(stream.id, on)
            reload()
          }}
        />
        {sends && stream && <Figures stream={stream} broadcast={broadcast} />}
      </div>
    </div>
  )
}

// Viewers is what viewers see, and the link for them.
function Viewers({ stream }: { stream: Stream }) {
  const [watching, watch] = useState(true)
  return (
    <Card
      title="What viewers see"
      actions={
        <button type="button" class="small quiet" onClick={() => watch(!watching)}>
          {watching ? 'Hide the player' : 'Show the player'}
        </button>
      }
    >
      {watching &&
        (stream.isActive ? (
          <Screen stream={stream} />
        ) : (
          <p class="hint">It plays here about a second after it is sent.</p>
        ))}
      <div class="under-player">
        <span>Link to share</span> <Copyable text={`${root}/play/${stream.playbackId}`} />
      </div>
      <p class="hint">
        {isPublic(stream)
          ? 'Everybody who has the link can watch.'
          : 'Viewers need a permission besides the link: the page of the stream has more about it.'}
      </p>
    </Card>
  )
}

async function recordStream(id: string, record: boolean) {
  try {
    await ask(api.PATCH('/api/stream/{id}/record', { params: { path: { id } }, body: { record } }))
  } catch (e) {
    toast((e as Error).message, 'bad')
  }
}

function Preview({ media }: { media?: MediaStream }) {
  const element = useRef<HTMLVideoElement>(null)
  useEffect(() => {
    if (element.current) element.current.srcObject = media ?? null
  }, [media])
  return <video ref={element} class="player" autoPlay playsInline muted aria-label="Preview" />
}

const words: Record<Phase, string> = {
  off: 'Nobody sees this yet.',
  connecting: 'Connecting to the server …',
  on: 'You are on air.',
  reconnecting: 'The connection was interrupted; connecting again …',
}

function State({ phase, onAir }: { phase: Phase; onAir: boolean }) {
  return (
    <p class="state-line" role="status">
      {phase === 'on' && onAir ? (
        <Badge tone="live">on air</Badge>
      ) : (
        <Badge tone={phase === 'off' ? 'soft' : 'warn'}>{phase === 'off' ? 'off' : 'connecting'}</Badge>
      )}
      <span>{phase === 'on' && !onAir ? 'Connected; the first frames are on their way.' : words[phase]}</span>
    </p>
  )
}

function Controls({
  stream,
  media,
  broadcast,
  taken,
  stop,
}: {
  stream?: Stream
  media: Media
  broadcast: Broadcast
  taken: boolean // by an encoder
  stop: () => void
}) {
  const [muted, setMuted] = useState(false)
  useEffect(() => {
    for (const track of media.stream?.getAudioTracks() ?? []) track.enabled = !muted
  }, [muted, media.stream])
  const sends = broadcast.phase !== 'off'
  return (
    <div class="actions">
      {sends ? (
        <button type="button" class="red" onClick={stop}>
          Stop
        </button>
      ) : (
        <button type="button" disabled={!media.stream} onClick={broadcast.start}>
          Start the broadcast
        </button>
      )}
      {hasSound(media.stream) && (
        <button type="button" class="quiet" aria-pressed={muted} onClick={() => setMuted(!muted)}>
          {muted ? 'Unmute' : 'Mute'}
        </button>
      )}
      {media.problem && (
        <button type="button" class="quiet" onClick={() => media.choose({})}>
          Try again
        </button>
      )}
      {stream && (
        <a href={`play/${stream.playbackId}`} target="_blank" rel="noopener">
          Open the watch page
        </a>
      )}
      {taken && <span class="hint">An encoder sends to this stream now. If you start, you take over.</span>}
    </div>
  )
}

function Choices({
  stream,
  media,
  broadcast,
  recorded,
  record,
}: {
  stream?: Stream
  media: Media
  broadcast: Broadcast
  recorded: boolean
  record: (on: boolean) => Promise<void>
}) {
  const { choice, devices, choose } = media
  const name = (device: MediaDeviceInfo, i: number) => device.label || `number ${i + 1}`
  const inUse = (kind: 'video' | 'audio') =>
    media.stream
      ?.getTracks()
      .find((track) => track.kind === kind)
      ?.getSettings().deviceId ?? ''
  const audio = choice.microphone || inUse('audio')
  return (
    <Card title="What to send">
      <SelectField
        label="Video"
        value={choice.source}
        onValue={(source) => choose({ source })}
        options={[
          ['camera', 'camera'],
          ['screen', 'screen or window'],
        ]}
      />
      {choice.source === 'camera' && devices.cameras.length > 0 && (
        <SelectField
          label="Camera"
          value={choice.camera || inUse('video')}
          onValue={(camera) => choose({ camera })}
          options={devices.cameras.map((d, i) => [d.deviceId, name(d, i)] as const)}
        />
      )}
      <SelectField
        label="Microphone"
        value={devices.microphones.some((d) => d.deviceId === audio) ? audio : noMicrophone}
        onValue={(microphone) => choose({ microphone })}
        hint={
          choice.source === 'screen'
            ? 'Without a microphone, the audio of the screen is sent if you shared it.'
            : undefined
        }
        options={[...devices.microphones.map((d, i) => [d.deviceId, name(d, i)] as const), [noMicrophone, 'none']]}
      />
      {broadcast.phase === 'off' && !stream?.isActive && (
        <Check
          label="Record this broadcast"
          hint="It becomes an asset when it has ended."
          checked={recorded}
          onChecked={record}
        />
      )}
    </Card>
  )
}

function Figures({ stream, broadcast }: { stream: Stream; broadcast: Broadcast }) {
  const playbackId = stream.playbackId
  const viewers = useLoad(
    () => ask(api.GET('/api/data/views/now', { params: { query: { playbackId } } })),
    [playbackId],
    { every: 5 },
  )
  const now = broadcast.sending
  return (
    <Card title="The connection">
      <Facts
        of={[
          ['Viewers', plural(viewers.data?.[0]?.viewCount ?? 0, 'viewer')],
          ['Bitrate', now ? bitrate(now.bitrate) : '–'],
          ['Video', now && now.width > 0 ? `${now.width} × ${now.height}, ${Math.round(now.fps)} fps` : '–'],
          ['Round-trip time', now?.roundTrip === undefined ? '–' : `${Math.round(now.roundTrip * 1000)} ms`],
          ['Packet loss', now?.lost === undefined ? '–' : `${(now.lost * 100).toFixed(1)} %`],
        ]}
      />
      {stream.isActive && stream.isHealthy === false && (stream.issues?.length ?? 0) > 0 && (
        <ul class="warning">
          {stream.issues!.map((issue) => (
            <li key={issue}>{profileName(issue)}</li>
          ))}
        </ul>
      )}
    </Card>
  )
}
