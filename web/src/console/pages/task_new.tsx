// A transcode into a bucket of the caller's, as a form and as code.
import { useEffect, useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useLoad } from '../../lib/load'
import { AsCode } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Check, Form, SelectField, TextField } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { useFilters, useGo } from '../location'
import { isPrivate } from './asset_parts'

type NewTranscode = Schemas['NewTranscode']
type Profile = Schemas['NewFileProfile']

const formats = [
  ['hls', 'HLS', 'Playlists and segments: plays everywhere.'],
  ['mp4', 'MP4', 'One file for each rendition, to download.'],
  ['fmp4', 'Fragmented MP4', 'One file for each track, with HLS playlists and a DASH manifest.'],
] as const

type Format = (typeof formats)[number][0]

interface Row {
  height: string
  bitrate: string
  fps: string
}

// secrets are what the code names in the place of what was typed.
const secrets = { key: '$S3_KEY', secret: '$S3_SECRET', proof: '$UCAN_PROOF' }
const variables = Object.values(secrets).map((name) => name.slice(1))

export default function NewTask() {
  const go = useGo()
  const [query] = useFilters()
  const [source, setSource] = useState<'url' | 'asset'>(query.asset ? 'asset' : 'url')
  const [url, setURL] = useState('')
  const [assetURL, setAssetURL] = useState('')
  const [kind, setKind] = useState<'s3' | 'object-store' | 'web3.storage'>('s3')
  const [objectStoreId, setObjectStoreId] = useState('')
  const [endpoint, setEndpoint] = useState('')
  const [bucket, setBucket] = useState('')
  const [key, setKey] = useState('')
  const [secret, setSecret] = useState('')
  const [proof, setProof] = useState('')
  const [paths, setPaths] = useState<Partial<Record<Format, string>>>({ hls: '/hls' })
  const [rows, setRows] = useState<Row[]>()
  const [sign, setSign] = useState(false)

  const transcode = (creds: { key: string; secret: string; proof: string }): NewTranscode => ({
    input: { url: source === 'url' ? url : assetURL },
    storage:
      kind === 's3'
        ? { type: 's3', endpoint, bucket, credentials: { accessKeyId: creds.key, secretAccessKey: creds.secret } }
        : kind === 'object-store'
          ? { type: 'object-store', objectStoreId }
          : { type: 'web3.storage', credentials: { proof: creds.proof } },
    outputs: Object.fromEntries(
      formats.filter(([id]) => paths[id] !== undefined).map(([id]) => [id, { path: paths[id] }]),
    ),
    ...(rows ? { profiles: rows.map(profileOf) } : {}),
    ...(sign ? { c2pa: true } : {}),
  })
  const submit = async () => {
    const task = await ask(api.POST('/api/transcode', { body: transcode({ key, secret, proof }) }))
    go('tasks/' + task.id)
  }
  return (
    <Page title="Transcode to a bucket" back={{ href: 'tasks', label: 'Tasks' }}>
      <p class="lead">
        weir reads a video once and writes its renditions into storage of yours. Nothing of it stays here.
      </p>
      <div class="columns">
        <Card>
          <Form submit={submit} label="Start the task">
            <h2 class="section">Input</h2>
            <SelectField
              label="Read from"
              value={source}
              onValue={setSource}
              options={[
                ['url', 'a URL'],
                ['asset', 'an asset'],
              ]}
            />
            {source === 'url' ? (
              <TextField
                label="URL of the video"
                type="url"
                value={url}
                onValue={setURL}
                required
                placeholder="https://example.com/film.mp4"
                hint="http, https, ipfs or ar."
              />
            ) : (
              <AssetField chosen={query.asset ?? ''} onURL={setAssetURL} />
            )}
            <h2 class="section">Storage</h2>
            <SelectField
              label="Write to"
              value={kind}
              onValue={setKind}
              options={[
                ['s3', 'a bucket (S3 or compatible)'],
                ['object-store', 'a saved object store'],
                ['web3.storage', 'a space on IPFS'],
              ]}
            />
            {kind === 's3' ? (
              <>
                <div class="fields">
                  <TextField
                    label="Endpoint"
                    type="url"
                    value={endpoint}
                    onValue={setEndpoint}
                    required
                    placeholder="https://s3.eu-west-1.amazonaws.com"
                  />
                  <TextField label="Bucket" value={bucket} onValue={setBucket} required />
                </div>
                <div class="fields">
                  <TextField label="Access key" value={key} onValue={setKey} required autoComplete="off" />
                  <TextField
                    label="Secret key"
                    type="password"
                    value={secret}
                    onValue={setSecret}
                    required
                    autoComplete="new-password"
                  />
                </div>
                <p class="hint">Kept encrypted until the task has ended, and never shown.</p>
              </>
            ) : kind === 'object-store' ? (
              <StoreField value={objectStoreId} onValue={setObjectStoreId} />
            ) : (
              <SpaceField proof={proof} onProof={setProof} />
            )}
            <h2 class="section">Outputs</h2>
            {formats.map(([id, name, hint]) => (
              <Output
                key={id}
                name={name}
                hint={hint}
                path={paths[id]}
                onPath={(path) => setPaths({ ...paths, [id]: path })}
                folder={'/' + id}
              />
            ))}
            <h2 class="section">Renditions</h2>
            <Profiles rows={rows} onRows={setRows} />
            <Check
              label="Sign the outputs"
              hint="Adds C2PA manifests. HLS has CMAF segments then."
              checked={sign}
              onChecked={setSign}
            />
          </Form>
        </Card>
        <Card title="The same as code" class="sticky">
          <p class="hint">
            It follows the form. Set the variables with a $ in your shell: what you typed as secrets is not shown.
          </p>
          <AsCode
            open
            title="Request"
            calls={[{ method: 'POST', path: '/api/transcode', body: transcode(secrets), secrets: variables }]}
          />
        </Card>
      </div>
    </Page>
  )
}

