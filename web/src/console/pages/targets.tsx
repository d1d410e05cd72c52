// Multistream targets: other platforms that streams are sent on to.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useList } from '../../lib/load'
import { Action, Check, Dialog, Form } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge } from '../../ui/values'
import { noTarget, TargetFields, targetURL } from '../target_fields'

type Target = Schemas['TargetInList']

export default function Targets() {
  const targets = useList<Target>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/multistream/target', {
          params: { query: { cursor, limit, order: 'createdAt-true', count: 'true' } },
          signal,
        }),
      ),
    [],
    { every: 15 },
  )
  const [creating, create] = useState(false)
  const [editing, edit] = useState<Target>()
  const add = (
    <button type="button" onClick={() => create(true)}>
      New target
    </button>
  )
  return (
    <Page title="Targets" actions={add} calls={[{ method: 'GET', path: '/api/multistream/target?limit=25' }]}>
      <p class="lead">
        A target is another platform, such as YouTube or Twitch. weir sends a stream on to its targets while it is on
        air. Which stream goes where is chosen on the page of the stream.
      </p>
      <Card>
        <ShowList
          of={targets}
          empty={
            <Empty title="No targets yet">
              <p>
                Make one with the server address and the stream key that the platform shows you, then add it to a
                stream.
              </p>
              {add}
            </Empty>
          }
        >
          {(items) => <TargetTable targets={items} edit={edit} reload={targets.reload} />}
        </ShowList>
      </Card>
      {creating && (
        <NewTarget
          close={() => {
            create(false)
            targets.reload()
          }}
        />
      )}
      {editing && (
        <EditTarget
          target={editing}
          close={() => {
            edit(undefined)
            targets.reload()
          }}
        />
      )}
    </Page>
  )
}

function TargetTable({
  targets,
  edit,
  reload,
}: {
  targets: Target[]
  edit: (target: Target) => void
  reload: () => void
}) {
  const remove = async (id: string) => {
    await ask(api.DELETE('/api/multistream/target/{id}', { params: { path: { id } } }))
    reload()
  }
  return (
    <Table
      items={targets}
      columns={[
        { label: 'Name', cell: (target) => target.name },
        {
          label: 'State',
          cell: (target) =>
            target.disabled ? <Badge tone="warn">disabled</Badge> : <Badge tone="good">enabled</Badge>,
        },
        {
          label: 'Address',
          cell: () => (
            <span class="hint" title="It has the key of the platform in it, so weir does not show it.">
              hidden
            </span>
          ),
        },
        { label: 'Created', cell: (target) => <Ago at={target.createdAt} /> },
      ]}
      actions={(target) => (
        <>
          <button type="button" class="small quiet" onClick={() => edit(target)} aria-label={`Edit ${target.name}`}>
            Edit
          </button>
          <Action
            class="small red quiet"
            label={`Delete ${target.name}`}
            act={() => remove(target.id)}
            done="The target is deleted."
            confirm={`No stream is sent to “${target.name}” any more, also not those on air.`}
          >
            Delete
          </Action>
        </>
      )}
    />
  )
}

function NewTarget({ close }: { close: () => void }) {
  const [target, setTarget] = useState(noTarget)
  const submit = async () => {
    await ask(
      api.POST('/api/multistream/target', {
        body: { ...(target.name && { name: target.name }), url: targetURL(target) },
      }),
    )
    close()
  }
  return (
    <Dialog title="New target" close={close}>
      <Form submit={submit} label="Create the target" cancel={close}>
        <TargetFields of={target} onChange={setTarget} />
      </Form>
    </Dialog>
  )
}

function EditTarget({ target, close }: { target: Target; close: () => void }) {
  const [choices, setChoices] = useState({ ...noTarget, name: target.name })
  const [disabled, setDisabled] = useState(target.disabled)
  const submit = async () => {
    const url = targetURL(choices)
    await ask(
      api.PATCH('/api/multistream/target/{id}', {
        params: { path: { id: target.id } },
        body: { name: choices.name, disabled, ...(url && { url }) },
      }),
    )
    close()
  }
  return (
    <Dialog title="Edit the target" close={close}>
      <Form submit={submit} label="Save" cancel={close}>
        <TargetFields of={choices} onChange={setChoices} known />
        <Check
          label="Disabled"
          hint="No stream is sent to it while this is on."
          checked={disabled}
          onChecked={setDisabled}
        />
      </Form>
    </Dialog>
  )
}
