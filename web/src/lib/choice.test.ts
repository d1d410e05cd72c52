import { expect, test } from 'vitest'
import { type Choice, first, label, match, some } from './choice'

const choice = (language: string, name: string, rest: Partial<Choice> = {}): Choice => ({
  language,
  name,
  default: false,
  forced: false,
  ...rest,
})

const film = [
  choice('de', 'Deutsch (forced)', { forced: true }),
  choice('de', 'Deutsch'),
  choice('de', 'Deutsch (CC)'),
  choice('en', 'English', { default: true }),
  choice('pt-BR', 'Português'),
]

test('a viewer gets what they chose before, in the nearest form that there is', () => {
  expect(match(film, { language: 'de', name: 'Deutsch (CC)' })).toBe(2)
  expect(match(film, { language: 'de', name: 'Deutsch (forced)' })).toBe(0)
  expect(match(film, { language: 'de', name: 'German' })).toBe(1) // all of the text
  expect(match(film, { language: 'DE-at' })).toBe(1)
  expect(match(film, { language: 'pt-PT' })).toBe(4)
  expect(match(film, { language: 'pt-br' })).toBe(4)
  expect(match(film, { language: 'fr' })).toBe(-1)
  expect(match(film, {})).toBe(-1)
  expect(match([choice('', 'Audio 1')], {})).toBe(-1)
})

test('at the start the default is shown, unless the viewer turned text off', () => {
  expect(first(film, {})).toBe(3)
  expect(first(film, { language: 'de' })).toBe(1)
  expect(first(film, { language: 'fr' })).toBe(3)
  expect(first(film, { off: true })).toBe(-1)
  expect(first(film, { off: true, language: 'de' })).toBe(-1)
  expect(first(film.slice(0, 2), {})).toBe(-1)
  expect(first([], { language: 'de' })).toBe(-1)
})

test('a viewer who turns text on gets one, the last chosen if it is there', () => {
  expect(some(film, { off: true, language: 'pt-BR' })).toBe(4)
  expect(some(film, { off: true })).toBe(3)
  expect(some(film.slice(0, 3), {})).toBe(1)
  expect(some(film.slice(0, 1), {})).toBe(0)
  expect(some([], {})).toBe(-1)
})

test('what a menu calls them', () => {
  expect(label('Kommentar', 'de')).toBe('Kommentar')
  expect(label('de', 'de')).toBe('Deutsch')
  expect(label('', 'pt-BR')).toBe('Português (Brasil)')
  expect(label('', 'qaa')).toBe('qaa')
  expect(label('Audio 1', '')).toBe('Audio 1')
  expect(label('', '')).toBe('')
})
