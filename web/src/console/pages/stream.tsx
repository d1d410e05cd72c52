// A stream: its state, what to do with it, and tabs with the rest.
import { useState } from 'preact/hooks'
import { api, ask } from '../../lib/api'
import { plural } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Action, Dialog, Form } from '../../ui/form'
import { Page } from '../../ui/page'
import { Show } from '../../ui/states'
import { Ago } from '../../ui/values'
import { useGo, useQuery } from '../location'
import { StreamHealth, StreamState, type Stream } from '../stream'
import { asPatch, choicesOf, StreamFields } from '../stream_fields'
import { Clips, Events, Sessions } from './stream_history'
import { Health } from './stream_health'
import { Targets } from './stream_targets'
import { Watch } from './stream_watch'

const tabs = [
  ['watch', 'Watch and send'],
  ['health', 'Health'],
  ['targets', 'Targets'],
  ['sessions', 'Sessions and recordings'],
  ['clips', 'Clips'],
  ['events', 'Events'],
] as const

export default function StreamPage({ id }: { id: string }) {
  return <OneStream key={id} id={id} />
}

function OneStream({ id }: { id: string }) {
  const stream = useLoad((signal) => ask(api.GET('/api/stream/{id}', { params: { path: { id } }, signal })), [id], {
    follows: (event) => event.stream?.id === id,
    every: 5, // health changes without events
  })
  const [tab] = useQuery('tab', 'watch')
  const [editing, edit] = useState(false)
  const data = stream.data
  return (
    <Page
      title={data ? data.name || 'without a name' : 'Stream'}
      back={{ href: 'streams', label: 'Streams' }}
      actions={data && <Actions stream={data} reload={stream.reload} edit={() => edit(true)} />}
      calls={[
        { method: 'GET', path: `/api/stream/${id}` },
        { method: 'GET', path: `/api/stream/${id}/health` },
        { method: 'GET', path: `/api/stream/${id}/sessions?limit=25` },
        { method: 'GET', path: `/api/stream/${id}/events?limit=25` },
      ]}
    >
      <Show of={stream}>
        {(data) => (
          <>
            <State stream={data} />
            <nav class="tabs" aria-label="Parts of the stream">
              {tabs.map(([name, label]) => (
                <a
                  key={name}
                  class="tab button"
                  href={`streams/${id}${name === 'watch' ? '' : '?tab=' + name}`}
                  aria-current={tab === name ? 'page' : undefined}
                >
                  {label}
                </a>
              ))}
            </nav>
            {tab === 'watch' && <Watch stream={data} />}
            {tab === 'health' && <Health stream={data} />}
            {tab === 'targets' && <Targets stream={data} reload={stream.reload} />}
            {tab === 'sessions' && <Sessions stream={data} />}
            {tab === 'clips' && <Clips stream={data} />}
            {tab === 'events' && <Events stream={data} />}
            {editing && (
              <Edit
                stream={data}
                close={() => {
                  edit(false)
                  stream.reload()
                }}
              />
            )}
          </>
        )}
      </Show>
    </Page>
  )
}

function State({ stream }: { stream: Stream }) {
  const playbackId = stream.playbackId
  const now = useLoad(() => ask(api.GET('/api/data/views/now', { params: { query: { playbackId } } })), [playbackId], {
    every: 10,
  })
  return (
    <p class="state-line" role="status">
      <StreamState stream={stream} />
      {stream.isActive && <StreamHealth stream={stream} />}
      <span>{plural(now.data?.[0]?.viewCount ?? 0, 'viewer')} now</span>
      <span class="hint">
        {stream.record ? 'is recorded' : 'is not recorded'}
        {stream.pull && ' · is pulled from a URL'}
        {!stream.isActive && (
          <>
            {' '}
            · last seen <Ago at={stream.lastSeen} />
          </>
        )}
      </span>
    </p>
  )
}

function Actions({ stream, reload, edit }: { stream: Stream; reload: () => void; edit: () => void }) {
  const go = useGo()
  const path = { id: stream.id }
  const terminate = async () => {
    await ask(api.DELETE('/api/stream/{id}/terminate', { params: { path } }))
    reload()
  }
  const suspend = async (suspended: boolean) => {
    await ask(api.PATCH('/api/stream/{id}/suspended', { params: { path }, body: { suspended } }))
    reload()
  }
  const remove = async () => {
    await ask(api.DELETE('/api/stream/{id}', { params: { path } }))
    go('streams', true)
  }
  return (
    <>
      {!stream.suspended && (
        <a class="button" href={`streams/${stream.id}/live`}>
          Go live from here
        </a>
      )}
      <button type="button" class="quiet" onClick={edit}>
        Edit
      </button>
      {stream.isActive && (
        <Action
          class="quiet"
          act={terminate}
          done="The broadcast has ended."
          confirm="The broadcast ends and the encoder is disconnected. It may connect again."
        >
          Terminate
        </Action>
      )}
      {stream.suspended ? (
        <Action class="quiet" act={() => suspend(false)} done="The stream can be used again.">
          Resume
        </Action>
      ) : (
        <Action
          class="quiet"
          act={() => suspend(true)}
          done="The stream is suspended."
          confirm="Nobody can send to the stream or watch it until you resume it. A broadcast that runs ends now."
        >
          Suspend
        </Action>
      )}
      <Action
        class="red quiet"
        act={remove}
        done="The stream is deleted."
        confirm={`The stream “${stream.name}” is deleted and its key stops working. Recordings and clips stay.`}
      >
        Delete
      </Action>
    </>
  )
}

function Edit({ stream, close }: { stream: Stream; close: () => void }) {
  const [choices, setChoices] = useState(() => choicesOf(stream))
  const submit = async () => {
    await ask(api.PATCH('/api/stream/{id}', { params: { path: { id: stream.id } }, body: asPatch(choices, stream) }))
    close()
  }
  return (
    <Dialog title="Edit the stream" close={close} wide>
      <Form submit={submit} label="Save" cancel={close}>
        <StreamFields of={choices} onChange={setChoices} onAir={stream.isActive} />
        {stream.pull && (
          <p class="hint">
            weir pulls it from a URL, which can’t be changed. For another source, create another stream.
          </p>
        )}
        {stream.isActive && (
          <p class="hint">It is on air. Recording and renditions can be changed when the broadcast has ended.</p>
        )}
      </Form>
    </Dialog>
  )
}
