// The files of an asset: renditions, downloads, and the source.
import { api, ask } from '../../lib/api'
import { ApiError, sentence } from '../../lib/error'
import { bitrate, bytes, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { variants } from '../../lib/playlist'
import { Card, Facts } from '../../ui/page'
import { Show } from '../../ui/states'
import { Table } from '../../ui/table'
import { type Asset, hlsFolder, isPrivate, withToken } from './asset_parts'

const playbackOf = (asset: Asset, signal: AbortSignal) =>
  ask(api.GET('/api/playback/{id}', { params: { path: { id: asset.playbackId } }, signal }))

// Renditions lists what a player can choose from, with the sizes of MP4 files where there are any.
export function Renditions({ asset, jwt, open }: { asset: Asset; jwt: string; open: boolean }) {
  const renditions = useLoad(
    async (signal) => {
      const playback = await playbackOf(asset, signal)
      const files = playback.meta.source.filter((s) => s.hrn === 'MP4')
      if (!open)
        return files.map((f) => ({
          name: nameOf(f.url),
          width: f.width,
          height: f.height,
          fps: undefined,
          bitrate: f.bitrate ?? 0,
          codecs: '',
          size: f.size,
        }))
      const answer = await fetch(withToken(hlsFolder(asset.playbackId) + 'index.m3u8', jwt), { signal })
      if (!answer.ok) throw new ApiError(answer.status, sentence(answer.status, undefined))
      return variants(await answer.text()).map((v) => ({
        ...v,
        size: files.find((f) => nameOf(f.url) === v.name)?.size,
      }))
    },
    [asset.playbackId, asset.status.phase, asset.playbackUrl, jwt, open],
  )
  return (
    <Card title="Renditions">
      <Show of={renditions} empty={<p class="hint">There are none yet.</p>}>
        {(items) => (
          <Table
            items={items.map((r) => ({ ...r, id: r.name }))}
            columns={[
              { label: 'Name', cell: (r) => profileName(r.name) },
              {
                label: 'Resolution',
                cell: (r) =>
                  r.width
                    ? `${r.width} × ${r.height}${r.fps ? `, ${Math.round(r.fps * 100) / 100} fps` : ''}`
                    : 'audio only',
              },
              { label: 'Bitrate', cell: (r) => (r.bitrate ? bitrate(r.bitrate) : '–') },
              { label: 'Codecs', cell: (r) => <code>{r.codecs || '–'}</code> },
              { label: 'MP4 file', cell: (r) => (r.size ? bytes(r.size) : '–') },
            ]}
          />
        )}
      </Show>
    </Card>
  )
}

const nameOf = (url: string) =>
  decodeURIComponent(
    new URL(url).pathname
      .split('/')
      .pop()!
      .replace(/\.mp4$/, ''),
  )

export function Downloads({ asset, jwt }: { asset: Asset; jwt: string }) {
  const playback = useLoad((signal) => playbackOf(asset, signal), [asset.playbackId, asset.status.phase])
  const files = playback.data?.meta.source.filter((s) => s.hrn === 'MP4') ?? []
  if (files.length === 0 && !asset.downloadUrl) return null
  // Addresses of the API may have another host than the page: a proxy may not tell the server its own.
  const here = (url: string) =>
    withToken(hlsFolder(asset.playbackId) + new URL(url).pathname.split('/').slice(3).join('/'), jwt)
  const locked = isPrivate(asset) && !jwt
  return (
    <Card
      title="Downloads"
      actions={
        asset.downloadUrl &&
        !isPrivate(asset) && (
          <a class="button quiet small" href={'tasks/new?asset=' + asset.id}>
            Transcode to a bucket
          </a>
        )
      }
    >
      {locked && <p class="hint">These addresses need the token of a viewer: add ?jwt= to them.</p>}
      <ul class="lines">
        {asset.downloadUrl && (
          <li>
            <a href={inFolder(asset, asset.downloadUrl) ? here(asset.downloadUrl) : asset.downloadUrl} download>
              Source
            </a>
            <span class="hint">
              {asset.videoSpec?.format} {asset.size ? bytes(asset.size) : ''}
            </span>
          </li>
        )}
        {files.map((f) => (
          <li key={f.url}>
            <a
              href={inFolder(asset, f.url) ? here(f.url) : f.url}
              download={`${asset.name} ${profileName(nameOf(f.url))}.mp4`}
            >
              {profileName(nameOf(f.url))}.mp4
            </a>
            <span class="hint">
              {f.width ? `${f.width} × ${f.height} · ` : ''}
              {f.size ? bytes(f.size) : ''}
            </span>
          </li>
        ))}
      </ul>
    </Card>
  )
}

const inFolder = (asset: Asset, url: string) => new URL(url).pathname.startsWith(`/hls/${asset.playbackId}/`)

// Source says what was found in the file that the asset was made from.
export function Source({ asset }: { asset: Asset }) {
  const { videoSpec, hash, size } = asset
  if (!videoSpec) return null
  return (
    <Card title="Source">
      <Facts
        of={[
          ['Format', videoSpec.format],
          ['Size', size ? bytes(size) : undefined],
          ['Bitrate', videoSpec.bitrate ? bitrate(videoSpec.bitrate) : undefined],
          ...(videoSpec.tracks ?? []).map((t, i): [string, string] => [
            `Track ${i + 1}`,
            [
              t.type,
              t.codec,
              t.width ? `${t.width} × ${t.height}` : '',
              t.fps ? `${Math.round(t.fps * 100) / 100} fps` : '',
              t.sampleRate ? `${t.sampleRate} Hz` : '',
              t.channels ? `${t.channels} ${t.channels === 1 ? 'channel' : 'channels'}` : '',
              t.bitrate ? bitrate(t.bitrate) : '',
            ]
              .filter(Boolean)
              .join(', '),
          ]),
          ...(hash ?? []).map((h): [string, preact.ComponentChildren] => [
            h.algorithm.toUpperCase(),
            <code>{h.hash}</code>,
          ]),
        ]}
      />
    </Card>
  )
}
