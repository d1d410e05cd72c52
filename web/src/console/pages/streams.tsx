// Streams: the list, and a new one.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { api, ask, askPage } from '../../lib/api'
import { useList } from '../../lib/load'
import { Dialog, Form } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Search } from '../../ui/search'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { toast } from '../../ui/toast'
import { Ago } from '../../ui/values'
import { useGo, useQuery } from '../location'
import {
  GoLive,
  onStreams,
  Picture,
  startPull,
  StreamHealth,
  StreamState,
  useViewers,
  Viewers,
  type Stream,
} from '../stream'
import { asNewStream, noChoices, StreamFields } from '../stream_fields'

export default function Streams() {
  const [onAir, setOnAir] = useQuery('show', 'all')
  const [search, setSearch] = useQuery('search')
  const [creating, setCreating] = useQuery('create')
  const filters = onAir === 'onair' ? JSON.stringify([{ id: 'isActive', value: true }]) : undefined
  const streams = useList<Stream>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/stream', {
          params: { query: { cursor, limit, filters, search: search || undefined, count: 'true' } },
          signal,
        }),
      ),
    [filters, search],
    { follows: onStreams, every: 15 },
  )
  const create = (
    <button type="button" onClick={() => setCreating('1')}>
      Create a stream
    </button>
  )
  return (
    <Page
      title="Streams"
      actions={
        <>
          {create}
          <GoLive class="quiet" />
        </>
      }
      calls={[
        {
          method: 'GET',
          path:
            '/api/stream?limit=25' +
            (search && '&search=' + encodeURIComponent(search)) +
            (filters ? '&filters=' + encodeURIComponent(filters) : ''),
        },
      ]}
    >
      <Card>
        <div class="filters">
          <div class="tabs" role="group" aria-label="Which streams">
            <button type="button" class="tab" aria-pressed={onAir !== 'onair'} onClick={() => setOnAir('all')}>
              All
            </button>
            <button type="button" class="tab" aria-pressed={onAir === 'onair'} onClick={() => setOnAir('onair')}>
              On air
            </button>
          </div>
          <Search value={search} onValue={setSearch} label="Search streams" />
        </div>
        <ShowList of={streams} empty={<NoStreams onAir={onAir === 'onair'} search={search} create={create} />}>
          {(items) => <StreamTable streams={items} />}
        </ShowList>
      </Card>
      {creating && <NewStream close={() => setCreating('')} />}
    </Page>
  )
}

function NoStreams({ onAir, search, create }: { onAir: boolean; search: string; create: ComponentChildren }) {
  if (search) {
    return (
      <Empty title="Nothing found">
        <p>{`No stream ${onAir ? 'on air ' : ''}has “${search}” in its name or id.`}</p>
      </Empty>
    )
  }
  if (onAir) {
    return (
      <Empty title="Nothing is on air">
        <p>Streams appear here as soon as an encoder sends to them.</p>
        <GoLive />
      </Empty>
    )
  }
  return (
    <Empty title="No streams yet">
      <p>
        A stream has a key for the encoder and an address for the viewers. Make one for each show or camera; it can be
        used again and again.
      </p>
      <div class="actions centered">
        {create}
        <GoLive class="quiet" />
      </div>
    </Empty>
  )
}

function StreamTable({ streams }: { streams: Stream[] }) {
  const viewers = useViewers()
  return (
    <Table
      items={streams}
      columns={[
        {
          label: 'Name',
          bare: true,
          cell: (stream) => (
            <a class="with-picture" href={'streams/' + stream.id}>
              <Picture stream={stream} />
              <span>{stream.name || 'without a name'}</span>
            </a>
          ),
        },
        { label: 'State', cell: (stream) => <StreamState stream={stream} /> },
        { label: 'Viewers', number: true, cell: (stream) => <Viewers of={viewers.get(stream.playbackId)} /> },
        { label: 'Health', cell: (stream) => <StreamHealth stream={stream} /> },
        { label: 'Last seen', cell: (stream) => (stream.isActive ? 'now' : <Ago at={stream.lastSeen} />) },
      ]}
    />
  )
}

function NewStream({ close }: { close: () => void }) {
  const go = useGo()
  const [choices, setChoices] = useState(noChoices)
  const submit = async () => {
    const stream = await ask(api.POST('/api/stream', { body: asNewStream(choices) }))
    go('streams/' + stream.id)
    if (choices.pull) startPull(stream.id).catch((e: Error) => toast(`The source does not play: ${e.message}`, 'bad')) // its page shows the rest
  }
  return (
    <Dialog title="Create a stream" close={close} wide>
      <Form submit={submit} label="Create the stream" cancel={close}>
        <StreamFields of={choices} onChange={setChoices} isNew />
      </Form>
    </Dialog>
  )
}
