// Assets: a grid with pictures, search, filters, and uploads by drop.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { bytes, duration } from '../../lib/format'
import { useList } from '../../lib/load'
import { add } from '../../lib/uploads'
import { Action } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Choice, Search } from '../../ui/search'
import { Empty, ShowList } from '../../ui/states'
import { Ago } from '../../ui/values'
import { useDrop } from '../drop'
import { useFilters } from '../location'
import { NewAsset } from './asset_new'
import { isPrivate, Phase, playable, Poster } from './asset_parts'

type Asset = Schemas['AssetInList']
type PhaseName = Schemas['AssetPhase']

const phases: [string, string][] = [
  ['', 'all states'],
  ['ready', 'ready'],
  ['processing', 'in progress'],
  ['waiting', 'waiting'],
  ['uploading', 'uploading'],
  ['failed', 'failed'],
  ['deleting', 'deleted'],
]

const kinds: [string, string][] = [
  ['', 'all kinds'],
  ['directUpload', 'uploads'],
  ['url', 'imports'],
  ['recording', 'recordings'],
  ['clip', 'clips'],
]

export default function Assets() {
  const [{ search = '', phase = '', kind = '' }, setQuery] = useFilters()
  const [making, make] = useState<'files' | 'url'>()
  const query = {
    order: 'createdAt-true',
    ...(search ? { search } : {}),
    ...(phase ? { phase: phase as PhaseName } : {}),
    ...(kind ? { filters: JSON.stringify([{ id: 'sourceType', value: kind }]) } : {}),
  }
  const assets = useList<Asset>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/asset', { params: { query: { ...query, count: '1', cursor, limit } }, signal })),
    [search, phase, kind],
    { size: 24, follows: (e) => e.event.startsWith('asset.') },
  )
  const dropping = useDrop((files) => add(files))
  const filtered = Boolean(search || phase || kind)
  return (
    <Page
      title="Assets"
      actions={
        <>
          <button type="button" class="quiet" onClick={() => make('url')}>
            Import from a URL
          </button>
          <button type="button" onClick={() => make('files')}>
            Upload
          </button>
        </>
      }
      calls={[{ method: 'GET', path: '/api/asset?' + new URLSearchParams({ limit: '24', ...query }) }]}
    >
      <div class="filters">
        <Search label="Search by name or id" value={search} onValue={(value) => setQuery({ search: value })} />
        <Choice label="State" value={phase} options={phases} onValue={(value) => setQuery({ phase: value })} />
        <Choice label="Kind" value={kind} options={kinds} onValue={(value) => setQuery({ kind: value })} />
      </div>
      {phase === 'deleting' && (
        <p class="hint">
          Deleted assets can be restored until the server removes their files: after 7 days, unless its operator chose
          another time.
        </p>
      )}
      <ShowList
        of={assets}
        empty={
          filtered ? (
            <Empty title="Nothing matches">
              <p>No asset matches the search and the filters.</p>
              <button type="button" class="quiet" onClick={() => setQuery({ search: '', phase: '', kind: '' })}>
                Show all assets
              </button>
            </Empty>
          ) : (
            <Card>
              <Empty title="No assets yet">
                <p>
                  Drop video or audio files anywhere on this page, or choose them. weir makes renditions that play
                  everywhere, and a link to share.
                </p>
                <div class="actions center">
                  <button type="button" onClick={() => make('files')}>
                    Choose files
                  </button>
                  <button type="button" class="quiet" onClick={() => make('url')}>
                    Import from a URL
                  </button>
                </div>
              </Empty>
            </Card>
          )
        }
      >
        {(items) => (
          <ul class="tiles" aria-label="Assets">
            {items.map((asset) => (
              <Tile key={asset.id} asset={asset} reload={assets.reload} />
            ))}
          </ul>
        )}
      </ShowList>
      {making && <NewAsset from={making} close={() => make(undefined)} />}
      {dropping && (
        <div class="dropzone" aria-hidden="true">
          <p>
            <strong>Drop to upload.</strong>
            <br />
            Anybody with the link can play it. To protect it, use the button “Upload”.
          </p>
        </div>
      )}
    </Page>
  )
}

function Tile({ asset, reload }: { asset: Asset; reload: () => void }) {
  const seconds = asset.videoSpec?.duration
  const deleted = asset.status.phase === 'deleting'
  const picture = (
    <span class="tile-picture">
      <Poster asset={asset} />
      {seconds ? <span class="tile-duration">{duration(seconds)}</span> : null}
    </span>
  )
  const restore = async () => {
    await ask(api.POST('/api/asset/{id}/restore', { params: { path: { id: asset.id } } }))
    reload()
  }
  return (
    <li class="tile">
      {deleted ? (
        <>
          {picture}
          <span class="tile-name">{asset.name}</span>
        </>
      ) : (
        <a href={'assets/' + asset.id}>
          {picture}
          <span class="tile-name">{asset.name}</span>
        </a>
      )}
      <p class="tile-facts hint">
        {asset.size ? bytes(asset.size) + ' · ' : ''}
        <Ago at={asset.createdAt} />
        {isPrivate(asset) ? ' · private' : ''}
      </p>
      {deleted ? (
        <Action class="small quiet" act={restore} done="The asset is restored." label={`Restore ${asset.name}`}>
          Restore
        </Action>
      ) : (
        (asset.status.phase !== 'ready' || !playable(asset)) && <Phase of={asset} />
      )}
    </li>
  )
}
