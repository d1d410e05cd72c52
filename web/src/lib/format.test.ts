import { describe, expect, test } from 'vitest'
import { ago, bitrate, bytes, count, duration, plural, precise, profileName, seconds, utc } from './format'

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.0 kB'],
  [99_940, '99.9 kB'],
  [99_960, '100 kB'],
  [999_499, '999 kB'],
  [999_500, '1.0 MB'], // not 1000 kB
  [1_234_567_890, '1.2 GB'],
  [1e18, '1000 PB'], // there is no larger unit
])('%d bytes are %s', (n, text) => expect(bytes(n)).toBe(text))

test.each([
  [0, '0 kbit/s'],
  [999_499, '999 kbit/s'],
  [999_500, '1.0 Mbit/s'], // not 1000 kbit/s
  [3_000_000, '3.0 Mbit/s'],
])('%d bits a second are %s', (n, text) => expect(bitrate(n)).toBe(text))

test.each([
  [0, '0:00'],
  [59.4, '0:59'],
  [59.5, '1:00'],
  [3599.5, '1:00:00'],
  [3723, '1:02:03'],
  [360_000, '100:00:00'],
  [-1, '0:00'], // a player may be a moment past the end
])('%d seconds are %s', (n, text) => expect(duration(n)).toBe(text))

describe('times with milliseconds', () => {
  test.each([
    [0, '0:00.000'],
    [4.25, '0:04.250'],
    [59.9996, '1:00.000'],
    [3723.5, '1:02:03.500'],
  ])('%d seconds', (n, text) => expect(precise(n)).toBe(text))

  test.each([
    ['90', 90],
    ['1:02.5', 62.5],
    [' 1:02:03.500 ', 3723.5],
    ['', undefined],
    ['-1', undefined],
    ['1:', undefined],
    [':30', undefined],
    ['1:2:3:4', undefined],
    ['1e3', undefined],
  ])('“%s” is read as %s', (text, n) => expect(seconds(text)).toBe(n))

  test.each([0, 0.001, 59.999, 60, 3599.999, 7325.25])('%d is read as it is written', (n) => {
    expect(seconds(precise(n))).toBeCloseTo(n, 6)
  })
})

describe('how long ago', () => {
  const now = Date.UTC(2026, 0, 31, 12)
  const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000]
  test.each([
    [0, 'now'],
    [-59 * second, '59 seconds ago'],
    [-60 * second, '1 minute ago'],
    [-59 * minute, '59 minutes ago'],
    [-60 * minute, '1 hour ago'],
    [-23 * hour, '23 hours ago'],
    [-day, 'yesterday'],
    [-29 * day, '29 days ago'],
    [-60 * day, '2 months ago'],
    [-800 * day, '2 years ago'],
    [5 * minute, 'in 5 minutes'],
  ])('%d ms', (ms, text) => expect(ago(now + ms, now)).toBe(text))
})

test('times of UTC say so', () => expect(utc(Date.UTC(2026, 0, 31, 12, 5, 9, 250))).toBe('2026-01-31 12:05:09 UTC'))

test.each([
  ['720p0', '720p'],
  ['720p', '720p'],
  ['720p30', '720p30'],
  ['1080p60', '1080p60'],
  ['source', 'source'],
  ['my720p0x', 'my720p0x'],
  ['the renditions 1080p0 and 240p0 are left out', 'the renditions 1080p and 240p are left out'],
])('the profile %s is shown as %s', (name, text) => expect(profileName(name)).toBe(text))

test('counts', () => {
  expect(count(1_234_567)).toBe('1,234,567')
  expect(plural(1, 'viewer')).toBe('1 viewer')
  expect(plural(0, 'viewer')).toBe('0 viewers')
  expect(plural(1200, 'more task')).toBe('1,200 more tasks')
  expect(plural(2, 'match', 'matches')).toBe('2 matches')
})
