import { beforeEach, describe, expect, test, vi } from 'vitest'
import { cut, never, pass, serve, until } from '../test/browser'

const piece = 32 * 1024 * 1024

// Server has the assets and uploads of weir, and may have a bad day.
class Server {
  readonly assets: { id: string; phase: string }[] = []
  readonly sizes = new Map<string, number>() // by upload
  readonly got = new Map<string, number>() // bytes, by upload
  readonly requests: string[] = []
  // failing answers a request in the place of the server, if it returns something.
  failing: (request: Request) => Response | undefined | Promise<Response | undefined> = () => undefined

  answer = async (request: Request): Promise<Response> => {
    const { pathname, searchParams } = new URL(request.url)
    const path = pathname.slice('/weir/api'.length)
    this.requests.push(`${request.method} ${path}`)
    const failed = await this.failing(request)
    if (failed) return failed
    if (path === '/asset/request-upload') {
      const id = `asset${this.assets.length + 1}`
      this.assets.push({ id, phase: 'uploading' })
      return Response.json({ asset: { id }, tusEndpoint: `http://internal/api/asset/upload/tus?token=token-${id}` })
    }
    const asset = this.assets.find(({ id }) => path === `/asset/${id}`)
    if (asset && request.method === 'GET') return Response.json({ id: asset.id, status: { phase: asset.phase } })
    if (asset && request.method === 'DELETE') {
      this.assets.splice(this.assets.indexOf(asset), 1)
      return new Response(null, { status: 204 })
    }
    const name = path.split('/').at(-1)!
    if (path === '/asset/upload/tus') {
      const made = `upload${this.sizes.size + 1}-${searchParams.get('token')}`
      this.sizes.set(made, Number(request.headers.get('Upload-Length')))
      this.got.set(made, 0)
      // The server knows nothing of the prefix of the proxy.
      return new Response(null, { status: 201, headers: { Location: `/api/asset/upload/tus/${made}` } })
    }
    const offset = this.got.get(name)
    if (offset === undefined) return Response.json({ errors: ['there is nothing'] }, { status: 404 })
    if (request.method === 'PATCH') {
      if (Number(request.headers.get('Upload-Offset')) !== offset) return new Response(null, { status: 409 })
      this.got.set(name, offset + Number(request.headers.get('X-Size')))
    }
    const headers = { 'Upload-Offset': String(this.got.get(name)), 'Upload-Length': String(this.sizes.get(name)) }
    return new Response(null, { status: request.method === 'PATCH' ? 204 : 200, headers })
  }

  // count is the number of requests with a method.
  count = (method: string) => this.requests.filter((request) => request.startsWith(`${method} `)).length
}

let server: Server
beforeEach(() => {
  server = new Server()
  serve(server.answer)
})

// open opens a page that uploads.
async function open() {
  const [page] = await Promise.all([import('./uploads'), import('tus-js-client')])
  return { ...page, states: () => page.uploads.value.map((upload) => upload.state) }
}

// film is a file. It takes no memory, whatever its size.
function film(name = 'film.mp4', size = 1000): File {
  const slice = (start: number, end: number) => ({ size: Math.min(end, size) - start })
  return { name, size, type: 'video/mp4', lastModified: 1, slice } as unknown as File
}

const refuse = (status: number, body: unknown = undefined) =>
  body === undefined ? new Response(null, { status }) : Response.json(body, { status })

test('a file is sent and becomes an asset', async () => {
  const { add, uploads, active } = await open()
  add([film()], { c2pa: true })
  expect(active()).toBe(true)
  await until(() => expect(uploads.value[0]).toMatchObject({ state: 'done', sent: 1000, assetID: 'asset1' }))
  expect(active()).toBe(false)
  expect(server.requests).toEqual([
    'POST /asset/request-upload',
    'POST /asset/upload/tus',
    'PATCH /asset/upload/tus/upload1-token-asset1', // below the prefix
  ])
  expect([...server.got.values()]).toEqual([1000])
})

test('a large file is sent in pieces', async () => {
  const { add, states } = await open()
  add([film('film.mp4', piece + 1)])
  await until(() => expect(states()).toEqual(['done']))
  expect(server.count('PATCH')).toBe(2)
  expect([...server.got.values()]).toEqual([piece + 1])
})

test('two at once, the others wait for their turn', async () => {
  const { add, uploads, pause, states } = await open()
  server.failing = (request) => (request.method === 'PATCH' ? never() : undefined)
  add(['a', 'b', 'c', 'd'].map((name) => film(name)))
  await until(() => expect(server.count('PATCH')).toBe(2))
  expect(states()).toEqual(['sending', 'sending', 'waiting', 'waiting'])
  pause(uploads.value[0]!.id)
  expect(states()).toEqual(['paused', 'sending', 'sending', 'waiting'])
})