const number = (text: string) => (text.trim() === '' ? undefined : Number(text))

function profileOf(row: Row): Profile {
  const [height, kbits, fps] = [number(row.height), number(row.bitrate), number(row.fps)]
  return {
    ...(height === undefined ? {} : { name: `${height}p`, height }),
    ...(fps === undefined ? {} : { fps }),
    ...(kbits === undefined ? {} : { bitrate: Math.round(kbits * 1000) }),
  }
}

function Output({
  name,
  hint,
  path,
  onPath,
  folder,
}: {
  name: string
  hint: string
  path?: string
  onPath: (path?: string) => void
  folder: string
}) {
  return (
    <>
      <Check
        label={name}
        hint={hint}
        checked={path !== undefined}
        onChecked={(on) => onPath(on ? folder : undefined)}
      />
      {path !== undefined && (
        <TextField label={`Folder for ${name}`} value={path} onValue={onPath} placeholder={folder} />
      )}
    </>
  )
}

// Profiles edits renditions. The height of one is enough. A single one may have the size of the
// source, and needs a bitrate then.
function Profiles({ rows, onRows }: { rows?: Row[]; onRows: (rows?: Row[]) => void }) {
  const change = (i: number, patch: Partial<Row>) =>
    onRows(rows?.map((row, n) => (n === i ? { ...row, ...patch } : row)))
  return (
    <>
      <SelectField
        label="Which"
        value={rows ? 'own' : 'default'}
        onValue={(value) => onRows(value === 'own' ? [{ height: '720', bitrate: '', fps: '' }] : undefined)}
        options={[
          ['default', 'a ladder that fits the source'],
          ['own', 'my own'],
        ]}
      />
      {rows?.map((row, i) => (
        <fieldset key={i} class="fields profile">
          <legend class="hidden">Rendition {i + 1}</legend>
          <TextField
            label="Height"
            type="number"
            min={128}
            max={16384}
            value={row.height}
            onValue={(height) => change(i, { height })}
            required={rows.length > 1 || row.bitrate === ''}
            hint={rows.length > 1 ? undefined : 'Empty: as the source, with a bitrate.'}
          />
          <TextField
            label="Bitrate"
            type="number"
            min={1}
            value={row.bitrate}
            onValue={(bitrate) => change(i, { bitrate })}
            hint="kbit/s. Empty: usual for the height."
          />
          <TextField
            label="Frame rate"
            type="number"
            min={0}
            value={row.fps}
            onValue={(fps) => change(i, { fps })}
            hint="fps. Empty: as the source."
          />
          {rows.length > 1 && (
            <button
              type="button"
              class="small quiet"
              aria-label={`Remove rendition ${i + 1}`}
              onClick={() => onRows(rows.filter((_, n) => n !== i))}
            >
              Remove
            </button>
          )}
        </fieldset>
      ))}
      {rows && rows.length < 32 && (
        <p>
          <button
            type="button"
            class="small quiet"
            onClick={() => onRows([...rows, { height: '360', bitrate: '', fps: '' }])}
          >
            Add a rendition
          </button>
        </p>
      )}
    </>
  )
}

