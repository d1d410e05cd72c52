// The events of the project as they happen: one connection for the whole page.
import { root, signed, type Schemas } from './api'

export type WeirEvent = Schemas['Event']
type Listener = (event: WeirEvent | 'missed') => void

const listeners = new Set<Listener>()
let running = false

// follow calls a function with every event from now on, and with 'missed' when some may have been
// missed, so that whatever depends on events is loaded again. It returns the function that ends it.
export function follow(listener: Listener): () => void {
  listeners.add(listener)
  if (!running) {
    running = true
    void run()
  }
  return () => listeners.delete(listener)
}

function tell(event: WeirEvent | 'missed') {
  for (const listener of [...listeners]) listener(event)
}

const retryAfter = { least: 1000, most: 30_000 }

// run reads events until the page ends. EventSource can't send the header with the token. A page that
// nobody sees lets go of its connection, and continues later where it was: browsers have six of them
// for a server, and with a page that holds one in each of six tabs the seventh would load nothing.
async function run() {
  let cursor = ''
  let wait = retryAfter.least
  for (let first = true; ; first = false) {
    await visible()
    const hidden = new AbortController()
    const onChange = () => document.hidden && hidden.abort()
    document.addEventListener('visibilitychange', onChange)
    try {
      const url = new URL(root + '/api/events')
      if (cursor) url.searchParams.set('cursor', cursor)
      const answer = await fetch(await signed(new Request(url, { signal: hidden.signal })))
      if (answer.status === 410) cursor = ''
      if (answer.ok && answer.body) {
        if (!first && !cursor) tell('missed')
        wait = retryAfter.least
        for await (const message of messages(answer.body)) {
          if (message.id) cursor = message.id
          if (message.data) tell(JSON.parse(message.data) as WeirEvent)
        }
      }
    } catch {
      // The connection broke: it is opened again below.
    }
    document.removeEventListener('visibilitychange', onChange)
    if (hidden.signal.aborted) continue
    await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)))
    wait = Math.min(wait * 2, retryAfter.most)
  }
}

// visible resolves as soon as somebody sees the page.
function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve()
  return new Promise((resolve) => {
    const onChange = () => {
      if (document.hidden) return
      document.removeEventListener('visibilitychange', onChange)
      resolve()
    }
    document.addEventListener('visibilitychange', onChange)
  })
}

interface Message {
  id: string
  data: string
}

// messages parses Server-Sent Events: those that have an id or data.
export async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
  let id = ''
  let data: string[] = []
  let rest = ''
  try {
    for (;;) {
      const { done, value: text } = await reader.read()
      if (done) return
      const lines = (rest + text).split('\n')
      rest = lines.pop()!
      for (const ended of lines) {
        const line = ended.replace(/\r$/, '')
        const value = line.slice(line.indexOf(':') + 1).replace(/^ /, '')
        if (line.startsWith('id:')) id = value
        if (line.startsWith('data:')) data.push(value)
        if (line !== '') continue
        if (id || data.length > 0) yield { id, data: data.join('\n') }
        id = ''
        data = []
      }
    }
  } finally {
    void reader.cancel().catch(() => {}) // it broke by itself
  }
}
