// API keys: the list, a new one (shown once), and revoking one.
import { useState } from 'preact/hooks'
import { api, ask, askPage, root, type Schemas } from '../../lib/api'
import { useList } from '../../lib/load'
import { Code } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Action, Dialog, Form, SelectField, TextField } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Ago, Badge } from '../../ui/values'

type Key = Schemas['ApiTokenInList']

export default function Keys() {
  const keys = useList<Key>((cursor, limit, signal) => askPage(api.GET('/api/api-token', { params: { query: { cursor, limit, order: 'createdAt-true' } }, signal })), [])
  const [making, make] = useState(false)
  return (
    <Page
      title="Keys"
      actions={
        <button type="button" onClick={() => make(true)}>
          New key
        </button>
      }
      calls={[{ method: 'GET', path: '/api/api-token?limit=25' }]}
    >
      <p class="lead">A key lets a program use the API. weir stores only a hash of it: a key is shown once, when it is made.</p>
      <Card>
        <ShowList
          of={keys}
          empty={
            <Empty title="No keys yet">
              <p>Make one for each program that uses the API, so that you can revoke it alone.</p>
              <button type="button" onClick={() => make(true)}>
                New key
              </button>
            </Empty>
          }
        >
          {(items) => <KeyTable keys={items} reload={keys.reload} />}
        </ShowList>
      </Card>
      {making && (
        <NewKey
          close={() => {
            make(false)
            keys.reload()
          }}
        />
      )}
    </Page>
  )
}

function KeyTable({ keys, reload }: { keys: Key[]; reload: () => void }) {
  const revoke = async (id: string) => {
    await ask(api.DELETE('/api/api-token/{id}', { params: { path: { id } } }))
    reload()
  }
  return (
    <table>
      <thead>
        <tr>
          <th>Name</th>
          <th>Access</th>
          <th>Created</th>
          <th>Last used</th>
          <th>
            <span class="hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id}>
            <td data-label="Name">{key.name || 'without a name'}</td>
            <td data-label="Access">
              <Badge tone="soft">{mayDo(key)}</Badge>
            </td>
            <td data-label="Created">
              <Ago at={key.createdAt} />
            </td>
            <td data-label="Last used">
              <Ago at={key.lastSeen} />
            </td>
            <td class="end">
              <Action class="small red quiet" act={() => revoke(key.id)} done="The key is revoked." confirm={`Programs that use the key “${key.name}” stop working at once.`}>
                Revoke
              </Action>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function mayDo({ access }: Key): string {
  if (access?.rules) return 'some calls'
  if (access?.cors) return access.cors.fullAccess ? 'everything, from web pages' : 'web pages'
  return 'everything'
}

type Kind = 'server' | 'page'

function NewKey({ close }: { close: () => void }) {
  const [name, setName] = useState('')
  const [kind, setKind] = useState<Kind>('server')
  const [origins, setOrigins] = useState('')
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
  const allowedOrigins = origins.split(/[\s,]+/).filter(Boolean)
  const submit = async () => {
    const access = kind === 'page' ? { cors: { allowedOrigins } } : undefined
    setMade(await ask(api.POST('/api/api-token', { body: { name, access } })))
  }
  return (
    <Dialog title="New key" close={close}>
      <Form submit={submit} label="Make the key" cancel={close}>
        <TextField label="Name" value={name} onValue={setName} required autoFocus hint="What uses it, for example: web shop" />
        <SelectField
          label="Used from"
          value={kind}
          onValue={setKind}
          options={[
            ['server', 'my servers: it may do everything'],
            ['page', 'web pages: only calls that are safe there'],
          ]}
        />
        {kind === 'page' && (
          <TextField label="Origins of the pages" value={origins} onValue={setOrigins} required placeholder="https://shop.example.com" hint="Separated by spaces; * is any." />
        )}
      </Form>
    </Dialog>
  )
}
