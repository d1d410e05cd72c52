// One task: what it was asked for, how far it is, and what came of it.
import type { ComponentChildren } from 'preact'
import { api, ask, type Schemas } from '../../lib/api'
import type { WeirEvent } from '../../lib/events'
import { bitrate, bytes, duration, local, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Card, Facts, Page } from '../../ui/page'
import { Show } from '../../ui/states'
import { Table } from '../../ui/table'
import { Moment } from '../../ui/values'
import { type Task, TaskActions, TaskState, typeOf, unfinished } from './task_parts'

export default function TaskRoute({ id }: { id: string }) {
  return <TaskPage key={id} id={id} />
}

const about = (e: WeirEvent, id: string) => (e.payload as { task?: { id: string } } | undefined)?.task?.id === id

function TaskPage({ id }: { id: string }) {
  const task = useLoad((signal) => ask(api.GET('/api/task/{id}', { params: { path: { id } }, signal })), [id], {
    follows: (e) => about(e, id),
  })
  const title = task.data ? typeOf(task.data) : 'task'
  return (
    <Page
      title={title[0]!.toUpperCase() + title.slice(1)}
      back={{ href: 'tasks', label: 'Tasks' }}
      actions={task.data && <TaskActions task={task.data} changed={task.reload} />}
      calls={[{ method: 'GET', path: `/api/task/${id}` }]}
    >
      <Show of={task}>
        {(t) => (
          <div class="columns">
            <div>
              <Card title="State">
                <TaskState task={t} />
                {t.status.warnings && t.status.warnings.length > 0 && (
                  <ul class="warning">
                    {t.status.warnings.map((w) => (
                      <li key={w}>{w}</li>
                    ))}
                  </ul>
                )}
                <Timeline task={t} />
              </Card>
              <Output task={t} />
            </div>
            <div>
              <Card title="About">
                <Facts
                  of={[
                    ['Id', <Copyable text={t.id} />],
                    ['Type', t.type],
                    ['Input', t.inputAssetId && <a href={'assets/' + t.inputAssetId}>asset</a>],
                    ['Output', t.outputAssetId && <a href={'assets/' + t.outputAssetId}>asset</a>],
                    ['Retries', t.status.retries ? String(t.status.retries) : undefined],
                  ]}
                />
              </Card>
              <Card title="What was asked for">
                <Code
                  label="Parameters, with stars for secrets"
                  text={JSON.stringify(t.params[paramOf(t)] ?? t.params, null, 2)}
                />
              </Card>
            </div>
          </div>
        )}
      </Show>
    </Page>
  )
}

const paramOf = (task: Task): keyof Schemas['TaskParams'] => (task.type === 'export-data' ? 'exportData' : task.type)

// Timeline is what the API knows of the course of a task.
function Timeline({ task: { createdAt, scheduledAt, status, ...task } }: { task: Task }) {
  const open = unfinished({ status } as Task)
  const steps: [string, ComponentChildren][] = [
    ['Created', <Moment at={createdAt} />],
    ['Queued', scheduledAt ? <Moment at={scheduledAt} /> : undefined],
    [open ? 'Last change' : status.phase[0]!.toUpperCase() + status.phase.slice(1), <Moment at={status.updatedAt} />],
    ['Took', !open ? duration((status.updatedAt - (scheduledAt ?? createdAt)) / 1000) : undefined],
    ['Expected end', open && status.eta ? local(status.eta) : undefined],
  ]
  return (
    <div class="timeline" aria-label={`Course of task ${task.id}`} role="group">
      <Facts of={steps} />
    </div>
  )
}

function Output({ task }: { task: Task }) {
  const { output } = task
  const transcode = output?.transcodeFile
  const ipfs = output?.export?.ipfs
  const made = output?.upload?.assetSpec ?? output?.clip?.assetSpec
  if (made) {
    return (
      <Card title="Result">
        <p>
          <a href={'assets/' + task.outputAssetId}>{made.name}</a>
          {made.videoSpec?.duration ? `, ${duration(made.videoSpec.duration)}` : ''}
          {made.size ? `, ${bytes(made.size)}` : ''}
        </p>
      </Card>
    )
  }
  if (ipfs) {
    return (
      <Card title="Result">
        <Facts
          of={[
            ['CID', <Copyable text={ipfs.videoFileCid} />],
            ['Gateway', ipfs.videoFileGatewayUrl && <a href={ipfs.videoFileGatewayUrl}>Open</a>],
            ['Metadata', ipfs.nftMetadataCid],
          ]}
        />
      </Card>
    )
  }
  return transcode ? <Transcoded of={transcode} /> : null
}

function Transcoded({ of }: { of: NonNullable<Schemas['TaskOutput']['transcodeFile']> }) {
  const at = (path?: string) => path && <Address base={of.baseUrl} path={path} />
  return (
    <Card title="Result">
      <Facts
        of={[
          ['Written to', <Copyable text={of.baseUrl} />],
          ['HLS', at(of.hls?.path)],
          ['Fragmented MP4, HLS', at(of.fmp4?.path)],
          ['Fragmented MP4, DASH', at(of.fmp4?.dash)],
          ['Source', `${duration(of.input_video.duration)}, ${bytes(of.input_video.size)}`],
          ['Signed', of.c2pa && of.c2pa.length > 0 ? `${of.c2pa.length} files, ${of.c2pa[0]!.alg}` : undefined],
        ]}
      />
      <h3 class="below">Renditions</h3>
      <Table
        items={of.renditions.map((r) => ({ ...r, id: r.name }))}
        columns={[
          { label: 'Name', cell: (r) => profileName(r.name) },
          { label: 'Resolution', cell: (r) => (r.width ? `${r.width} × ${r.height}` : 'audio only') },
          { label: 'Bitrate', cell: (r) => bitrate(r.bitrate) },
          { label: 'Codecs', cell: (r) => <code>{r.codec}</code> },
          { label: 'Size', cell: (r) => bytes(r.size) },
          { label: 'MP4 file', cell: (r) => at(r.mp4) ?? '–' },
        ]}
      />
    </Card>
  )
}

// Address is a path in the storage: a link where a browser can open it.
function Address({ base, path }: { base: string; path: string }) {
  const web = /^https?:/.test(base)
  return web ? (
    <a href={base + path} target="_blank" rel="noopener">
      {path}
    </a>
  ) : (
    <code>{path}</code>
  )
}
