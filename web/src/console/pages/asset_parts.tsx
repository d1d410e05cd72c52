// What several pages show of an asset.
import { useState } from 'preact/hooks'
import { root, type Schemas } from '../../lib/api'
import type { WeirEvent } from '../../lib/events'
import { duration } from '../../lib/format'
import { Table } from '../../ui/table'
import { Ago, Badge, Progress, type Tone } from '../../ui/values'

export type Asset = Schemas['Asset']

// AnyAsset is what lists have of an asset, too.
export type AnyAsset = Pick<Asset, 'id' | 'name' | 'type' | 'playbackId' | 'playbackPolicy' | 'playbackUrl' | 'status'>

export const isPrivate = ({ playbackPolicy }: Pick<AnyAsset, 'playbackPolicy'>) =>
  playbackPolicy?.type === 'jwt' || playbackPolicy?.type === 'webhook'

// playable tells whether an asset can be played, which may be before it is ready.
export const playable = ({ status, playbackUrl }: AnyAsset) =>
  status.phase === 'ready' || (status.phase === 'processing' && Boolean(playbackUrl))

export const hlsFolder = (playbackID: string) => `${root}/hls/${encodeURIComponent(playbackID)}/`

// about tells whether an event is about an asset, or about a task that makes or copies it.
export const about = (e: WeirEvent, id: string) => {
  const payload = e.payload as { asset?: { id: string }; task?: { snapshot?: Schemas['Task'] } } | undefined
  const task = payload?.task?.snapshot
  return payload?.asset?.id === id || task?.outputAssetId === id || task?.inputAssetId === id
}

// withToken adds the token of a viewer to an address; '' = none is needed.
export const withToken = (address: string, jwt: string) =>
  jwt ? `${address}${address.includes('?') ? '&' : '?'}jwt=${encodeURIComponent(jwt)}` : address

// Poster is the poster image of an asset, or a placeholder that says why there is none.
export function Poster({ asset }: { asset: AnyAsset }) {
  const [missing, setMissing] = useState(false)
  if (isPrivate(asset)) return <span class="poster">private</span>
  if (asset.type === 'audio') return <span class="poster">audio</span>
  if (asset.status.phase !== 'ready')
    return <span class="poster">{asset.status.phase === 'failed' ? 'no thumbnail' : 'no thumbnail yet'}</span>
  if (missing) return <span class="poster">no thumbnail</span>
  return (
    <img
      class="poster"
      src={hlsFolder(asset.playbackId) + 'poster.jpg'}
      alt=""
      loading="lazy"
      onError={() => setMissing(true)}
    />
  )
}

const tones: Record<Schemas['AssetPhase'], [Tone, string]> = {
  uploading: ['warn', 'uploading'],
  waiting: ['soft', 'waiting'],
  processing: ['warn', 'in progress'],
  ready: ['good', 'ready'],
  failed: ['bad', 'failed'],
  deleting: ['soft', 'deleted'],
  deleted: ['soft', 'removed'],
}

// Phase is the state of an asset, with its progress.
export function Phase({ of }: { of: AnyAsset }) {
  const [tone, text] = tones[of.status.phase]
  return (
    <span class="phase">
      <Badge tone={tone}>{text}</Badge>
      {of.status.phase === 'processing' && of.status.progress !== undefined && (
        <Progress value={of.status.progress} label={`Progress of ${of.name}`} />
      )}
    </span>
  )
}

// ClipState does the same for a clip, with the reason if it could not be made.
export const ClipState = ({ clip }: { clip: AnyAsset }) => (
  <span>
    <Phase of={clip} />
    {clip.status.errorMessage && <span class="hint"> {clip.status.errorMessage}</span>}
  </span>
)

// ClipTable lists the clips of a stream or an asset.
export const ClipTable = ({ clips }: { clips: Asset[] }) => (
  <Table
    items={clips}
    columns={[
      { label: 'Name', cell: (clip) => <a href={'assets/' + clip.id}>{clip.name}</a> },
      {
        label: 'Duration',
        number: true,
        cell: (clip) => (clip.videoSpec?.duration ? duration(clip.videoSpec.duration) : '–'),
      },
      { label: 'State', cell: (clip) => <ClipState clip={clip} /> },
      { label: 'Made', cell: (clip) => <Ago at={clip.createdAt} /> },
    ]}
  />
)
