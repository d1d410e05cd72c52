// The overview: what is on air, what is being worked on, what is wrong, and the first steps.
import type { ComponentChildren } from 'preact'
import { api, ask, askPage, root, type Schemas } from '../../lib/api'
import { ago, bytes, count, plural, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Card, Page } from '../../ui/page'
import { Empty, Loading, Show } from '../../ui/states'
import { Progress } from '../../ui/values'
import { GoLive, onStreams, Picture, StreamHealth, useViewers, type Stream } from '../stream'

type Task = Schemas['TaskInList']
type Quota = Schemas['UserQuota']

const shown = 6

export default function Overview() {
  const quota = useLoad(() => ask(api.GET('/api/user/quota')), [], {
    follows: (event) => event.event.startsWith('asset.'),
    every: 30,
  })
  const filters = JSON.stringify([{ id: 'isActive', value: true }])
  const onAir = useLoad(
    (signal) =>
      askPage(api.GET('/api/stream', { params: { query: { filters, limit: shown, count: 'true' } }, signal })),
    [],
    { follows: onStreams, every: 15 },
  )
  const tasks = useLoad((signal) => ask(api.GET('/api/task', { params: { query: { limit: 50 } }, signal })), [], {
    follows: (event) => event.event.startsWith('task.'),
    every: 15,
  })
  const working = (tasks.data ?? []).filter((task) => ['pending', 'waiting', 'running'].includes(task.status.phase))
  const fresh = quota.data !== undefined && quota.data.streams.used === 0 && quota.data.assets.used === 0
  return (
    <Page
      title="Overview"
      calls={[
        { method: 'GET', path: `/api/stream?limit=${shown}&filters=${encodeURIComponent(filters)}` },
        { method: 'GET', path: '/api/task?limit=50' },
        { method: 'GET', path: '/api/data/views/now' },
        { method: 'GET', path: '/api/user/quota' },
      ]}
    >
      {fresh && <FirstSteps />}
      <Numbers
        quota={quota.data}
        onAir={onAir.data && (onAir.data.total ?? onAir.data.items.length)}
        working={tasks.data && working.length}
      />
      <Wrong quota={quota.data} tasks={tasks.data} />
      {!fresh && (
        <Card title="On air" actions={<a href="streams">All streams</a>}>
          <Show of={onAir}>{(page) => <OnAir streams={page.items} total={page.total ?? page.items.length} />}</Show>
        </Card>
      )}
      {!fresh && (
        <Card title="In progress" actions={<a href="tasks">All tasks</a>}>
          <Show of={tasks}>{() => <Working tasks={working} />}</Show>
        </Card>
      )}
    </Page>
  )
}

function FirstSteps() {
  return (
    <section aria-label="First steps">
      <p class="lead">Welcome to weir. Three ways to begin; each takes a minute.</p>
      <div class="tiles steps">
        <Card title="Go live">
          <p>Send your camera or your screen from this browser. Viewers watch it at an address that you get.</p>
          <GoLive />
        </Card>
        <Card title="Upload a video">
          <p>Drop a video file on the page of assets. It can be watched within moments, in several resolutions.</p>
          <a class="button" href="assets">
            Upload a video
          </a>
        </Card>
        <Card title="Connect your code">
          <p>
            Whatever you see here, a program can do. Make a <a href="keys">key</a> and try it:
          </p>
          <Code
            text={`curl -H "Authorization: Bearer $WEIR_API_KEY" \\\n  ${root}/api/stream`}
            label="List the streams"
          />
          <a class="button quiet" href="keys">
            Make a key
          </a>
        </Card>
      </div>
    </section>
  )
}

function Numbers({ quota, onAir, working }: { quota?: Quota; onAir?: number; working?: number }) {
  const now = useLoad(() => ask(api.GET('/api/data/views/now')), [], { every: 10 })
  const storage = quota?.storage
  return (
    <dl class="tiles numbers">
      <Figure name="Viewers now">{now.data && count(now.data[0]?.viewCount ?? 0)}</Figure>
      <Figure name="Streams on air">{onAir !== undefined && count(onAir)}</Figure>
      <Figure name="Tasks in progress">{working !== undefined && count(working)}</Figure>
      <Figure name="Storage">
        {storage && (
          <>
            {bytes(storage.used)}
            {storage.limit !== undefined && <span class="hint"> of {bytes(storage.limit)}</span>}
          </>
        )}
      </Figure>
    </dl>
  )
}

const Figure = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div class="card">
    <dt class="hint">{name}</dt>
    <dd>{children || '…'}</dd>
  </div>
)

