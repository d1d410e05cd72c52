// The multistream targets of a stream and how each of them does.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../../lib/api'
import { bitrate, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Action, Check, Dialog, Form, SelectField } from '../../ui/form'
import { Card } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { Table } from '../../ui/table'
import { Badge, type Tone } from '../../ui/values'
import type { Stream } from '../stream'
import { noTarget, TargetFields, targetURL } from '../target_fields'

type Health = Schemas['StreamHealth']['multistream'][number]

const states: Record<Health['status'], [Tone, string]> = {
  pending: ['soft', 'is being connected'],
  connected: ['good', 'connected'],
  error: ['bad', 'failed; weir tries again'],
  disconnected: ['soft', 'disconnected'],
}

export function Targets({ stream, reload }: { stream: Stream; reload: () => void }) {
  const id = stream.id
  const [adding, add] = useState(false)
  const references = stream.multistream.targets
  const ids = references.map((t) => t.id).join()
  // The names: a stream has few targets.
  const targets = useLoad(
    (signal) =>
      Promise.all(
        references.map((t) => ask(api.GET('/api/multistream/target/{id}', { params: { path: { id: t.id } }, signal }))),
      ),
    [ids],
  )
  const from = () => String(Date.now() - 1000) // the samples are not shown here
  const health = useLoad(
    (signal) => ask(api.GET('/api/stream/{id}/health', { params: { path: { id }, query: { from: from() } }, signal })),
    [id, ids],
    {
      follows: (event) => event.stream?.id === id,
      every: 5,
    },
  )
  const remove = async (targetId: string) => {
    await ask(api.DELETE('/api/stream/{id}/multistream/{targetId}', { params: { path: { id, targetId } } }))
    reload()
  }
  const button = (
    <button type="button" onClick={() => add(true)}>
      Add a target
    </button>
  )
  return (
    <Card title="Targets" actions={references.length > 0 && button}>
      <p class="lead">While the stream is on air, weir sends it on to these platforms.</p>
      <Show
        of={targets}
        empty={
          <Empty title="The stream has no targets">
            <p>Add a target to show it on YouTube, Twitch or another server too.</p>
            {button}
          </Empty>
        }
      >
        {(list) => (
          <Table
            items={list.map((target) => ({
              ...target,
              reference: references.find((t) => t.id === target.id),
              now: health.data?.multistream.find((t) => t.id === target.id),
            }))}
            columns={[
              { label: 'Name', cell: (target) => target.name },
              {
                label: 'Receives',
                cell: ({ reference }) =>
                  reference && profileName(reference.profile) + (reference.videoOnly ? ', without audio' : ''),
              },
              {
                label: 'State',
                cell: (target) => <TargetState disabled={target.disabled} onAir={stream.isActive} now={target.now} />,
              },
              {
                label: 'Bitrate',
                number: true,
                cell: ({ now }) => (now?.status === 'connected' ? bitrate(now.bitrate) : '–'),
              },
            ]}
            actions={(target) => (
              <Action
                class="small red quiet"
                label={`Remove ${target.name}`}
                act={() => remove(target.id)}
                done="The target is removed."
                confirm={`The stream is not sent to “${target.name}” any more. The target itself stays.`}
              >
                Remove
              </Action>
            )}
          />
        )}
      </Show>
      {adding && (
        <AddTarget
          stream={stream}
          close={() => {
            add(false)
            reload()
          }}
        />
      )}
    </Card>
  )
}

function TargetState({ disabled, onAir, now }: { disabled: boolean; onAir: boolean; now?: Health }) {
  if (disabled) return <Badge tone="warn">disabled</Badge>
  if (!onAir || !now) return <span class="hint">{onAir ? 'not known yet' : 'waits for the stream'}</span>
  const [tone, word] = states[now.status]
  return (
    <>
      <Badge tone={tone}>{word}</Badge>{' '}
      {now.status === 'error' && now.lastError && <span class="hint">{now.lastError}</span>}
    </>
  )
}

const isNew = 'new'
const offered = 100 // targets in the list to choose from

function AddTarget({ stream, close }: { stream: Stream; close: () => void }) {
  const used = new Set(stream.multistream.targets.map((t) => t.id))
  const known = useLoad(
    () => ask(api.GET('/api/multistream/target', { params: { query: { limit: offered, order: 'createdAt-true' } } })),
    [],
  )
  const [id, setID] = useState(isNew)
  const [target, setTarget] = useState(noTarget)
  const [profile, setProfile] = useState('source')
  const [videoOnly, setVideoOnly] = useState(false)
  const submit = async () => {
    const which =
      id === isNew ? { spec: { url: targetURL(target), ...(target.name && { name: target.name }) } } : { id }
    await ask(
      api.POST('/api/stream/{id}/create-multistream-target', {
        params: { path: { id: stream.id } },
        body: { profile, ...which, ...(videoOnly && { videoOnly }) },
      }),
    )
    close()
  }
  const free = (known.data ?? []).filter((t) => !used.has(t.id))
  return (
    <Dialog title="Add a target" close={close}>
      <Form submit={submit} label="Add it to the stream" cancel={close}>
        {free.length > 0 && (
          <SelectField
            label="Target"
            value={id}
            onValue={setID}
            options={[[isNew, 'a new one'], ...free.map((t) => [t.id, t.name] as const)]}
          />
        )}
        {id === isNew && <TargetFields of={target} onChange={setTarget} />}
        <SelectField
          label="What it receives"
          value={profile}
          onValue={setProfile}
          options={[
            ['source', 'the source, as the encoder sends it'],
            ...stream.profiles.map((p) => [p.name, `the rendition ${profileName(p.name)}`] as const),
          ]}
        />
        <Check
          label="Without audio"
          hint="It receives silence instead of the audio."
          checked={videoOnly}
          onChecked={setVideoOnly}
        />
      </Form>
    </Dialog>
  )
}
