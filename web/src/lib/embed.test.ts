import { expect, test } from 'vitest'
import play from '../../../docs/play.md?raw'
import quickstart from '../../../docs/quickstart.md?raw'
import { embedCode } from './embed'

test('a title stays inside its attribute', () => {
  expect(embedCode('https://example.com/play/abc', 'Q&A: "why" <b> &quot;')).toContain(
    'src="https://example.com/play/abc" title="Q&amp;A: &quot;why&quot; &lt;b&gt; &amp;quot;" width="640"',
  )
})

test('the manual has the same snippet', () => {
  const code = embedCode('http://localhost:8080/play/PLAYBACK_ID', 'My film')
  for (const page of [play, quickstart]) expect(page.replace(/\s+/g, ' ')).toContain(code)
})