function OnAir({ streams, total }: { streams: Stream[]; total: number }) {
  const viewers = useViewers()
  if (streams.length === 0) {
    return (
      <Empty title="Nothing is on air">
        <p>Streams appear here as soon as an encoder sends to them.</p>
        <GoLive class="quiet" />
      </Empty>
    )
  }
  return (
    <>
      <ul class="tiles on-air">
        {streams.map((stream) => (
          <li key={stream.id}>
            <a href={'streams/' + stream.id}>
              <Picture stream={stream} />
              <span>{stream.name || 'without a name'}</span>
            </a>
            <p class="state-line">
              <span class="hint">{plural(viewers.get(stream.playbackId) ?? 0, 'viewer')}</span>
              <StreamHealth stream={stream} />
            </p>
          </li>
        ))}
      </ul>
      {total > streams.length && (
        <p>
          <a href="streams?show=onair">Show all {count(total)} on air</a>
        </p>
      )}
    </>
  )
}

const kinds: Record<Task['type'], string> = {
  upload: 'Preparing an asset',
  export: 'Exporting an asset',
  'export-data': 'Exporting data',
  'transcode-file': 'Transcoding a file',
  clip: 'Cutting a clip',
}

function Working({ tasks }: { tasks: Task[] }) {
  if (tasks.length === 0) return <p class="hint">Nothing at the moment.</p>
  return (
    <ul class="rows">
      {tasks.slice(0, shown).map((task) => (
        <li key={task.id}>
          <a href={'tasks/' + task.id}>{kinds[task.type]}</a>
          <span class="hint">{task.status.phase === 'running' ? task.status.step : 'waits for its turn'}</span>
          <span class="grow" />
          {task.status.eta !== undefined && <span class="hint">done {ago(task.status.eta)}</span>}
          {task.status.phase === 'running' && (
            <Progress value={task.status.progress ?? 0} label={`Progress: ${kinds[task.type]}`} />
          )}
        </li>
      ))}
      {tasks.length > shown && <li class="hint">and {plural(tasks.length - shown, 'more task')}</li>}
    </ul>
  )
}

const day = 24 * 3600 * 1000
const nearlyFull = 0.9

// Wrong lists what needs a person, each with what to do about it.
function Wrong({ quota, tasks }: { quota?: Quota; tasks?: Task[] }) {
  const filters = JSON.stringify([
    { id: 'isActive', value: true },
    { id: 'isHealthy', value: false },
  ])
  const streams = useLoad(
    (signal) => ask(api.GET('/api/stream', { params: { query: { filters, limit: shown } }, signal })),
    [],
    { follows: onStreams, every: 10 },
  )
  const webhooks = useLoad(
    (signal) => ask(api.GET('/api/webhook', { params: { query: { limit: 100 } }, signal })),
    [],
    { every: 30 },
  )
  if (!quota || !tasks || !(streams.data || streams.error) || !(webhooks.data || webhooks.error))
    return <Loading what="Looking for problems" />
  const failed = tasks.filter((task) => task.status.phase === 'failed' && task.status.updatedAt > Date.now() - day)
  const paused = (webhooks.data ?? []).filter((webhook) => webhook.status?.paused)
  const full = (Object.entries(quota) as [keyof Quota, Quota[keyof Quota]][]).filter(
    ([, { used, limit }]) => limit !== undefined && limit > 0 && used >= limit * nearlyFull,
  )
  const rows: [string, string, string, ComponentChildren][] = [
    ...(streams.data ?? []).map((s): [string, string, string, ComponentChildren] => [
      's' + s.id,
      `streams/${s.id}?tab=health`,
      s.name || 'A stream',
      profileName(s.issues?.[0] ?? 'is not healthy'),
    ]),
    ...failed
      .slice(0, shown)
      .map((t): [string, string, string, ComponentChildren] => [
        't' + t.id,
        `tasks/${t.id}`,
        `${kinds[t.type]} failed`,
        t.status.errorMessage ?? 'Open it to see why',
      ]),
    ...paused.map((w): [string, string, string, ComponentChildren] => [
      'w' + w.id,
      `webhooks/${w.id}`,
      `The webhook ${w.name} is paused`,
      `${w.status!.paused!.reason}. Repair the receiver, then save the webhook.`,
    ]),
    ...full.map(([name, { used, limit }]): [string, string, string, ComponentChildren] => [
      'q' + name,
      'usage',
      `The quota of ${quotaNames[name]} is nearly used up`,
      name === 'storage'
        ? `${bytes(used)} of ${bytes(limit!)}. Delete assets, or ask the administrator for more.`
        : `${count(used)} of ${count(limit!)}. Delete some, or ask the administrator for more.`,
    ]),
  ]
  if (rows.length === 0) return null
  return (
    <section class="card warning-card" aria-label="Needs attention">
      <div class="head">
        <h2>Needs attention</h2>
      </div>
      <ul class="rows">
        {rows.map(([key, href, title, detail]) => (
          <li key={key}>
            <a href={href}>{title}</a>
            <span>{detail}</span>
          </li>
        ))}
      </ul>
    </section>
  )
}

const quotaNames: Record<keyof Quota, string> = {
  storage: 'storage',
  streams: 'streams',
  assets: 'assets',
  webhooks: 'webhooks',
  targets: 'targets',
  objectStores: 'object stores',
  projects: 'projects',
  keys: 'keys',
}