test('finished uploads go from the list once all are done', async () => {
  const { add, states } = await open()
  add([film('a'), film('b'), film('c')])
  await until(() => expect(states()).toEqual(['done', 'done', 'done']))
  await pass(15_000)
  expect(states()).toEqual([])
})

describe('when something goes wrong', () => {
  test.each([
    ['the network is cut', cut],
    ['a proxy has no server', () => refuse(502)],
    ['another request holds the upload', () => refuse(423)],
    ['the offset is another one', () => refuse(409)],
    ['there are too many requests', () => refuse(429)],
  ])('%s: it goes on where it was', async (_, answer) => {
    const { add, uploads } = await open()
    let failures = 2
    server.failing = (request) => {
      if (request.method === 'PATCH' && request.headers.get('Upload-Offset') !== '0' && failures-- > 0) return answer()
    }
    add([film('film.mp4', 2 * piece)])
    await until(() => expect(uploads.value[0]!.state).toBe('offline'))
    await until(() => expect(uploads.value[0]!.state).toBe('done'))
    expect(server.count('HEAD')).toBe(2) // asks what the server has
    expect(server.count('POST')).toBe(2) // one asset, one upload
    expect([...server.got.values()]).toEqual([2 * piece])
  })

  test('it waits longer after each failure, and tries at once when the browser is online again', async () => {
    const { add, states } = await open()
    let tries = 0
    server.failing = () => {
      tries++
      return cut()
    }
    add([film()])
    const at = async (ms: number, want: number) => {
      await pass(ms)
      expect(tries).toBe(want)
    }
    await at(0, 1)
    await at(999, 1)
    await at(1, 2)
    await at(2000, 3)
    await at(4000, 4)
    await at(8000, 5)
    await at(10_000, 6) // never longer
    await at(10_000, 7)
    dispatchEvent(new Event('online'))
    await at(0, 8)
    server.failing = () => undefined
    dispatchEvent(new Event('online'))
    await until(() => expect(states()).toEqual(['done']))
  })

  test('after it went on, it waits as briefly as at first', async () => {
    const { add, states } = await open()
    let patches = 0
    server.failing = (request) => {
      if (request.method !== 'PATCH') return
      patches++
      if (patches !== 4) return cut()
      return new Promise((resolve) => setTimeout(() => resolve(undefined), 600))
    }
    add([film('film.mp4', 2 * piece)])
    await pass(1000 + 2000 + 4000)
    expect(patches).toBe(4)
    await pass(600)
    expect(patches).toBe(5) // the second piece is cut
    await pass(1000)
    expect(patches).toBe(6)
    server.failing = () => undefined
    await until(() => expect(states()).toEqual(['done']))
  })

  test('a refusal is said, and nothing is tried until the person wants it', async () => {
    const { add, uploads, resume } = await open()
    server.failing = (request) =>
      request.method === 'PATCH' ? refuse(413, { errors: ['the account has no storage left'] }) : undefined
    add([film()])
    await until(() =>
      expect(uploads.value[0]).toMatchObject({ state: 'failed', error: 'the account has no storage left' }),
    )
    const { length } = server.requests
    await pass(60_000)
    expect(server.requests).toHaveLength(length)
    server.failing = () => undefined
    resume(uploads.value[0]!.id)
    await until(() => expect(uploads.value[0]).toMatchObject({ state: 'done', error: '', assetID: 'asset2' }))
  })

  test('what is refused before it begins is said too', async () => {
    const { add, uploads } = await open()
    server.failing = () => refuse(400, { errors: ['the name is too long'] })
    add([film()])
    await until(() => expect(uploads.value[0]).toMatchObject({ state: 'failed', error: 'the name is too long' }))
    expect(server.requests).toHaveLength(1)
  })

  test('a failed upload gives its place to the next', async () => {
    const { add, states } = await open()
    server.failing = (request) => (request.url.includes('request-upload') ? refuse(400) : undefined)
    add(['a', 'b', 'c'].map((name) => film(name)))
    await until(() => expect(states()).toEqual(['failed', 'failed', 'failed']))
  })

  test('a connection on which nothing moves is given up', async () => {
    const { add, uploads } = await open()
    server.failing = (request) => (request.method === 'PATCH' ? never() : undefined)
    add([film()])
    await until(() => expect(server.count('PATCH')).toBe(1))
    server.failing = () => undefined
    await pass(29_000)
    expect(uploads.value[0]!.state).toBe('sending')
    await pass(8000)
    await until(() => expect(uploads.value[0]!.state).toBe('done'))
    expect(server.count('HEAD')).toBe(1)
  })
})

