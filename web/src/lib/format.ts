// How values are written for people.

const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']

export function bytes(n: number): string {
  let unit = 0
  for (; Math.round(n) >= 1000 && unit < units.length - 1; unit++) n /= 1000
  return `${unit === 0 || n >= 99.95 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`
}

export function bitrate(bitsPerSecond: number): string {
  const kbits = Math.round(bitsPerSecond / 1000)
  return kbits >= 1000 ? `${(kbits / 1000).toFixed(1)} Mbit/s` : `${kbits} kbit/s`
}

// clock writes whole seconds as 1:02:03 or 4:05.
function clock(s: number): string {
  const parts = [Math.floor(s / 3600), Math.floor(s / 60) % 60, s % 60]
  if (parts[0] === 0) parts.shift()
  return parts.map((part, i) => (i === 0 ? String(part) : String(part).padStart(2, '0'))).join(':')
}

// duration writes seconds as 1:02:03 or 4:05. A player may be a moment past the end.
export const duration = (seconds: number) => clock(Math.max(0, Math.round(seconds)))

// precise writes seconds with their milliseconds, as 1:02:03.500 or 4:05.000.
export function precise(seconds: number): string {
  const ms = Math.round(seconds * 1000)
  return `${clock(Math.floor(ms / 1000))}.${String(ms % 1000).padStart(3, '0')}`
}

// seconds reads a time as precise writes it, or as seconds; undefined = it is none.
export function seconds(text: string): number | undefined {
  if (!/^\s*(\d+:){0,2}\d+(\.\d+)?\s*$/.test(text)) return undefined
  return text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0)
}

const steps: [number, Intl.RelativeTimeFormatUnit][] = [
  [60, 'second'],
  [60, 'minute'],
  [24, 'hour'],
  [30, 'day'],
  [12, 'month'],
  [Infinity, 'year'],
]

// ago writes how long before now a time was, or how long after.
export function ago(ms: number, now = Date.now()): string {
  let n = Math.round((ms - now) / 1000)
  const format = new Intl.RelativeTimeFormat('en', { numeric: 'auto' })
  for (const [size, unit] of steps) {
    if (Math.abs(n) < size) return format.format(n, unit)
    n = Math.round(n / size)
  }
  return ''
}

export const local = (ms: number) => new Date(ms).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
// exact writes a time with its seconds.
export const exact = (ms: number) =>
  new Date(ms).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
export const utc = (ms: number) =>
  new Date(ms)
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, ' UTC')

// profileName writes the names of profiles as people do: 720p0, at the frame rate of the source, is 720p.
export const profileName = (text: string) => text.replace(/\b(\d+p)0\b/g, '$1')

export const count = (n: number) => n.toLocaleString('en')
export const plural = (n: number, one: string, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`
