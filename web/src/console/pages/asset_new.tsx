// A new asset: from files of this computer, or from a URL that weir fetches.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useLoad } from '../../lib/load'
import { choiceOf, policyOf } from '../../lib/policy'
import { add, type UploadOptions } from '../../lib/uploads'
import { AsCode } from '../../ui/code'
import { Check, Dialog, Field, Form, SelectField, TextField } from '../../ui/form'
import { useGo } from '../location'
import { PolicyField } from '../policy'

type From = 'files' | 'url'

export function NewAsset({ from, close }: { from: From; close: () => void }) {
  const go = useGo()
  const [source, setSource] = useState<From>(from)
  const [files, setFiles] = useState<File[]>([])
  const [url, setURL] = useState('')
  const [name, setName] = useState('')
  const [options, setOptions] = useState<UploadOptions>({})
  const named = name || nameOf(url)
  const submit = async () => {
    if (source === 'files') {
      add(files, options)
      close()
      return
    }
    const { asset } = await ask(api.POST('/api/asset/upload/url', { body: { ...options, url, name: named } }))
    close()
    go('assets/' + asset.id)
  }
  return (
    <Dialog title={source === 'files' ? 'Upload files' : 'Import from a URL'} close={close}>
      <div class="tabs" role="group" aria-label="Source">
        {(['files', 'url'] as const).map((kind) => (
          <button key={kind} type="button" class="tab" aria-pressed={kind === source} onClick={() => setSource(kind)}>
            {kind === 'files' ? 'From this computer' : 'From a URL'}
          </button>
        ))}
      </div>
      <Form
        submit={submit}
        label={source === 'files' ? 'Start the upload' : 'Import'}
        cancel={close}
        disabled={source === 'files' && files.length === 0}
      >
        {source === 'files' ? (
          <Field
            label="Files"
            hint="Video or audio, several at once. An upload continues by itself after the network was cut."
          >
            {(id, hintID) => (
              <input
                id={id}
                aria-describedby={hintID}
                type="file"
                multiple
                accept="video/*,audio/*,.mkv,.ts,.mxf,.flv"
                onChange={(e) => setFiles([...(e.currentTarget.files ?? [])])}
              />
            )}
          </Field>
        ) : (
          <>
            <TextField
              label="URL of the file"
              type="url"
              value={url}
              onValue={setURL}
              required
              autoFocus
              placeholder="https://example.com/film.mp4"
              hint="http, https, ipfs or ar. weir fetches it once."
            />
            <TextField label="Name" value={name} onValue={setName} placeholder={nameOf(url)} />
          </>
        )}
        <Options value={options} onValue={setOptions} />
      </Form>
      <AsCode
        calls={[
          source === 'files'
            ? {
                method: 'POST',
                path: '/api/asset/request-upload',
                body: { name: files[0]?.name ?? 'film.mp4', ...options },
              }
            : {
                method: 'POST',
                path: '/api/asset/upload/url',
                body: { name: named || 'film', url: url || 'https://example.com/film.mp4', ...options },
              },
        ]}
      />
    </Dialog>
  )
}

const nameOf = (url: string) => {
  try {
    return decodeURIComponent(new URL(url).pathname.split('/').pop() ?? '')
  } catch {
    return ''
  }
}

// Options are those that can't be changed later, or that few people need.
function Options({ value, onValue }: { value: UploadOptions; onValue: (value: UploadOptions) => void }) {
  const stores = useLoad(
    (signal) =>
      askPage(
        api.GET('/api/object-store', {
          params: { query: { limit: 100, filters: '[{"id":"disabled","value":false}]' } },
          signal,
        }),
      ),
    [],
  )
  // change sets a member, or leaves it out where it has no value, so that the code shows what counts.
  const change = (patch: Partial<UploadOptions>) =>
    onValue(
      Object.fromEntries(
        Object.entries({ ...value, ...patch }).filter(([, v]) => v !== undefined && v !== '' && v !== false),
      ) as UploadOptions,
    )
  const creator = typeof value.creatorId === 'string' ? value.creatorId : ''
  return (
    <>
      <PolicyField
        label="Who may play it"
        value={choiceOf(value.playbackPolicy)}
        onValue={(choice) =>
          change({
            playbackPolicy: policyOf(choice),
            objectStoreId: choice === 'public' ? value.objectStoreId : undefined,
          })
        }
        everybody="everybody with the link"
        hint="What is public stays public."
      />
      <details class="options">
        <summary>More options</summary>
        <Check
          label="Sign it"
          hint="Adds C2PA manifests, which show where it came from. Only when an asset is made."
          checked={value.c2pa === true}
          onChecked={(on) => change({ c2pa: on })}
        />
        <Check
          label="Store a copy on IPFS"
          checked={value.storage !== undefined}
          onChecked={(on) => change({ storage: on ? { ipfs: true } : undefined })}
        />
        <Check
          label="MP4 files whatever the length"
          hint="Otherwise only short videos have them."
          checked={value.staticMp4 === true}
          onChecked={(on) => change({ staticMp4: on })}
        />
        <TextField
          label="Creator"
          value={creator}
          onValue={(id) => change({ creatorId: id || undefined })}
          maxLength={512}
          hint="Your own id of the person it is made for."
        />
        {stores.data && stores.data.items.length > 0 && !value.playbackPolicy && (
          <SelectField
            label="Kept in"
            value={value.objectStoreId ?? ''}
            onValue={(id) => change({ objectStoreId: id || undefined })}
            options={[
              ['', 'the storage of this server'],
              ...stores.data.items.map(
                (s: Schemas['ObjectStoreInList']) => [s.id, s.name || s.publicUrl || s.id] as const,
              ),
            ]}
          />
        )}
      </details>
    </>
  )
}
