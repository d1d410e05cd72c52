// Tasks: what weir works on, and what came of it.
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useList, useLoad } from '../../lib/load'
import { originOf } from '../../lib/origin'
import { Card, Page } from '../../ui/page'
import { Choice } from '../../ui/search'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago } from '../../ui/values'
import { useFilters } from '../location'
import { phases, type Task, TaskActions, TaskState, typeOf, types } from './task_parts'

type Named = Pick<Schemas['Asset'], 'name' | 'source'>

const named = 200 // of the latest assets: most tasks in sight are about one of them

const all: readonly [string, string] = ['', 'all states']

export default function Tasks() {
  const [{ phase = '', type = '' }, setQuery] = useFilters()
  const filters = [...(phase ? [{ id: 'phase', value: phase }] : []), ...(type ? [{ id: 'type', value: type }] : [])]
  const query = { order: 'createdAt-true', ...(filters.length > 0 ? { filters: JSON.stringify(filters) } : {}) }
  const tasks = useList<Task>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/task', { params: { query: { ...query, count: '1', cursor, limit } }, signal })),
    [phase, type],
    {
      follows: (e) => e.event.startsWith('task.'),
    },
  )
  const assets = useLoad(
    async (signal) => {
      const query = { limit: named, order: 'createdAt-true' }
      const latest: (Named & { id: string })[] = await ask(api.GET('/api/asset', { params: { query }, signal }))
      return new Map(latest.map((asset) => [asset.id, asset]))
    },
    [],
    { follows: (e) => e.event === 'asset.created' },
  )
  return (
    <Page
      title="Tasks"
      actions={
        <a class="button" href="tasks/new">
          Transcode to a bucket
        </a>
      }
      calls={[{ method: 'GET', path: '/api/task?' + new URLSearchParams({ limit: '25', ...query }) }]}
    >
      <div class="filters">
        <Choice
          label="State"
          value={phase}
          onValue={(value) => setQuery({ phase: value })}
          options={[all, ...Object.entries(phases).map(([id, [, text]]) => [id, text] as const)]}
        />
        <Choice
          label="Type"
          value={type}
          onValue={(value) => setQuery({ type: value })}
          options={[['', 'all types'], ...Object.entries(types)]}
        />
      </div>
      <Card>
        <ShowList
          of={tasks}
          empty={
            phase || type ? (
              <Empty title="Nothing matches">
                <button type="button" class="quiet" onClick={() => setQuery({ phase: '', type: '' })}>
                  Show all tasks
                </button>
              </Empty>
            ) : (
              <Empty title="No tasks yet">
                <p>
                  A task is work on a file. <a href="assets">Upload a video</a>, or write renditions of one straight
                  into your own bucket.
                </p>
                <a class="button" href="tasks/new">
                  Transcode to a bucket
                </a>
              </Empty>
            )
          }
        >
          {(items) => (
            <Table
              items={items}
              columns={[
                { label: 'Task', nowrap: true, cell: (task) => <a href={'tasks/' + task.id}>{typeOf(task)}</a> },
                { label: 'From and to', cell: (task) => <Ends task={task} assets={assets.data} /> },
                { label: 'State', cell: (task) => <TaskState task={task} /> },
                { label: 'Created', nowrap: true, cell: (task) => <Ago at={task.createdAt} /> },
              ]}
              actions={(task) => <TaskActions task={task} small changed={tasks.reload} />}
            />
          )}
        </ShowList>
      </Card>
    </Page>
  )
}

// Ends are what a task reads and what it makes. The task itself has the name of its asset only when it
// is completed.
function Ends({ task, assets }: { task: Task; assets?: Map<string, Named> }) {
  const made = task.outputAssetId ? assets?.get(task.outputAssetId) : undefined
  const origin = originOf(task, made?.source)
  const asset = (id: string, name?: string) => <a href={'assets/' + id}>{name || 'asset'}</a>
  return (
    <span class="ends">
      {origin.what === 'asset'
        ? asset(origin.id, assets?.get(origin.id)?.name)
        : origin.what === 'url'
          ? short(origin.url)
          : origin.what}{' '}
      →{' '}
      {task.outputAssetId
        ? asset(task.outputAssetId, made?.name ?? (task.output?.upload ?? task.output?.clip)?.assetSpec?.name)
        : (short(task.params['transcode-file']?.storage?.url) ?? '–')}
    </span>
  )
}

// short leaves out what a reader of a list does not need of a URL.
function short(url?: string) {
  if (!url) return undefined
  if (url.startsWith('w3s:')) return 'a space on IPFS'
  const text = url.replace(/^(s3\+)?https?:\/\//, '').replace(/^[^@/]*@/, '')
  return <span title={url}>{text.length > 44 ? text.slice(0, 20) + '…' + text.slice(-22) : text}</span>
}
