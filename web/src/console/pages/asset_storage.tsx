// Who may play an asset, where else it is stored, and who signed it.
import { useState } from 'preact/hooks'
import { api, ask, askPage, root } from '../../lib/api'
import { bytes } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { choiceOf, policyOf, type Policy as PlaybackPolicy } from '../../lib/policy'
import { Copyable } from '../../ui/copy'
import { Action, Dialog, Form, TextField } from '../../ui/form'
import { Card, Facts } from '../../ui/page'
import { Badge, Progress } from '../../ui/values'
import { PolicyField } from '../policy'
import { type Asset, isPrivate } from './asset_parts'

export function Policy({ asset, changed }: { asset: Asset; changed: () => void }) {
  const [editing, edit] = useState(false)
  const { playbackPolicy: policy } = asset
  const origins = policy?.allowedOrigins ?? []
  return (
    <Card
      title="Who may play it"
      actions={
        asset.status.phase === 'ready' && (
          <button type="button" class="small quiet" onClick={() => edit(true)}>
            Change
          </button>
        )
      }
    >
      <p>
        {policy?.type === 'jwt' && (
          <>
            Viewers with a token (JWT) that you sign with a key of the page <a href="access">Access</a>.
          </>
        )}
        {policy?.type === 'webhook' && <>Viewers whom your webhook lets in.</>}
        {!isPrivate(asset) && <>Everybody with the link.</>}
        {origins.length > 0 && !origins.includes('*') && <> Only on pages of {origins.join(', ')}.</>}
      </p>
      {editing && <EditPolicy asset={asset} close={() => edit(false)} changed={changed} />}
    </Card>
  )
}

function EditPolicy({ asset, close, changed }: { asset: Asset; close: () => void; changed: () => void }) {
  const was = asset.playbackPolicy
  const gated = isPrivate(asset)
  const [choice, setChoice] = useState(choiceOf(was))
  const [refresh, setRefresh] = useState(was?.refreshInterval ? String(was.refreshInterval) : '')
  const [origins, setOrigins] = useState((was?.allowedOrigins ?? []).join(' '))
  const submit = async () => {
    const allowedOrigins = origins.split(/[\s,]+/).filter(Boolean)
    const { refreshInterval: _, allowedOrigins: __, ...policy } = policyOf(choice, was) ?? { type: 'public' as const }
    const playbackPolicy: PlaybackPolicy = {
      ...policy,
      ...(gated && refresh ? { refreshInterval: Number(refresh) } : {}),
      ...(allowedOrigins.length > 0 ? { allowedOrigins } : {}),
    }
    await ask(api.PATCH('/api/asset/{id}', { params: { path: { id: asset.id } }, body: { playbackPolicy } }))
    changed()
    close()
  }
  return (
    <Dialog title="Who may play it" close={close}>
      <Form submit={submit} label="Save" cancel={close}>
        {gated ? (
          <PolicyField
            label="Who may play it"
            value={choice}
            onValue={setChoice}
            hint="A private asset stays private: copies of it may be with viewers under the terms of now."
          />
        ) : (
          <p class="hint">
            A public asset stays public, because anybody may have a copy. To protect it, upload it again and choose
            tokens.
          </p>
        )}
        {gated && (
          <TextField
            label="Checked again after"
            type="number"
            min={0}
            value={refresh}
            onValue={setRefresh}
            placeholder="600"
            hint="Seconds."
          />
        )}
        <TextField
          label="Only on pages of"
          value={origins}
          onValue={setOrigins}
          placeholder="https://shop.example.com"
          hint="Origins, separated by spaces. Empty: pages of everybody."
        />
      </Form>
    </Dialog>
  )
}

export function Storage({ asset, changed }: { asset: Asset; changed: () => void }) {
  const { storage } = asset
  const status = storage?.status
  const copies = useLoad(
    (signal) =>
      storage?.ipfs
        ? askPage(api.GET('/api/ipfs/upload', { params: { query: { assetId: asset.id, limit: 10 } }, signal }))
        : Promise.resolve({ items: [], next: '' }),
    [asset.id, storage?.ipfs?.cid, status?.phase],
  )
  if (asset.status.phase !== 'ready' && !storage) return null
  const store = async () => {
    await ask(api.PATCH('/api/asset/{id}', { params: { path: { id: asset.id } }, body: { storage: { ipfs: true } } }))
    changed()
  }
  const remove = async () => {
    for (const copy of copies.data?.items ?? [])
      await ask(api.DELETE('/api/ipfs/upload/{id}', { params: { path: { id: copy.id } } }))
    changed()
  }
  const ipfs = storage?.ipfs
  const working = status?.phase === 'waiting' || status?.phase === 'processing'
  return (
    <Card
      title="Storage on IPFS"
      actions={
        <>
          {asset.status.phase === 'ready' && !ipfs?.cid && !working && (
            <Action class="small quiet" act={store} done="A copy is being stored.">
              {status?.phase === 'failed' ? 'Try again' : 'Store a copy'}
            </Action>
          )}
          {ipfs?.cid && (
            <Action
              class="small red quiet"
              act={remove}
              done="The copy is removed."
              confirm="This server stops offering the copy at once. What others have copied from it stays."
            >
              Remove the copy
            </Action>
          )}
        </>
      }
    >
      {!ipfs && (
        <p class="hint">
          Not stored there. A copy of the source has an address that follows from its bytes, and can be read from any
          IPFS node.
        </p>
      )}
      {working && (
        <p>
          <Badge tone="warn">being stored</Badge> <Progress value={status?.progress ?? 0} label="Copy to IPFS" />
        </p>
      )}
      {status?.errorMessage && <p class="error">{status.errorMessage}</p>}
      {ipfs?.cid && (
        <Facts
          of={[
            ['CID', <Copyable text={ipfs.cid} />],
            ['Address', ipfs.url && <code>{ipfs.url}</code>],
            [
              'Gateway',
              ipfs.gatewayUrl && (
                <a href={ipfs.gatewayUrl} target="_blank" rel="noopener">
                  Open
                </a>
              ),
            ],
            ['Metadata', ipfs.nftMetadata?.cid],
            ['Size', copies.data?.items[0] && bytes(copies.data.items.reduce((sum, c) => sum + c.size, 0))],
          ]}
        />
      )}
    </Card>
  )
}

export function Provenance({ asset }: { asset: Asset }) {
  const { c2pa } = asset
  if (!c2pa) {
    return asset.status.phase === 'ready' ? (
      <Card title="Provenance">
        <p class="hint">
          Not signed. An asset is signed when it is made: tick “Sign it” when you upload it, or when you make a clip of
          it.
        </p>
      </Card>
    ) : null
  }
  return (
    <Card title="Provenance">
      <p>
        <Badge tone="good">signed</Badge>
      </p>
      <Facts
        of={[
          ['Manifest', <code>{c2pa.manifestId}</code>],
          ['Algorithm', c2pa.alg],
          ['Certificate', <code>{c2pa.certFingerprint}</code>],
        ]}
      />
      <p class="hint">
        To verify it, open the <a href={`play/${asset.playbackId}`}>watch page</a> and click “Signed”, or give a
        downloaded MP4 file to any C2PA tool. Trust the <a href={`${root}/api/c2pa/root.pem`}>root certificate</a> of
        this server first.
      </p>
    </Card>
  )
}
