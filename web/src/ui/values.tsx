// Values as every page shows them.
import { useEffect, useState } from 'preact/hooks'
import { ago, bytes, local, utc } from '../lib/format'

// Moment is a time in the time zone of the reader, with UTC on hover.
export function Moment({ at }: { at?: number }) {
  if (!at) return <>never</>
  return (
    <time dateTime={new Date(at).toISOString()} title={utc(at)}>
      {local(at)}
    </time>
  )
}

// Ago is how long ago a time was. It keeps itself up to date.
export function Ago({ at }: { at?: number }) {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 15_000)
    return () => clearInterval(timer)
  }, [])
  if (!at) return <>never</>
  return (
    <time dateTime={new Date(at).toISOString()} title={`${local(at)} · ${utc(at)}`}>
      {ago(at)}
    </time>
  )
}

export const Bytes = ({ of }: { of?: number }) => <>{of === undefined ? '–' : bytes(of)}</>

export type Tone = 'good' | 'bad' | 'warn' | 'live' | 'soft'

// Badge is a short state in a colour; the word carries the meaning, the colour only helps.
export const Badge = ({ tone, children }: { tone: Tone; children: string }) => (
  <span class={'badge ' + tone}>{children}</span>
)

// Progress is a bar from 0 to 1.
export function Progress({ value, label }: { value: number; label: string }) {
  const percent = Math.round(Math.min(Math.max(value, 0), 1) * 100)
  return (
    <span class="progress">
      <progress max={100} value={percent} aria-label={label} />
      <span class="hint">{percent} %</span>
    </span>
  )
}
