// One asset: player, clips, files, and who may play it.
import { useState } from 'preact/hooks'
import { api, ask, askPage, root } from '../../lib/api'
import { embedCode } from '../../lib/embed'
import { ago, bytes, count, duration } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Action, Dialog, Form, TextField } from '../../ui/form'
import { Card, Facts, Page } from '../../ui/page'
import { Player, type PlayerHandle } from '../../ui/player'
import { Loading, Show } from '../../ui/states'
import { Ago, Progress } from '../../ui/values'
import { useGo } from '../location'
import { ClipEditor, Clips } from './asset_clip'
import { Downloads, Renditions, Source } from './asset_files'
import { about, type Asset, isPrivate, Phase, playable } from './asset_parts'
import { Policy, Provenance, Storage } from './asset_storage'
import { Texts } from './asset_text'

export default function AssetRoute({ id }: { id: string }) {
  return <AssetPage key={id} id={id} />
}

function AssetPage({ id }: { id: string }) {
  const asset = useLoad(
    (signal) => ask(api.GET('/api/asset/{id}', { params: { path: { id }, query: { details: '1' } }, signal })),
    [id],
    {
      follows: (e) => about(e, id),
    },
  )
  return (
    <Page
      title={asset.data?.name || 'Asset'}
      back={{ href: 'assets', label: 'Assets' }}
      actions={asset.data && <Actions asset={asset.data} changed={asset.reload} />}
      calls={[
        { method: 'GET', path: `/api/asset/${id}?details=1` },
        { method: 'GET', path: `/api/asset/${id}/track` },
      ]}
    >
      <Show of={asset}>{(a) => <Detail asset={a} changed={asset.reload} />}</Show>
    </Page>
  )
}

function Detail({ asset, changed }: { asset: Asset; changed: () => void }) {
  const [handle, setHandle] = useState<PlayerHandle>()
  const [jwt, setJWT] = useState('')
  const plays = playable(asset)
  const gated = isPrivate(asset)
  const open = plays && (!gated || jwt !== '')
  return (
    <div class="columns">
      <div>
        <Card>
          {open ? (
            <Player playbackID={asset.playbackId} title={asset.name} jwt={jwt || undefined} onReady={setHandle} />
          ) : plays ? (
            <GatedPlayer asset={asset} onToken={setJWT} />
          ) : (
            <State asset={asset} changed={changed} />
          )}
          {plays && asset.status.phase !== 'ready' && <Work asset={asset} />}
        </Card>
        {open && asset.status.phase === 'ready' && handle && <ClipEditor asset={asset} player={handle} />}
        {plays && <Texts asset={asset} jwt={jwt} />}
        {plays && <Clips asset={asset} />}
        {plays && <Renditions asset={asset} jwt={jwt} open={open} />}
      </div>
      <div>
        <About asset={asset} />
        {plays && <Share asset={asset} />}
        {plays && <Downloads asset={asset} jwt={jwt} />}
        <Policy asset={asset} changed={changed} />
        <Storage asset={asset} changed={changed} />
        <Provenance asset={asset} />
        <Source asset={asset} />
      </div>
    </div>
  )
}

function Actions({ asset, changed }: { asset: Asset; changed: () => void }) {
  const go = useGo()
  const [renaming, rename] = useState(false)
  const path = { id: asset.id }
  if (asset.status.phase === 'deleting') {
    const restore = async () => {
      await ask(api.POST('/api/asset/{id}/restore', { params: { path } }))
      changed()
    }
    return (
      <Action act={restore} done="The asset is restored.">
        Restore
      </Action>
    )
  }
  const remove = async () => {
    await ask(api.DELETE('/api/asset/{id}', { params: { path } }))
    go('assets?phase=deleting')
  }
  return (
    <>
      {asset.status.phase === 'ready' && (
        <button type="button" class="quiet" onClick={() => rename(true)}>
          Edit
        </button>
      )}
      <Action
        class="red quiet"
        act={remove}
        done="The asset is deleted. It can be restored for a while."
        confirm={`“${asset.name}” stops playing at once. You can restore it from the list of deleted assets until the server removes its files.`}
      >
        Delete
      </Action>
      {renaming && <Edit asset={asset} close={() => rename(false)} changed={changed} />}
    </>
  )
}

function Edit({ asset, close, changed }: { asset: Asset; close: () => void; changed: () => void }) {
  const [name, setName] = useState(asset.name)
  const [creator, setCreator] = useState(asset.creatorId?.value ?? '')
  const submit = async () => {
    const body = { name, ...(creator !== (asset.creatorId?.value ?? '') ? { creatorId: creator } : {}) }
    await ask(api.PATCH('/api/asset/{id}', { params: { path: { id: asset.id } }, body }))
    changed()
    close()
  }
  return (
    <Dialog title="Edit the asset" close={close}>
      <Form submit={submit} label="Save" cancel={close}>
        <TextField label="Name" value={name} onValue={setName} required autoFocus />
        <TextField
          label="Creator"
          value={creator}
          onValue={setCreator}
          maxLength={512}
          hint="Your own id of the person it was made for. Views and usage can be added up by it."
        />
      </Form>
    </Dialog>
  )
}

