// Object stores: buckets of the caller's, in which assets and recordings can be kept.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useList } from '../../lib/load'
import { Action, Check, Dialog, Form, SelectField, TextField } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { toast } from '../../ui/toast'
import { Ago, Badge } from '../../ui/values'

type Store = Schemas['ObjectStoreInList']

export default function Stores() {
  const stores = useList<Store>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/object-store', { params: { query: { cursor, limit, order: 'createdAt-true' } }, signal })),
    [],
  )
  const [editing, edit] = useState<Store | 'new'>()
  return (
    <Page
      title="Object stores"
      actions={
        <button type="button" onClick={() => edit('new')}>
          New object store
        </button>
      }
      calls={[{ method: 'GET', path: '/api/object-store?limit=25' }]}
    >
      <p class="lead">
        An object store is a bucket of yours. Choose it when you upload an asset, or for the recordings of a stream, and
        what viewers play is kept there too.
      </p>
      <Card>
        <ShowList
          of={stores}
          empty={
            <Empty title="No object stores yet">
              <p>
                Add a bucket of any S3-compatible service. To write renditions of one file into a bucket, you need none:{' '}
                <a href="tasks/new">transcode to a bucket</a>.
              </p>
              <button type="button" onClick={() => edit('new')}>
                New object store
              </button>
            </Empty>
          }
        >
          {(items) => (
            <Table
              items={items}
              columns={[
                { label: 'Name', cell: (store) => store.name || store.id },
                { label: 'Public address', cell: (store) => store.publicUrl || '–' },
                {
                  label: 'State',
                  cell: ({ disabled }) => (
                    <Badge tone={disabled ? 'soft' : 'good'}>{disabled ? 'disabled' : 'in use'}</Badge>
                  ),
                },
                { label: 'Created', cell: (store) => <Ago at={store.createdAt} /> },
              ]}
              actions={(store) => <StoreActions store={store} edit={() => edit(store)} reload={stores.reload} />}
            />
          )}
        </ShowList>
      </Card>
      {editing && (
        <EditStore
          store={editing === 'new' ? undefined : editing}
          close={() => {
            edit(undefined)
            stores.reload()
          }}
        />
      )}
    </Page>
  )
}

function StoreActions({ store, edit, reload }: { store: Store; edit: () => void; reload: () => void }) {
  const name = store.name || store.id
  const path = { id: store.id }
  const setDisabled = async (disabled: boolean) => {
    await ask(api.PATCH('/api/object-store/{id}', { params: { path }, body: { disabled } }))
    reload()
  }
  const remove = async () => {
    await ask(api.DELETE('/api/object-store/{id}', { params: { path } }))
    reload()
  }
  return (
    <>
      <button type="button" class="small quiet" aria-label={`Edit ${name}`} onClick={edit}>
        Edit
      </button>
      <Action
        class="small quiet"
        label={`${store.disabled ? 'Enable' : 'Disable'} ${name}`}
        act={() => setDisabled(!store.disabled)}
        done={store.disabled ? 'The object store can be used.' : 'Nothing new is kept there.'}
      >
        {store.disabled ? 'Enable' : 'Disable'}
      </Action>
      <Action
        class="small red quiet"
        label={`Delete ${name}`}
        act={remove}
        done="The object store is deleted."
        confirm={`weir forgets “${name}” and its credentials. The bucket and what is in it stay.`}
      >
        Delete
      </Action>
    </>
  )
}

type Kind = 'aws' | 'other'

// EditStore makes an object store or changes one. The API gets one URL with the credentials, and
// never shows it again.
function EditStore({ store, close }: { store?: Store; close: () => void }) {
  const [name, setName] = useState(store?.name ?? '')
  const [publicUrl, setPublicUrl] = useState(store?.publicUrl ?? '')
  const [renew, setRenew] = useState(!store)
  const [kind, setKind] = useState<Kind>('other')
  const [endpoint, setEndpoint] = useState('')
  const [region, setRegion] = useState('')
  const [bucket, setBucket] = useState('')
  const [key, setKey] = useState('')
  const [secret, setSecret] = useState('')
  const urlOf = () => {
    const [scheme, host] =
      kind === 'aws'
        ? ['s3', region]
        : ['s3+' + (endpoint.split('://')[0] ?? 'https'), (endpoint.split('://')[1] ?? '').replace(/\/+$/, '')]
    return `${scheme}://${encodeURIComponent(key)}:${encodeURIComponent(secret)}@${host}/${bucket}`
  }
  const submit = async () => {
    if (store) {
      const body = { name, publicUrl, ...(renew ? { url: urlOf() } : {}) }
      await ask(api.PATCH('/api/object-store/{id}', { params: { path: { id: store.id } }, body }))
    } else {
      await ask(api.POST('/api/object-store', { body: { name, url: urlOf(), ...(publicUrl ? { publicUrl } : {}) } }))
      toast('The object store is added.')
    }
    close()
  }
  return (
    <Dialog title={store ? 'Edit the object store' : 'New object store'} close={close}>
      <Form submit={submit} label={store ? 'Save' : 'Add the object store'} cancel={close}>
        <TextField label="Name" value={name} onValue={setName} required autoFocus />
        {store && (
          <Check
            label="Change the bucket or the credentials"
            hint="They are not shown, so all of them are needed again."
            checked={renew}
            onChecked={setRenew}
          />
        )}
        {renew && (
          <>
            <SelectField
              label="Service"
              value={kind}
              onValue={setKind}
              options={[
                ['other', 'S3-compatible, by its endpoint'],
                ['aws', 'Amazon S3, by its region'],
              ]}
            />
            {kind === 'aws' ? (
              <TextField label="Region" value={region} onValue={setRegion} required placeholder="eu-west-1" />
            ) : (
              <TextField
                label="Endpoint"
                type="url"
                value={endpoint}
                onValue={setEndpoint}
                required
                placeholder="https://s3.example.com"
                pattern="https?://.+"
              />
            )}
            <TextField
              label="Bucket"
              value={bucket}
              onValue={setBucket}
              required
              hint="With a folder, if you like: bucket/folder"
            />
            <TextField label="Access key" value={key} onValue={setKey} required autoComplete="off" />
            <TextField
              label="Secret key"
              type="password"
              value={secret}
              onValue={setSecret}
              required
              autoComplete="new-password"
              hint="Stored encrypted, and never shown again."
            />
          </>
        )}
        <TextField
          label="Public address"
          type="url"
          value={publicUrl}
          onValue={setPublicUrl}
          placeholder="https://cdn.example.com/videos"
          hint="Where viewers can read the bucket. Without one, weir plays its own copy."
        />
      </Form>
    </Dialog>
  )
}
