// API keys: the list, a new one (shown once), changing one and revoking one.
import { useState } from 'preact/hooks'
import { api, ask, askPage, project, root, type Schemas } from '../../lib/api'
import { useList, useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Action, Dialog, Form } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge } from '../../ui/values'
import { useQuery } from '../location'
import { accessOf, choicesOf, KeyFields, mayDo, noChoices } from './key_fields'

type Key = Schemas['ApiTokenInList']

export default function Keys() {
  const keys = useList<Key>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/api-token', {
          params: { query: { cursor, limit, order: 'createdAt-true', count: 'true' } },
          signal,
        }),
      ),
    [],
    { every: 15 },
  )
  const [making, make] = useQuery('create')
  const [changing, change] = useState<Key>()
  const create = (
    <button type="button" onClick={() => make('1')}>
      New key
    </button>
  )
  return (
    <Page title="Keys" actions={create} calls={[{ method: 'GET', path: '/api/api-token?limit=25', login: true }]}>
      <p class="lead">
        A key lets a program use the API. weir stores only a hash of it: a key is shown once, when it is made.
      </p>
      <Card>
        <ShowList
          of={keys}
          empty={
            <Empty title="No keys yet">
              <p>Make one for each program that uses the API, so that you can revoke it alone.</p>
              {create}
            </Empty>
          }
        >
          {(items) => <KeyTable keys={items} reload={keys.reload} change={change} />}
        </ShowList>
      </Card>
      {making && (
        <NewKey
          close={() => {
            make('')
            keys.reload()
          }}
        />
      )}
      {changing && (
        <ChangeKey
          of={changing}
          close={() => {
            change(undefined)
            keys.reload()
          }}
        />
      )}
    </Page>
  )
}

function KeyTable({ keys, reload, change }: { keys: Key[]; reload: () => void; change: (key: Key) => void }) {
  const projects = useLoad((signal) => ask(api.GET('/api/project', { signal })), [])
  const several = (projects.data?.length ?? 0) > 1
  const nameOf = (id: string) => projects.data?.find((p) => p.id === id)?.name || 'default'
  const revoke = async (id: string) => {
    await ask(api.DELETE('/api/api-token/{id}', { params: { path: { id } } }))
    reload()
  }
  return (
    <Table
      items={keys}
      columns={[
        { label: 'Name', cell: (key) => key.name || 'without a name' },
        ...(several ? [{ label: 'Project', cell: (key: Key) => nameOf(key.projectId) }] : []),
        { label: 'Access', cell: (key) => <Badge tone="soft">{mayDo(key)}</Badge> },
        { label: 'Created', cell: (key) => <Ago at={key.createdAt} /> },
        { label: 'Last used', cell: (key) => <Ago at={key.lastSeen} /> },
      ]}
      actions={(key) => (
        <>
          <button type="button" class="small quiet" onClick={() => change(key)} aria-label={`Change ${key.name}`}>
            Change
          </button>
          <Action
            class="small red quiet"
            act={() => revoke(key.id)}
            done="The key is revoked."
            confirm={`Programs that use the key “${key.name}” stop working at once.`}
            label={`Revoke ${key.name}`}
          >
            Revoke
          </Action>
        </>
      )}
    />
  )
}

function NewKey({ close }: { close: () => void }) {
  const [choices, setChoices] = useState(noChoices)
  const [made, setMade] = useState<Schemas['ApiTokenWithKey']>()
  if (made) {
    return (
      <Dialog title="Your new key" close={close} wide>
        <p class="warning">Copy it now: it is not shown again.</p>
        <p>
          <Copyable text={made.key} />
        </p>
        <Code label="Try it" text={`curl -H 'Authorization: Bearer ${made.key}' ${root}/api/stream`} />
        <div class="actions">
          <button type="button" onClick={close}>
            Done
          </button>
        </div>
      </Dialog>
    )
  }
  const submit = async () => {
    const access = accessOf(choices)
    setMade(await ask(api.POST('/api/api-token', { body: { name: choices.name, ...(access && { access }) } })))
  }
  return (
    <Dialog title="New key" close={close}>
      <Form submit={submit} label="Make the key" cancel={close}>
        {project.get() && <p class="hint">The key is for the project that is chosen in the menu.</p>}
        <KeyFields of={choices} change={setChoices} />
      </Form>
    </Dialog>
  )
}

function ChangeKey({ of, close }: { of: Key; close: () => void }) {
  const [choices, setChoices] = useState(choicesOf(of))
  const submit = async () => {
    await ask(
      api.PATCH('/api/api-token/{id}', {
        params: { path: { id: of.id } },
        body: { name: choices.name, access: accessOf(choices) ?? null },
      }),
    )
    close()
  }
  return (
    <Dialog title="Change the key" close={close}>
      <Form submit={submit} label="Save" cancel={close}>
        <p class="hint">The key itself stays the same. A new restriction counts at once.</p>
        <KeyFields of={choices} change={setChoices} />
      </Form>
    </Dialog>
  )
}