describe('the person', () => {
  test('pauses and continues', async () => {
    const { add, uploads, pause, resume, states } = await open()
    server.failing = (request) => (request.headers.get('Upload-Offset') === String(piece) ? never() : undefined)
    add([film('film.mp4', 2 * piece)])
    await until(() => expect(server.count('PATCH')).toBe(2))
    const { id } = uploads.value[0]!
    pause(id)
    server.failing = () => undefined
    await pass(120_000)
    expect(states()).toEqual(['paused'])
    expect(server.count('PATCH')).toBe(2)
    resume(id)
    await until(() => expect(states()).toEqual(['done']))
    expect(server.count('PATCH')).toBe(3) // not from the start
  })

  test('pauses one that waits for its connection', async () => {
    const { add, uploads, pause, states } = await open()
    server.failing = cut
    add([film()])
    await until(() => expect(states()).toEqual(['offline']))
    pause(uploads.value[0]!.id)
    const { length } = server.requests
    await pass(120_000)
    expect(states()).toEqual(['paused'])
    expect(server.requests).toHaveLength(length)
  })

  test('cancels: the server forgets it', async () => {
    const { add, uploads, cancel } = await open()
    server.failing = (request) => (request.method === 'PATCH' ? never() : undefined)
    add([film()])
    await until(() => expect(server.count('PATCH')).toBe(1))
    await cancel(uploads.value[0]!.id)
    expect(uploads.value).toEqual([])
    expect(server.assets).toEqual([])
    expect(localStorage).toHaveLength(0)
  })

  test('cancels one that is being made: the server forgets it, too', async () => {
    const { add, uploads, cancel } = await open()
    add([film()])
    await cancel(uploads.value[0]!.id)
    await until(() => expect(server.count('DELETE')).toBe(1))
    expect(server.assets).toEqual([])
    expect(server.count('PATCH')).toBe(0)
  })

  test('cancels what is done: the asset stays', async () => {
    const { add, uploads, cancel, states } = await open()
    add([film()])
    await until(() => expect(states()).toEqual(['done']))
    await cancel(uploads.value[0]!.id)
    expect(server.assets).toHaveLength(1)
  })
})

describe('after the page was closed', () => {
  // closed sends half of a file and closes the page.
  async function closed() {
    const { add } = await open()
    server.failing = (request) => (request.headers.get('Upload-Offset') === String(piece) ? never() : undefined)
    add([film('film.mp4', 2 * piece)])
    await until(() => expect(server.count('PATCH')).toBe(2))
    vi.clearAllTimers()
    vi.resetModules()
    server.failing = () => undefined
    server.requests.length = 0
  }

  // again chooses the file once more, and waits until it is there.
  async function again(file = film('film.mp4', 2 * piece)) {
    const { add, states } = await open()
    add([file])
    await until(() => expect(states()).toEqual(['done']))
  }

  test('the same file continues where it was', async () => {
    await closed()
    await again()
    expect(server.requests).toEqual([
      'GET /asset/asset1',
      'HEAD /asset/upload/tus/upload1-token-asset1',
      'PATCH /asset/upload/tus/upload1-token-asset1',
    ])
    expect(localStorage).toHaveLength(0)
  })

  test('another file does not', async () => {
    await closed()
    await again(film('film.mp4', 10))
    expect(server.assets).toHaveLength(2)
  })

  test.each([
    ['is complete', () => (server.assets[0]!.phase = 'processing')],
    ['is deleted', () => server.assets.splice(0)],
    ['began half a day ago', () => vi.setSystemTime(Date.now() + 12 * 3600 * 1000 + 1)],
  ])('one that %s is made anew', async (_, change) => {
    await closed()
    change()
    await again()
    expect(server.count('POST')).toBe(2)
  })

  test('what is remembered and can’t be read is forgotten', async () => {
    await closed()
    localStorage.setItem(localStorage.key(0)!, '{broken')
    await again()
    expect(server.count('POST')).toBe(2)
  })

  test('of two copies, one continues and one is new', async () => {
    await closed()
    const { add, states } = await open()
    add([film('film.mp4', 2 * piece), film('film.mp4', 2 * piece)])
    await until(() => expect(states()).toEqual(['done', 'done']))
    expect([...server.got.values()]).toEqual([2 * piece, 2 * piece])
  })
})

test('who leaves is warned while files are sent', async () => {
  const { add, states } = await open()
  const leave = () => !dispatchEvent(new Event('beforeunload', { cancelable: true }))
  expect(leave()).toBe(false)
  add([film()])
  expect(leave()).toBe(true)
  await until(() => expect(states()).toEqual(['done']))
  expect(leave()).toBe(false)
})
