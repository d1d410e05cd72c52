// What came of a stream: sessions, recordings, clips and events.
import { api, askPage, type Schemas } from '../../lib/api'
import type { WeirEvent } from '../../lib/events'
import { bytes, duration, exact, utc } from '../../lib/format'
import { useList } from '../../lib/load'
import { Card } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Badge, Moment, type Tone } from '../../ui/values'
import { useQuery } from '../location'
import { concerns, isPublic, type Stream } from '../stream'
import { ClipTable } from './asset_parts'

type Session = Schemas['Session']
type Asset = Schemas['Asset']

export function Sessions({ stream }: { stream: Stream }) {
  const id = stream.id
  const [show, setShow] = useQuery('show', 'all')
  const record = show === 'recorded' ? 'true' : undefined
  const sessions = useList<Session>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/stream/{id}/sessions', {
          params: { path: { id }, query: { cursor, limit, record, count: 'true' } },
          signal,
        }),
      ),
    [id, record],
    { follows: (event) => event.stream?.id === id, every: 15 },
  )
  return (
    <Card>
      <div class="tabs" role="group" aria-label="Which sessions">
        <button type="button" class="tab" aria-pressed={!record} onClick={() => setShow('all')}>
          All sessions
        </button>
        <button type="button" class="tab" aria-pressed={Boolean(record)} onClick={() => setShow('recorded')}>
          Recorded
        </button>
      </div>
      <ShowList
        of={sessions}
        empty={
          <Empty title={record ? 'No recordings' : 'It was never on air'}>
            <p>
              {record
                ? 'Turn on Record with the button Edit: every broadcast then becomes an asset.'
                : 'Each broadcast is a session: from the first frame of the encoder until it stays disconnected.'}
            </p>
          </Empty>
        }
      >
        {(items) => (
          <Table
            items={items}
            columns={[
              { label: 'Started', cell: (session) => <Moment at={session.createdAt} /> },
              { label: 'Duration', number: true, cell: (session) => duration(session.sourceSegmentsDuration) },
              { label: 'Received', number: true, cell: (session) => bytes(session.sourceBytes) },
              { label: 'Recording', cell: (session) => <Recording session={session} download={isPublic(stream)} /> },
            ]}
          />
        )}
      </ShowList>
    </Card>
  )
}

const recordingStates: Record<string, [Tone, string]> = {
  waiting: ['soft', 'in progress'],
  ready: ['good', 'ready'],
  failed: ['bad', 'failed'],
  none: ['soft', 'none'],
}

function Recording({ session, download }: { session: Session; download: boolean }) {
  const [tone, word] = recordingStates[session.recordingStatus ?? ''] ?? ['soft', 'not recorded']
  const there = session.recordingStatus === 'ready' || session.recordingStatus === 'failed'
  return (
    <span class="actions">
      <Badge tone={tone}>{word}</Badge>
      {there && session.assetId && <a href={'assets/' + session.assetId}>Open the asset</a>}
      {download && session.mp4Url && <a href={session.mp4Url}>MP4</a>}
    </span>
  )
}

export function Clips({ stream }: { stream: Stream }) {
  const id = stream.id
  const clips = useList<Asset>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/stream/{id}/clips', {
          params: { path: { id }, query: { cursor, limit, count: 'true', order: 'createdAt-true' } },
          signal,
        }),
      ),
    [id],
    { follows: (event) => concerns(event, stream) || event.event.startsWith('asset.'), every: 15 },
  )
  return (
    <Card>
      <ShowList
        of={clips}
        empty={
          <Empty title="No clips yet">
            <p>
              While the stream is on air, make a clip below the player. Recordings can be clipped on the page of their
              asset.
            </p>
          </Empty>
        }
      >
        {(items) => <ClipTable clips={items} />}
      </ShowList>
    </Card>
  )
}

const words: Partial<Record<WeirEvent['event'], string>> = {
  'stream.started': 'The encoder started to send.',
  'stream.idle': 'The encoder stopped.',
  'recording.started': 'The recording started.',
  'recording.waiting': 'The session has ended; its recording is being made.',
  'recording.ready': 'The recording can be watched.',
  'multistream.connected': 'A target receives the stream.',
  'multistream.error': 'A target can’t be reached.',
  'multistream.disconnected': 'A target no longer receives the stream.',
}

// Events are those that the service has kept, and those that come.
export function Events({ stream }: { stream: Stream }) {
  const events = useList<WeirEvent>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/stream/{id}/events', { params: { path: { id: stream.id }, query: { cursor, limit } }, signal }),
      ),
    [stream.id],
    { follows: (event) => event.stream?.id === stream.id },
  )
  return (
    <Card>
      <ShowList
        of={events}
        empty={
          <Empty title="Nothing has happened yet">
            <p>
              What happens to this stream appears here, and is kept for a while. To be told of it, make a{' '}
              <a href="webhooks">webhook</a>.
            </p>
          </Empty>
        }
      >
        {(items) => (
          <ol class="events" aria-label="Events" aria-live="polite">
            {items.map((event) => (
              <li key={event.id}>
                <details>
                  <summary>
                    <time dateTime={new Date(event.createdAt).toISOString()} title={utc(event.createdAt)}>
                      {exact(event.createdAt)}
                    </time>
                    <code>{event.event}</code>
                    <span>{words[event.event]}</span>
                  </summary>
                  <pre tabIndex={0} role="group" aria-label={event.event}>
                    {JSON.stringify(event.payload, null, 2)}
                  </pre>
                </details>
              </li>
            ))}
          </ol>
        )}
      </ShowList>
    </Card>
  )
}
