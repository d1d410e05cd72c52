import { expect, test } from 'vitest'
import { lineAt, parts } from './lines'

const lines = [1, 3, 3, 8].map((start) => ({ start, text: String(start) }))

test('the line that is said, or was last', () => {
  expect(lineAt(lines, 0)).toBe(-1)
  expect(lineAt(lines, 1)).toBe(0)
  expect(lineAt(lines, 2.995)).toBe(2) // a seek to 3
  expect(lineAt(lines, 7)).toBe(2)
  expect(lineAt(lines, 100)).toBe(3)
  expect(lineAt([], 1)).toBe(-1)
})

test('places of what was searched for', () => {
  expect(parts('Guten Tag', '')).toEqual(['Guten Tag'])
  expect(parts('Guten Tag', 'tag')).toEqual(['Guten ', 'Tag', ''])
  expect(parts('Guten Tag', 'Nacht')).toEqual(['Guten Tag'])
  expect(parts('an (old) man', '(OLD)')).toEqual(['an ', '(old)', ' man'])
  expect(parts('ÄÖÜ äöü', 'äö')).toEqual(['', 'ÄÖ', 'Ü ', 'äö', 'ü'])
  for (const each of '\\^$.*+?()[]{}|/-') expect(parts(`a${each}b`, each)).toEqual(['a', each, 'b'])
})
