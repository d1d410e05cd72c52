import { expect, test, vi } from 'vitest'
import '../test/browser'

const load = () => import('./viewer')

const nothing = { text: { off: false }, audio: { off: false }, textSize: 'normal', textContrast: 'box' }

test('what a viewer chose is there on the next page', async () => {
  const { recall, remember } = await load()
  expect(recall()).toEqual(nothing)
  remember({ text: { language: 'de', name: 'Deutsch' } })
  remember({ textSize: 'large', textContrast: 'plain' })
  vi.resetModules()
  const next = await load()
  expect(next.recall()).toEqual({
    text: { off: false, language: 'de', name: 'Deutsch' },
    audio: { off: false },
    textSize: 'large',
    textContrast: 'plain',
  })
})

test('with blocked storage it is known until the page is left', async () => {
  vi.stubGlobal('localStorage', {
    getItem() {
      throw new DOMException('blocked', 'SecurityError')
    },
    setItem() {
      throw new DOMException('blocked', 'SecurityError')
    },
  })
  const { recall, remember } = await load()
  expect(recall()).toEqual(nothing)
  remember({ text: { off: true, language: 'de' } })
  remember({ textSize: 'small' })
  expect(recall()).toMatchObject({ text: { off: true, language: 'de' }, textSize: 'small' })
})

test('storage that is full is no failure', async () => {
  vi.stubGlobal('localStorage', {
    getItem: () => null,
    setItem() {
      throw new DOMException('full', 'QuotaExceededError')
    },
  })
  const { recall, remember } = await load()
  remember({ textSize: 'small' })
  expect(recall().textSize).toBe('small')
})

test.each(['', 'null', '[]', '{', '7', '{"text":7,"textSize":"huge"}', '{"text":{"language":7},"textContrast":null}'])(
  'stored %j is as if nothing was',
  async (value) => {
    localStorage.setItem('weir.viewer', value)
    expect((await load()).recall()).toEqual(nothing)
  },
)
