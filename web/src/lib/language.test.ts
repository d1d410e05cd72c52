import { expect, test } from 'vitest'
import { guess, languageName, ownName, tagOf, usual } from './language'

test.each([
  ['film.de.srt', 'de'],
  ['film.pt-BR.vtt', 'pt-BR'],
  ['film.pt_BR.vtt', 'pt-BR'],
  ['My film 2024.zh-Hant.ttml', 'zh-Hant'],
  ['film.es-419.srt', 'es-419'],
  ['film_en.srt', 'en'],
  ['film-fr.srt', 'fr'],
  ['film (it).srt', 'it'],
  ['film.DE.srt', 'de'],
  ['film.eng.srt', 'en'],
  ['film.deu.srt', 'de'],
  ['film.yue.srt', 'yue'],
  ['de.vtt', 'de'],
  ['German.srt', 'de'],
  ['film.english.srt', 'en'],
  ['Français.vtt', 'fr'],
  ['film.de.forced.srt', 'de'],
  ['film.en.sdh.srt', 'en'],
])('the language of %s is %s', (file, language) => expect(guess(file).language).toBe(language))

test.each([
  'film.srt',
  'The Man In.srt',
  'film.new.srt',
  'film.v2.srt',
  'film.HD.srt',
  'film.final.srt',
  'subtitles',
  '.srt',
  '',
])('the name %j says no language', (file) => expect(guess(file).language).toBeUndefined())

test('marks in the names of files', () => {
  expect(guess('film.de.forced.srt')).toEqual({ language: 'de', forced: true, closedCaptions: false, chapters: false })
  expect(guess('film.en.default.SDH.srt')).toMatchObject({ language: 'en', closedCaptions: true })
  expect(guess('film.en.cc.vtt')).toMatchObject({ language: 'en', closedCaptions: true, forced: false })
  expect(guess('film.chapters.vtt')).toMatchObject({ language: undefined, chapters: true })
  expect(guess('film.de.chapters.vtt')).toMatchObject({ language: 'de', chapters: true })
  expect(guess('chapters.de.vtt')).toMatchObject({ language: 'de', chapters: true })
})

test('names of languages', () => {
  expect(languageName('de')).toBe('German')
  expect(languageName('pt-BR')).toBe('Brazilian Portuguese')
  expect(ownName('de')).toBe('Deutsch')
  expect(ownName('fr')).toBe('Français')
  expect(ownName('pt-BR')).toBe('Português (Brasil)')
  expect(ownName('ru')).toBe('Русский')
  expect(ownName('ja')).toBe('日本語')
  expect(ownName('ka')).toBe('ქართული')
  for (const none of ['', 'not a tag', 'zzz']) expect([languageName(none), ownName(none)]).toEqual(['', ''])
})

test('what is offered are tags as they are written, with a name', () => {
  for (const tag of usual) {
    expect(tagOf(tag)).toBe(tag)
    expect(languageName(tag), tag).not.toBe('')
  }
})

test('what people type', () => {
  expect(tagOf(' DE ')).toBe('de')
  expect(tagOf('pt_br')).toBe('pt-BR')
  expect(tagOf('german')).toBe('de')
  expect(tagOf('Deutsch')).toBe('de')
  expect(tagOf('日本語')).toBe('ja')
  expect(tagOf('tlh')).toBe('tlh')
  for (const none of ['', '  ', 'klingon', 'd', 'de-', 'de--x', 'germ an']) expect(tagOf(none), none).toBeUndefined()
})
