import { expect, test } from 'vitest'
import { embedCode } from './embed'

test('a title stays inside its attribute', () => {
  expect(embedCode('https://example.com/play/abc', 'Q&A: "why" &quot;')).toContain(
    'src="https://example.com/play/abc" title="Q&amp;A: &quot;why&quot; &amp;quot;" width="640"',
  )
  expect(embedCode('https://example.com/play/abc')).not.toContain('title')
})
