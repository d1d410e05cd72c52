// What the tests have of a browser: the addresses of a page, its storage and events, and a network
// that a function answers. Time stands still unless a test lets it pass.
import { afterEach, beforeEach, vi } from 'vitest'

// base is the address of weir: below a prefix of a proxy, which makes most mistakes with addresses.
export const base = 'https://example.com/weir/'

class Page extends EventTarget {
  hidden = false
  baseURI = base

  // show hides the page or shows it, as another tab of the browser does.
  show(visible: boolean) {
    this.hidden = !visible
    this.dispatchEvent(new Event('visibilitychange'))
  }
}

class Values implements Storage {
  [name: string]: unknown
  private readonly values = new Map<string, string>()
  getItem = (key: string) => this.values.get(key) ?? null
  setItem = (key: string, value: string) => void this.values.set(key, value)
  removeItem = (key: string) => void this.values.delete(key)
  clear = () => this.values.clear()
  key = (index: number) => [...this.values.keys()][index] ?? null
  get length() {
    return this.values.size
  }
}

export let page = new Page()

// left are the addresses that the page went to.
export let left: string[] = []

beforeEach(() => {
  vi.resetModules() // modules have state, such as the token
  vi.useFakeTimers({ now: Date.UTC(2026, 0, 31, 12) })
  page = new Page()
  left = []
  serve(cut)
  const events = new EventTarget()
  for (const [name, value] of Object.entries({
    window: globalThis,
    document: page,
    localStorage: new Values(),
    location: {
      pathname: new URL(base).pathname,
      search: '',
      replace: (to: URL | string) => left.push(String(to)),
    },
    addEventListener: events.addEventListener.bind(events),
    removeEventListener: events.removeEventListener.bind(events),
    dispatchEvent: events.dispatchEvent.bind(events),
    XMLHttpRequest,
    fetch: (input: RequestInfo | URL, init?: RequestInit) => network(new Request(input, init)),
  })) {
    vi.stubGlobal(name, value)
  }
})

afterEach(() => {
  vi.clearAllTimers()
  vi.useRealTimers()
})

export type Answer = (request: Request) => Response | Promise<Response>

let network: (request: Request) => Promise<Response>

// serve answers requests from now on and returns them. The token of the log-in is answered here.
export function serve(answer: Answer): Request[] {
  const got: Request[] = []
  network = async (request) => {
    if (request.url === `${base}session/token`) {
      return Response.json({ token: 'token', expiresAt: Date.now() + 3600_000, form: 'form' })
    }
    got.push(request)
    return new Promise<Response>((resolve, reject) => {
      request.signal.throwIfAborted()
      request.signal.addEventListener('abort', () => reject(request.signal.reason))
      Promise.resolve(request).then(answer).then(resolve, reject)
    })
  }
  return got
}

// cut is an answer of a network without connection.
export const cut = () => Promise.reject(new TypeError('Failed to fetch'))

// never is an answer that does not come.
export const never = () => new Promise<Response>(() => {})

// pass lets time pass, in ms.
export const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms)

// until waits for something, for a minute of that time.
export async function until(what: () => unknown) {
  for (let left = 600; ; left--) {
    try {
      return what()
    } catch (e) {
      if (left === 0) throw e
    }
    await pass(100)
  }
}

// XMLHttpRequest goes the same way as fetch. It has what tus-js-client uses.
class XMLHttpRequest {
  readonly upload: { onprogress?: (e: { lengthComputable: boolean; loaded: number }) => void } = {}
  onload?: () => void
  onerror?: (e: Event) => void
  status = 0
  responseText = ''
  private headers = new Headers()
  private answered = new Headers()
  private method = ''
  private url = ''
  private readonly aborted = new AbortController()

  open(method: string, url: string) {
    this.method = method
    this.url = url
  }

  setRequestHeader(name: string, value: string) {
    this.headers.set(name, value)
  }

  getResponseHeader = (name: string) => this.answered.get(name)

  abort() {
    this.aborted.abort()
  }

  // send says how large a body is, and leaves it out: tests of large files need no memory then.
  send(body: { size: number } | null) {
    const { method, headers } = this
    const signal = this.aborted.signal
    if (body) headers.set('X-Size', String(body.size))
    fetch(this.url, { method, headers, signal })
      .then(async (answer) => {
        this.status = answer.status
        this.answered = answer.headers
        this.responseText = await answer.text()
        if (body) this.upload.onprogress?.({ lengthComputable: true, loaded: body.size })
        this.onload?.()
      })
      .catch(() => signal.aborted || this.onerror?.(new Event('error')))
  }
}
