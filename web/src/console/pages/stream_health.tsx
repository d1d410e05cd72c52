// How a stream does: what is wrong as sentences, what came as charts.
import { api, ask, type Schemas } from '../../lib/api'
import { bitrate, plural, profileName } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Chart } from '../../ui/chart'
import { Card, Facts } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { useQuery } from '../location'
import type { Stream } from '../stream'

type Sample = Schemas['StreamHealth']['samples'][number]

const spans = [
  ['10', 'Ten minutes'],
  ['60', 'Hour'],
  ['1440', 'Day'],
] as const

export function Health({ stream }: { stream: Stream }) {
  const id = stream.id
  const [minutes, setMinutes] = useQuery('minutes', '60')
  const load = (signal: AbortSignal) => {
    const from = String(Date.now() - Number(minutes) * 60_000)
    return ask(api.GET('/api/stream/{id}/health', { params: { path: { id }, query: { from } }, signal }))
  }
  const health = useLoad(load, [id, minutes], { follows: (event) => event.stream?.id === id, every: 10 })
  return (
    <Show of={health}>
      {({ isHealthy, issues, samples }) => (
        <>
          <Sentences onAir={stream.isActive} isHealthy={isHealthy} issues={issues} />
          <Card title="What the encoder sends">
            <div class="tabs" role="group" aria-label="Time span">
              {spans.map(([value, label]) => (
                <button
                  key={value}
                  type="button"
                  class="tab"
                  aria-pressed={minutes === value}
                  onClick={() => setMinutes(value)}
                >
                  {label}
                </button>
              ))}
            </div>
            {samples.length === 0 ? (
              <Empty title="No measurements in this time">
                <p>There is one for every ten seconds on air.</p>
              </Empty>
            ) : (
              <Charts samples={samples} />
            )}
          </Card>
        </>
      )}
    </Show>
  )
}

function Sentences({ onAir, isHealthy, issues }: { onAir: boolean; isHealthy: boolean | null; issues: string[] }) {
  if (issues.length > 0) {
    return (
      <div class="warning sentences" role="status">
        <h2>{plural(issues.length, 'problem')}</h2>
        <ul>
          {issues.map((issue) => (
            <li key={issue}>{profileName(issue)}</li>
          ))}
        </ul>
      </div>
    )
  }
  if (!onAir) return <p class="hint">The stream is not on air.</p>
  return isHealthy ? (
    <p class="notice" role="status">
      The stream is healthy.
    </p>
  ) : null
}

const seconds = (value: number) => `${Number(value.toFixed(2))} s`
const breakAfter = 30_000 // ms between samples that are not of one broadcast

// Charts draws the samples; a line is interrupted where the stream was not on air.
function Charts({ samples }: { samples: Sample[] }) {
  const times: number[] = []
  const shown: (Sample | null)[] = []
  samples.forEach((sample, i) => {
    const before = samples[i - 1]
    if (before && sample.time - before.time > breakAfter) {
      times.push(before.time + 1)
      shown.push(null)
    }
    times.push(sample.time)
    shown.push(sample)
  })
  const line = (label: string, value: (s: Sample) => number | null) => [
    { label, values: shown.map((s) => s && value(s)) },
  ]
  const total = (value: (s: Sample) => number, one: string) =>
    plural(
      samples.reduce((sum, s) => sum + value(s), 0),
      one,
    )
  return (
    <>
      <div class="charts">
        <Chart title="Bitrate" times={times} series={line('bitrate', (s) => s.bitrate)} format={bitrate} />
        <Chart
          title="Frame rate"
          times={times}
          series={line('frame rate', (s) => s.fps)}
          format={(v) => `${Math.round(v * 10) / 10} fps`}
        />
        <Chart
          title="Key-frame interval"
          times={times}
          series={line('interval', (s) => s.keyFrameInterval || null)}
          format={seconds}
        />
        <Chart
          title="Audio ahead of video (drift)"
          times={times}
          series={line('drift', (s) => s.drift)}
          format={seconds}
        />
        <Chart
          title="Lag of the slowest rendition behind the source"
          times={times}
          series={line('lag', (s) => s.rungLag)}
          format={seconds}
        />
        <Chart
          title="Ingest speed"
          times={times}
          series={line('speed', (s) => s.pace)}
          format={(v) => `${Math.round(v * 100) / 100} ×`}
        />
      </div>
      <Facts
        of={[
          ['Gaps', `${total((s) => s.gaps, 'gap')} of more than a second`],
          ['Timestamps', `${total((s) => s.jumps, 'jump')} of the encoder’s clock`],
          [
            'Dropped frames',
            `${total((s) => s.lostFrames, 'frame')}, for which renditions, targets or WebRTC viewers were too slow`,
          ],
        ]}
      />
    </>
  )
}
