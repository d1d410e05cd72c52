// Access: who may watch. Signing keys, tokens of viewers, and what is not public.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { plural } from '../../lib/format'
import { pemOf } from '../../lib/jwt'
import { useList } from '../../lib/load'
import { Code } from '../../ui/code'
import { Action, Dialog, Form, TextField } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, Show, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge } from '../../ui/values'
import { useQuery } from '../location'
import { TokenMaker, type Pair } from './access_token'

type Key = Schemas['SigningKeyInList']

export default function Access() {
  const [making, setMaking] = useQuery('create')
  const [pair, setPair] = useState<Pair>() // the key that was just made; it stays in this page
  const keys = useList<Key>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/access-control/signing-key', { params: { query: { cursor, limit } }, signal })),
    [],
    { every: 15 },
  )
  const make = (
    <button type="button" onClick={() => setMaking('1')}>
      New signing key
    </button>
  )
  return (
    <Page
      title="Access"
      actions={make}
      calls={[
        { method: 'GET', path: '/api/access-control/signing-key' },
        { method: 'POST', path: '/api/access-control/signing-key', body: { name: 'my site' } },
      ]}
    >
      <Policies />
      <Card title="Signing keys">
        <p>
          Your server signs a token for each viewer with the private key. weir has the public key only, and checks the
          tokens with it.
        </p>
        <ShowList
          of={keys}
          empty={
            <Empty title="No signing keys yet">
              <p>Make one, keep its private key on your server, and give streams or assets the policy “jwt”.</p>
              {make}
            </Empty>
          }
        >
          {(items) => <KeyTable keys={items} reload={keys.reload} />}
        </ShowList>
      </Card>
      <TokenMaker keys={keys.data ?? []} pair={pair} />
      <Gated />
      {making && (
        <NewKey
          made={setPair}
          close={() => {
            setMaking('')
            keys.reload()
          }}
        />
      )}
    </Page>
  )
}

const Policies = () => (
  <Card title="Who may watch">
    <dl class="facts">
      <div>
        <dt>public</dt>
        <dd>Everybody who has the address. Streams and assets without a policy are public.</dd>
      </div>
      <div>
        <dt>jwt</dt>
        <dd>
          Viewers with a token that one of your keys signed. Your server makes the token when the viewer opens your
          page.
        </dd>
      </div>
      <div>
        <dt>webhook</dt>
        <dd>
          Viewers whom your program lets in: weir asks one of your <a href="webhooks">webhooks</a> each time.
        </dd>
      </div>
    </dl>
    <p class="hint">
      Choose the policy on the page of a stream or an asset, or when you make one.{' '}
      <a href="docs/protect">How to protect playback</a>
    </p>
  </Card>
)

function KeyTable({ keys, reload }: { keys: Key[]; reload: () => void }) {
  const [renaming, rename] = useState<Key>()
  const patch = async (id: string, body: Schemas['SigningKeyPatch']) => {
    await ask(api.PATCH('/api/access-control/signing-key/{id}', { params: { path: { id } }, body }))
    reload()
  }
  const remove = async (id: string) => {
    await ask(api.DELETE('/api/access-control/signing-key/{id}', { params: { path: { id } } }))
    reload()
  }
  return (
    <>
      <Table
        items={keys}
        columns={[
          { label: 'Name', cell: (key) => key.name },
          {
            label: 'State',
            cell: (key) => (key.disabled ? <Badge tone="warn">off</Badge> : <Badge tone="good">on</Badge>),
          },
          { label: 'Created', cell: (key) => <Ago at={key.createdAt} /> },
          { label: 'Last used', cell: (key) => <Ago at={key.lastSeen} /> },
        ]}
        actions={(key) => (
          <>
            <button type="button" class="small quiet" onClick={() => rename(key)} aria-label={`Rename ${key.name}`}>
              Rename
            </button>
            <Action
              class="small quiet"
              act={() => patch(key.id, { disabled: !key.disabled })}
              done={key.disabled ? 'The key is on.' : 'The key is off.'}
              confirm={
                key.disabled
                  ? undefined
                  : `Viewers with tokens of the key “${key.name}” can’t watch until you turn it on again.`
              }
              label={`${key.disabled ? 'Turn on' : 'Turn off'} ${key.name}`}
            >
              {key.disabled ? 'Turn on' : 'Turn off'}
            </Action>
            <Action
              class="small red quiet"
              act={() => remove(key.id)}
              done="The key is deleted."
              confirm={`Tokens of the key “${key.name}” become invalid.`}
              label={`Delete ${key.name}`}
            >
              Delete
            </Action>
          </>
        )}
      />
      {renaming && (
        <Rename of={renaming} save={(name) => patch(renaming.id, { name })} close={() => rename(undefined)} />
      )}
    </>
  )
}

