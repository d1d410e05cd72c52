// Tasks: what weir works on, and what came of it.
import type { ComponentChildren } from 'preact'
import { api, askPage } from '../../lib/api'
import { useList } from '../../lib/load'
import { Card, Page } from '../../ui/page'
import { Choice } from '../../ui/search'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago } from '../../ui/values'
import { useFilters } from '../location'
import { phases, type Task, TaskActions, TaskState, typeOf, types } from './task_parts'

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
                { label: 'From and to', cell: (task) => <Ends task={task} /> },
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

// Ends are what a task reads and what it makes.
function Ends({ task }: { task: Task }) {
  const transcode = task.params['transcode-file']
  const made = task.output?.upload?.assetSpec ?? task.output?.clip?.assetSpec
  const from: ComponentChildren = task.inputAssetId ? (
    <a href={'assets/' + task.inputAssetId}>asset</a>
  ) : (
    short(transcode?.input?.url ?? task.params.upload?.url)
  )
  const to: ComponentChildren = task.outputAssetId ? (
    <a href={'assets/' + task.outputAssetId}>{made?.name || 'asset'}</a>
  ) : (
    short(transcode?.storage?.url)
  )
  return (
    <span class="ends">
      {from ?? 'upload'} → {to ?? '–'}
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
