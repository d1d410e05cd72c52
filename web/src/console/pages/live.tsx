// Go live from the browser: choose camera or screen, look at the preview, send.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, ask, root } from '../../lib/api'
import { bitrate, plural, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { hasSound, insecure, noMicrophone } from '../../lib/media'
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
import type { Stream } from '../stream'
import { Screen } from './stream_watch'

export default function LivePage({ id }: { id: string }) {
  const stream = useLoad((signal) => ask(api.GET('/api/stream/{id}', { params: { path: { id } }, signal })), [id], {
    follows: (event) => event.stream?.id === id,
    every: 5,
  })
  return (
    <Page
      title="Go live from this browser"
      back={{ href: 'streams/' + id, label: stream.data?.name || 'Stream' }}
      calls={[{ method: 'GET', path: `/api/stream/${id}` }]}
    >
      <Show of={stream}>
        {(data) =>
          insecure() ? (
            <Insecure id={id} />
          ) : data.suspended ? (
            <Suspended id={id} />
          ) : (
            <Studio key={id} stream={data} reload={stream.reload} />
          )
        }
      </Show>
    </Page>
  )
}

const Insecure = ({ id }: { id: string }) => (
  <Card>
    <Empty title="Browsers need HTTPS for this">
      <p>
        A browser gives camera, microphone and screen only to pages that came over HTTPS or from localhost. Open the
        console at an https address, or send with OBS or ffmpeg.
      </p>
      <a class="button" href={'streams/' + id}>
        Send with OBS or ffmpeg
      </a>
    </Empty>
  </Card>
)

const Suspended = ({ id }: { id: string }) => (
  <Card>
    <Empty title="The stream is suspended">
      <p>Nobody can send to it until it is resumed.</p>
      <a class="button" href={'streams/' + id}>
        To the stream
      </a>
    </Empty>
  </Card>
)

function Studio({ stream, reload }: { stream: Stream; reload: () => void }) {
  const media = useMedia()
  const broadcast = useBroadcast(stream, `${root}/webrtc/${stream.streamKey}`, media.stream)
  const sends = broadcast.phase !== 'off'
  const [watching, watch] = useState(false)
  const [stopped, stop] = useState(false) // what the server still has on air is ours
  useEffect(() => {
    if (sends || !stream.isActive) stop(false)
  }, [sends, stream.isActive])
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
          <State phase={broadcast.phase} onAir={stream.isActive} />
          <Controls
            stream={stream}
            media={media}
            broadcast={broadcast}
            taken={!sends && stream.isActive && !stopped}
            stop={() => {
              stop(true)
              void broadcast.stop()
            }}
          />
        </Card>
        {sends && stream.isActive && (
          <Card title="What viewers see" actions={<Toggle on={watching} set={watch} />}>
            {watching ? (
              <Screen stream={stream} />
            ) : (
              <p class="hint">It is shown about a second later than the preview.</p>
            )}
          </Card>
        )}
      </div>
      <div>
        <Choices stream={stream} media={media} broadcast={broadcast} reload={reload} />
        {sends && <Figures stream={stream} broadcast={broadcast} />}
      </div>
    </div>
  )
}

const Toggle = ({ on, set }: { on: boolean; set: (on: boolean) => void }) => (
  <button type="button" class="small quiet" onClick={() => set(!on)}>
    {on ? 'Hide the player' : 'Show the player'}
  </button>
)

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
  stream: Stream
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
      <a href={`play/${stream.playbackId}`} target="_blank" rel="noopener">
        Open the watch page
      </a>
      {taken && <span class="hint">An encoder sends to this stream now. If you start, you take over.</span>}
    </div>
  )
}

function Choices({
  stream,
  media,
  broadcast,
  reload,
}: {
  stream: Stream
  media: Media
  broadcast: Broadcast
  reload: () => void
}) {
  const { choice, devices, choose } = media
  const name = (device: MediaDeviceInfo, i: number) => device.label || `number ${i + 1}`
  const inUse = (kind: 'video' | 'audio') =>
    media.stream
      ?.getTracks()
      .find((track) => track.kind === kind)
      ?.getSettings().deviceId ?? ''
  const audio = choice.microphone || inUse('audio')
  const record = async (record: boolean) => {
    try {
      await ask(api.PATCH('/api/stream/{id}/record', { params: { path: { id: stream.id } }, body: { record } }))
    } catch (e) {
      toast((e as Error).message, 'bad')
    }
    reload()
  }
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
      {broadcast.phase === 'off' && !stream.isActive && (
        <Check
          label="Record this broadcast"
          hint="It becomes an asset when it has ended."
          checked={stream.record}
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
