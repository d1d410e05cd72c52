// Usage: views, minutes and storage over time, and how much the account may have.
import { api, ask, root, type Schemas } from '../../lib/api'
import { bytes, count, plural } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Chart } from '../../ui/chart'
import { Card, Page } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { Table } from '../../ui/table'
import { Progress } from '../../ui/values'
import { useQuery } from '../location'
import { amount, resources } from './user_quota'

type Step = 'hour' | 'day'

const hour = 3600_000
const day = 24 * hour

const ranges: Record<string, { label: string; span: number; step: Step }> = {
  '24h': { label: '24 hours', span: day, step: 'hour' },
  '7d': { label: '7 days', span: 7 * day, step: 'day' },
  '30d': { label: '30 days', span: 30 * day, step: 'day' },
}
const usual = '7d'

// span returns the start and the end of a range, at full steps of UTC as the API counts.
function span(name: string): { from: number; to: number; step: Step } {
  const { span, step } = ranges[name] ?? ranges[usual]!
  const size = step === 'hour' ? hour : day
  const to = Math.ceil(Date.now() / size) * size
  return { from: to - span, to, step }
}

export default function Usage() {
  const [range, setRange] = useQuery('range', usual)
  const { from, to, step } = span(range)
  return (
    <Page
      title="Usage"
      actions={
        <div class="tabs flat" role="group" aria-label="Time">
          {Object.entries(ranges).map(([name, { label }]) => (
            <button key={name} type="button" class="tab" aria-pressed={name === range} onClick={() => setRange(name)}>
              {label}
            </button>
          ))}
        </div>
      }
      calls={[
        { method: 'GET', path: `/api/data/views/query?from=${from}&to=${to}&timeStep=${step}` },
        { method: 'GET', path: `/api/data/views/query?from=${from}&to=${to}&breakdownBy[]=playbackId` },
        { method: 'GET', path: `/api/data/usage/query?from=${from}&to=${to}&timeStep=${step}` },
        { method: 'GET', path: `/api/user/usage?fromTime=${from}&toTime=${to}` },
        { method: 'GET', path: '/api/user/quota' },
      ]}
    >
      <Views range={range} />
      <Top range={range} />
      <Account range={range} />
      <Quota />
    </Page>
  )
}

const minutes = (n: number) => (n > 0 && n < 10 ? n.toFixed(n < 1 ? 2 : 1) : count(Math.round(n))) + ' min'
const whole = (n: number) => (Number.isInteger(n) ? count(n) : n.toFixed(1))

// steps returns the start of every step of a span, and a function that puts rows there.
function steps({ from, to, step }: { from: number; to: number; step: Step }) {
  const size = step === 'hour' ? hour : day
  const times = Array.from({ length: Math.round((to - from) / size) }, (_, i) => from + i * size)
  const values = <T,>(rows: T[], at: (row: T) => number | undefined, value: (row: T) => number) => {
    const known = new Map(rows.map((row) => [at(row), value(row)]))
    return times.map((time) => known.get(time) ?? 0)
  }
  return { times, values }
}

function Views({ range }: { range: string }) {
  const views = useLoad(
    async (signal) => {
      const { from, to, step } = span(range)
      const rows = await ask(
        api.GET('/api/data/views/query', {
          params: { query: { from: String(from), to: String(to), timeStep: step } },
          signal,
        }),
      )
      return { rows, ...steps({ from, to, step }) }
    },
    [range],
    { every: 60 },
  )
  return (
    <Card title="Viewers">
      <Show of={views}>
        {({ rows, times, values }) => {
          const total = rows.reduce((sum, row) => sum + row.viewCount, 0)
          const watched = rows.reduce((sum, row) => sum + row.playtimeMins, 0)
          if (total === 0) {
            return (
              <Empty title="No views in this time">
                <p>
                  Views of your <a href="streams">streams</a> and <a href="assets">assets</a> are counted here as soon
                  as somebody watches.
                </p>
              </Empty>
            )
          }
          return (
            <>
              <p>{`${plural(total, 'view')}, ${minutes(watched)} watched.`}</p>
              <div class="charts">
                <Chart
                  title="Views"
                  times={times}
                  format={whole}
                  series={[
                    {
                      label: 'views',
                      values: values(
                        rows,
                        (r) => r.timestamp,
                        (r) => r.viewCount,
                      ),
                    },
                  ]}
                />
                <Chart
                  title="Minutes watched"
                  times={times}
                  format={minutes}
                  series={[
                    {
                      label: 'watched',
                      values: values(
                        rows,
                        (r) => r.timestamp,
                        (r) => r.playtimeMins,
                      ),
                    },
                  ]}
                />
              </div>
            </>
          )
        }}
      </Show>
    </Card>
  )
}

const most = 10

