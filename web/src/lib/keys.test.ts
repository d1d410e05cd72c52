import { expect, test } from 'vitest'
import { actionOf, keyHelp, within } from './keys'

test('keys do what they do on other video sites', () => {
  expect(actionOf(' ')).toEqual(actionOf('k'))
  expect(actionOf('j')).toEqual({ act: 'seek', by: -10 })
  expect(actionOf('ArrowRight')).toEqual({ act: 'seek', by: 5 })
  expect(actionOf('0')).toEqual({ act: 'jump', part: 0 })
  expect(actionOf('9')).toEqual({ act: 'jump', part: 0.9 })
  expect(actionOf('M')).toEqual({ act: 'mute' }) // caps lock
  for (const other of ['Enter', 'Tab', 'Escape', 'i', 'o', ',', '.', '10', '٣', 'toString', 'constructor'])
    expect(actionOf(other)).toBeUndefined()
})

test('every key of the list does something', () => {
  const names: Record<string, string> = {
    Space: ' ',
    '←': 'ArrowLeft',
    '→': 'ArrowRight',
    '↑': 'ArrowUp',
    '↓': 'ArrowDown',
  }
  for (const key of keyHelp.flatMap(([keys]) => keys).filter((key) => key !== '…'))
    expect(actionOf(names[key] ?? key), key).toBeDefined()
})

test('a seek ends where the video does', () => {
  expect(within(-3, 0, 30)).toBe(0)
  expect(within(33, 0, 30)).toBe(30)
  expect(within(103, 100, 160)).toBe(103)
})
