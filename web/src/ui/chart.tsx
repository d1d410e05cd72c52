// A line chart over time. uPlot is loaded when the first chart is shown.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { AlignedData } from 'uplot'
import { Loading, Unloaded } from './states'

export interface Series {
  label: string
  values: (number | null)[]
}

interface ChartProps {
  title: string
  times: number[] // Unix time in ms
  series: Series[]
  format?: (value: number) => string // of the values
}

const colors = ['--accent', '--red', '--warn-text', '--good-text']
const height = 170
const leastSpan = 60 // seconds

export function Chart({ title, times, series, format = String }: ChartProps) {
  const place = useRef<HTMLDivElement>(null)
  const [failed, setFailed] = useState(false)
  const draw = useRef<((data: AlignedData) => void) | undefined>(undefined)
  // uPlot shows years around a single point, so it gets an empty one before.
  const alone = times.length === 1
  const data = [
    [...(alone ? [times[0]! / 1000 - leastSpan] : []), ...times.map((t) => t / 1000)],
    ...series.map((s) => [...(alone ? [null] : []), ...s.values]),
  ] as AlignedData
  const latest = useRef(data)
  latest.current = data
  useEffect(() => {
    let gone = false
    let stop = () => {}
    void Promise.all([import('uplot'), import('uplot/dist/uPlot.min.css')]).then(
      ([{ default: UPlot }]) => {
        const element = place.current
        if (gone || !element) return
        element.replaceChildren()
        const style = getComputedStyle(element)
        const axis = {
          stroke: style.getPropertyValue('--soft'),
          grid: { stroke: style.getPropertyValue('--line') },
          ticks: { stroke: style.getPropertyValue('--line') },
        }
        const plot = new UPlot(
          {
            width: element.clientWidth,
            height,
            axes: [axis, { ...axis, size: 82, values: (_, values) => values.map(format) }],
            scales: {
              x: { range: (_, min, max) => [Math.min(min, max - leastSpan), max] },
              y: { range: (_, min, max) => [min < 0 ? min * 1.1 : 0, max > 0 ? max * 1.1 : min < 0 ? 0 : 1] },
            },
            series: [
              {},
              ...series.map(({ label }, i) => ({
                label,
                stroke: style.getPropertyValue(colors[i % colors.length]!),
                width: 2,
                value: (_: unknown, v: number | null) => (v === null ? '–' : format(v)),
              })),
            ],
          },
          latest.current,
          element,
        )
        draw.current = (data) => plot.setData(data)
        const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
        resize.observe(element)
        stop = () => {
          resize.disconnect()
          plot.destroy()
        }
      },
      () => setFailed(true),
    )
    return () => {
      gone = true
      draw.current = undefined
      stop()
    }
  }, [series.map((s) => s.label).join()])
  useEffect(() => draw.current?.(data))
  const last = series.map((s) => `${s.label} ${s.values.length ? format(s.values.at(-1) ?? 0) : 'no data'}`).join(', ')
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      {failed ? (
        <Unloaded what="chart" />
      ) : (
        <div ref={place} role="img" aria-label={`${title}: ${last}`}>
          <Loading />
        </div>
      )}
    </figure>
  )
}