function Rename({ of, save, close }: { of: Key; save: (name: string) => Promise<void>; close: () => void }) {
  const [name, setName] = useState(of.name)
  const submit = async () => {
    await save(name)
    close()
  }
  return (
    <Dialog title="Rename the key" close={close}>
      <Form submit={submit} label="Save" cancel={close}>
        <TextField label="Name" value={name} onValue={setName} required autoFocus />
      </Form>
    </Dialog>
  )
}

function NewKey({ made, close }: { made: (pair: Pair) => void; close: () => void }) {
  const [name, setName] = useState('')
  const [pair, setPair] = useState<Pair>()
  const submit = async () => {
    const next = await ask(api.POST('/api/access-control/signing-key', { body: name ? { name } : {} }))
    setPair(next)
    made(next)
  }
  if (pair) {
    const pem = pemOf(pair.privateKey)
    return (
      <Dialog title="Your new signing key" close={close} wide>
        <p class="warning">Keep the private key now: weir does not have it and can’t show it again.</p>
        <Code label="Private key" text={pem} />
        <Code label="Public key, for the claim “pub”" text={pair.publicKey} />
        <div class="actions">
          <a
            class="button"
            href={URL.createObjectURL(new Blob([pem], { type: 'application/x-pem-file' }))}
            download={`${pair.name.replace(/\W+/g, '-')}.pem`}
          >
            Download the private key
          </a>
          <button type="button" class="quiet" onClick={close}>
            Done
          </button>
        </div>
      </Dialog>
    )
  }
  return (
    <Dialog title="New signing key" close={close}>
      <Form submit={submit} label="Make the key" cancel={close}>
        <TextField
          label="Name"
          value={name}
          onValue={setName}
          autoFocus
          hint="Where it is used, for example: my site"
        />
      </Form>
    </Dialog>
  )
}

const lately = 100

type Gated = { id: string; name: string; href: string; kind: string; policy: string }
type MaybeGated = { id: string; name?: string; playbackPolicy?: Schemas['PlaybackPolicy'] }

const gated = (kind: string, folder: string, all: MaybeGated[]): Gated[] =>
  all.flatMap(({ id, name, playbackPolicy: policy }) =>
    policy && policy.type !== 'public'
      ? [{ id, name: name || 'without a name', href: `${folder}/${id}`, kind, policy: policy.type }]
      : [],
  )

// Gated lists what is not public among the latest streams and assets: the API has no filter for it.
function Gated() {
  const streams = useList<MaybeGated>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/stream', { params: { query: { cursor, limit, order: 'createdAt-true' } }, signal })),
    [],
    { size: lately, every: 15 },
  )
  const assets = useList<MaybeGated>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/asset', { params: { query: { cursor, limit, order: 'createdAt-true' } }, signal })),
    [],
    {
      size: lately,
      follows: (e) => e.event.startsWith('asset.'),
      every: 15,
    },
  )
  const reload = () => {
    streams.reload()
    assets.reload()
  }
  const more = () => {
    streams.more?.()
    assets.more?.()
  }
  const data = streams.data &&
    assets.data && [...gated('stream', 'streams', streams.data), ...gated('asset', 'assets', assets.data)]
  const looked = `the latest ${plural(streams.data?.length ?? 0, 'stream')} and ${plural(assets.data?.length ?? 0, 'asset')}`
  return (
    <Card title="Not public">
      <Show of={{ data, error: streams.error ?? assets.error, loading: streams.loading || assets.loading, reload }}>
        {(items) => (
          <>
            {items.length === 0 ? (
              <Empty title="Nothing found">
                <p>{`None of ${looked} has a policy.`}</p>
              </Empty>
            ) : (
              <Table
                items={items}
                columns={[
                  { label: 'Name', cell: (item) => <a href={item.href}>{item.name}</a> },
                  { label: 'What', cell: (item) => item.kind },
                  { label: 'Policy', cell: (item) => <Badge tone="soft">{item.policy}</Badge> },
                ]}
              />
            )}
            <p class="more">
              {(streams.more || assets.more) && (
                <button type="button" class="quiet" onClick={more}>
                  Look at more
                </button>
              )}
              {items.length > 0 && <span class="hint">{`Of ${looked}.`}</span>}
            </p>
          </>
        )}
      </Show>
    </Card>
  )
}