function Top({ range }: { range: string }) {
  const rows = useLoad(
    async (signal) => {
      const { from, to } = span(range)
      const all = await ask(
        api.GET('/api/data/views/query', {
          params: { query: { from: String(from), to: String(to), 'breakdownBy[]': ['playbackId'] } },
          signal,
        }),
      )
      return all
        .filter((row) => row.playbackId && row.viewCount > 0)
        .sort((a, b) => b.viewCount - a.viewCount)
        .slice(0, most)
    },
    [range],
    { every: 60 },
  )
  if (rows.data?.length === 0) return null
  return (
    <Card title="Most watched">
      <Show of={rows}>
        {(items) => (
          <Table
            items={items.map((row) => ({ ...row, id: row.playbackId! }))}
            columns={[
              { label: 'Video', cell: (row) => <Video playbackID={row.id} /> },
              { label: 'Views', number: true, cell: (row) => count(row.viewCount) },
              { label: 'Watch time', number: true, cell: (row) => minutes(row.playtimeMins) },
            ]}
          />
        )}
      </Show>
    </Card>
  )
}

// Video is a link to the asset or the stream with a playback id.
function Video({ playbackID }: { playbackID: string }) {
  const found = useLoad(
    async (signal) => {
      const query = { limit: 1, filters: JSON.stringify([{ id: 'playbackId', value: playbackID }]) }
      const [asset] = await ask(api.GET('/api/asset', { params: { query }, signal }))
      if (asset) return { href: `assets/${asset.id}`, name: asset.name }
      const [stream] = await ask(api.GET('/api/stream', { params: { query }, signal }))
      return stream && { href: `streams/${stream.id}`, name: stream.name }
    },
    [playbackID],
  )
  if (found.data) return <a href={found.data.href}>{found.data.name || playbackID}</a>
  return found.loading ? <code>{playbackID}</code> : <a href={`${root}/play/${playbackID}`}>{playbackID}</a>
}

function Account({ range }: { range: string }) {
  const usage = useLoad(
    async (signal) => {
      const { from, to, step } = span(range)
      const [rows, sums] = await Promise.all([
        ask(
          api.GET('/api/data/usage/query', {
            params: { query: { from: String(from), to: String(to), timeStep: step } },
            signal,
          }),
        ),
        ask(api.GET('/api/user/usage', { params: { query: { fromTime: from, toTime: to } }, signal })),
      ])
      return {
        rows: (Array.isArray(rows) ? rows : [rows]) as Schemas['UsageMetric'][],
        sums,
        ...steps({ from, to, step }),
      }
    },
    [range],
    { every: 60 },
  )
  return (
    <Card title="What the account uses">
      <Show of={usage}>
        {({ rows, sums, times, values }) => (
          <>
            <p>
              {`${bytes(sums.storageBytes)} stored now. ${minutes(sums.sourceSegmentsDuration / 60)} of live video received in ${plural(sums.streamCount, 'broadcast')}, ${minutes(sums.transcodedSegmentsDuration / 60)} of it transcoded.`}
            </p>
            <div class="charts">
              <Chart
                title="Minutes encoded and delivered"
                times={times}
                format={minutes}
                series={[
                  {
                    label: 'encoded',
                    values: values(
                      rows,
                      (r) => r.TimeInterval,
                      (r) => r.TotalUsageMins,
                    ),
                  },
                  {
                    label: 'delivered',
                    values: values(
                      rows,
                      (r) => r.TimeInterval,
                      (r) => r.DeliveryUsageMins,
                    ),
                  },
                ]}
              />
              {sums.storage.length > 1 ? (
                <Chart
                  title="Storage"
                  times={sums.storage.map((s) => s.day)}
                  format={bytes}
                  series={[{ label: 'stored', values: sums.storage.map((s) => s.bytes) }]}
                />
              ) : (
                <p class="hint">
                  The chart of the storage starts after two days with something stored. Choose a longer range to see
                  more.
                </p>
              )}
            </div>
          </>
        )}
      </Show>
    </Card>
  )
}

function Quota() {
  const quota = useLoad((signal) => ask(api.GET('/api/user/quota', { signal })), [], { every: 15 })
  return (
    <Card title="Limits of the account">
      <Show of={quota}>
        {(data) => (
          <Table
            items={resources.map(([id, label]) => ({ id, label, ...data[id] }))}
            columns={[
              { label: 'What', cell: ({ label }) => label },
              { label: 'Used', number: true, cell: ({ id, used }) => amount(id, used) },
              {
                label: 'Limit',
                number: true,
                cell: ({ id, limit }) => (limit === undefined ? 'none' : amount(id, limit)),
              },
              {
                label: 'Share',
                cell: ({ label, used, limit }) =>
                  limit === undefined ? (
                    '–'
                  ) : (
                    <Progress value={limit === 0 ? 1 : used / limit} label={`${label} used`} />
                  ),
              },
            ]}
          />
        )}
      </Show>
    </Card>
  )
}