// AssetField chooses an asset by its name.
function AssetField({ chosen, onURL }: { chosen: string; onURL: (url: string) => void }) {
  const [search, setSearch] = useState('')
  const [id, setID] = useState(chosen)
  const found = useLoad(
    (signal) =>
      askPage(
        api.GET('/api/asset', {
          params: { query: { phase: 'ready', limit: 20, search: search || undefined } },
          signal,
        }),
      ),
    [search],
  )
  const first = useLoad(
    (signal) =>
      chosen
        ? ask(api.GET('/api/asset/{id}', { params: { path: { id: chosen } }, signal }))
        : Promise.resolve(undefined),
    [chosen],
  )
  const all = [...(first.data ? [first.data] : []), ...(found.data?.items ?? []).filter((a) => a.id !== chosen)].filter(
    (a) => a.downloadUrl && !isPrivate(a),
  )
  useEffect(() => onURL(all.find((a) => a.id === id)?.downloadUrl ?? ''), [id, found.data, first.data])
  return (
    <>
      <TextField label="Search for an asset" type="search" value={search} onValue={setSearch} />
      <SelectField
        label="Asset"
        value={id}
        onValue={setID}
        options={[['', all.length > 0 ? 'choose one' : 'none found'], ...all.map((a) => [a.id, a.name] as const)]}
        hint="Its source file is read. Private assets are left out, because their files need a token."
      />
    </>
  )
}

// StoreField chooses one of the saved buckets.
function StoreField({ value, onValue }: { value: string; onValue: (id: string) => void }) {
  const filters = '[{"id":"disabled","value":false}]'
  const stores = useLoad(
    (signal) => ask(api.GET('/api/object-store', { params: { query: { limit: 1000, filters } }, signal })),
    [],
  )
  const all: Schemas['ObjectStoreInList'][] = stores.data ?? []
  return (
    <SelectField
      label="Object store"
      value={value}
      onValue={onValue}
      required
      options={[
        ['', all.length > 0 ? 'choose one' : 'there is none'],
        ...all.map((s) => [s.id, s.name || s.publicUrl || s.id] as const),
      ]}
      hint={
        <>
          Saved on the page <a href="stores">Object stores</a>, with its credentials.
        </>
      }
    />
  )
}

// SpaceField takes the proof that this server may write to a space.
function SpaceField({ proof, onProof }: { proof: string; onProof: (proof: string) => void }) {
  const did = useLoad((signal) => ask(api.GET('/api/did', { signal })), [])
  return (
    <>
      {did.data && (
        <p>
          Delegate your space to this server: <Copyable text={did.data.did} />
        </p>
      )}
      {did.error && <p class="hint">{did.error.message}</p>}
      <TextField
        label="Proof (UCAN delegation)"
        value={proof}
        onValue={onProof}
        required
        autoComplete="off"
        hint="Base64, as your storage tool prints it. Kept encrypted, and never shown."
      />
    </>
  )
}