// State is what is shown instead of a player.
function State({ asset, changed }: { asset: Asset; changed: () => void }) {
  const { phase, errorMessage } = asset.status
  if (phase === 'failed') {
    const retry = async () => {
      await ask(api.POST('/api/asset/{id}/retry', { params: { path: { id: asset.id } } }))
      changed()
    }
    return (
      <div class="asset-state">
        <Phase of={asset} />
        <p class="error" role="alert">
          {errorMessage || 'It could not be made.'}
        </p>
        <Action act={retry} done="It is tried again.">
          Try again
        </Action>
      </div>
    )
  }
  if (phase === 'uploading') {
    return (
      <div class="asset-state">
        <Phase of={asset} />
        <p>
          The upload is not complete. If it was cut because the page was closed, choose the same file again: it
          continues where it was.
        </p>
      </div>
    )
  }
  if (phase === 'deleting' || phase === 'deleted') {
    return (
      <div class="asset-state">
        <Phase of={asset} />
        <p>
          {phase === 'deleting'
            ? 'It was deleted. Restore it to play it again.'
            : 'It was deleted, and its files are gone.'}
        </p>
      </div>
    )
  }
  return (
    <div class="asset-state">
      <Work asset={asset} />
    </div>
  )
}

// Work shows the task that makes an asset.
function Work({ asset }: { asset: Asset }) {
  const filters = JSON.stringify([{ id: 'outputAssetId', value: asset.id }])
  const tasks = useLoad(
    (signal) => askPage(api.GET('/api/task', { params: { query: { limit: 1, filters } }, signal })),
    [asset.id],
    {
      follows: (e) => e.event.startsWith('task.') && about(e, asset.id),
    },
  )
  const task = tasks.data?.items[0]
  const { progress, eta, step } = task?.status ?? {}
  if (!tasks.data) return <Loading />
  return (
    <div class="work">
      <Phase of={{ ...asset, status: { ...asset.status, progress: undefined } }} />
      <Progress value={progress ?? asset.status.progress ?? 0} label="Progress" />
      <p class="hint">
        {asset.status.phase === 'waiting'
          ? 'Waits for its turn. '
          : step
            ? `${step[0]!.toUpperCase()}${step.slice(1)}. `
            : ''}
        {eta && eta > Date.now() ? `Ready ${ago(eta)}. ` : ''}
        {task && <a href={'tasks/' + task.id}>Task</a>}
      </p>
    </div>
  )
}

// GatedPlayer asks for what a viewer needs to play a private asset: weir does not have the private
// half of a signing key.
function GatedPlayer({ asset, onToken }: { asset: Asset; onToken: (token: string) => void }) {
  const [token, setToken] = useState('')
  if (asset.playbackPolicy?.type === 'webhook') {
    return <p class="asset-state">A webhook of yours decides who may play this asset, so it is not played here.</p>
  }
  return (
    <div class="asset-state">
      <p>
        This asset plays only with a token. Make one on the page <a href="access">Access</a> for the playback id{' '}
        <code>{asset.playbackId}</code>.
      </p>
      <Form submit={async () => onToken(token.trim())} label="Play">
        <TextField label="Token of a viewer (JWT)" value={token} onValue={setToken} required />
      </Form>
    </div>
  )
}

function About({ asset }: { asset: Asset }) {
  const views = useLoad(
    (signal) =>
      ask(
        api.GET('/api/data/views/query/total/{playbackId}', {
          params: { path: { playbackId: asset.playbackId } },
          signal,
        }),
      ),
    [asset.playbackId],
    { every: 15 },
  )
  const video = asset.videoSpec?.tracks?.find((t) => t.type === 'video')
  return (
    <Card title="About">
      <Facts
        of={[
          ['State', <Phase of={asset} />],
          ['Duration', asset.videoSpec?.duration ? duration(asset.videoSpec.duration) : undefined],
          ['Size', asset.size ? bytes(asset.size) : undefined],
          ['Resolution', video?.width ? `${video.width} × ${video.height}` : undefined],
          ['Views', views.data ? count(views.data.viewCount) : undefined],
          ['Watch time', views.data?.playtimeMins ? duration(views.data.playtimeMins * 60) : undefined],
          ['Created', <Ago at={asset.createdAt} />],
          ['Made from', <Origin asset={asset} />],
          ['Creator', asset.creatorId?.value],
          ['Made with API key', asset.createdByTokenName],
          ['Id', <Copyable text={asset.id} />],
          ['Playback id', <Copyable text={asset.playbackId} />],
        ]}
      />
    </Card>
  )
}

function Origin({ asset: { source } }: { asset: Asset }) {
  if (source.type === 'url') return <code>{source.url}</code>
  if (source.type === 'recording') return <>a broadcast</>
  if (source.type === 'directUpload') return <>an upload</>
  return source.assetId ? <a href={'assets/' + source.assetId}>another asset (clip)</a> : <>a broadcast (clip)</>
}

function Share({ asset }: { asset: Asset }) {
  const watch = `${root}/play/${asset.playbackId}`
  return (
    <Card
      title="Share"
      actions={
        <a class="button quiet small" href={`play/${asset.playbackId}`} target="_blank" rel="noopener">
          Open the watch page
        </a>
      }
    >
      <Code label="Watch page" text={watch} />
      <Code label="Embed" text={embedCode(watch, asset.name)} />
      <Code label="HLS" text={asset.playbackUrl ?? `${root}/hls/${asset.playbackId}/index.m3u8`} />
    </Card>
  )
}
