import { h, render } from 'preact'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { pass, serve } from '../test/browser'
import type { LoadOptions } from './load'

const load = () => import('./load')

let unmount = () => {}
afterEach(() => unmount())

// mount runs a hook in a component that shows nothing. The function that it returns has what the hook
// returned last; with other values, it runs the hook with those.
async function mount<T>(hook: (value: string) => T, value: string) {
  const parent = { childNodes: [], nodeType: 1 } as unknown as Element
  let last!: T
  const Component = (props: { value: string }) => {
    last = hook(props.value)
    return null
  }
  const show = async (value: string) => {
    render(h(Component, { value }), parent)
    await pass(100) // effects run after the browser has drawn
  }
  await show(value)
  unmount = () => render(null, parent)
  return { shown: () => last, show }
}

// answers returns a function that loads: each call is answered by the next one, and a number is the
// status of an error.
function answers(...results: (string | number)[]) {
  return vi.fn(async (_: AbortSignal) => {
    const result = results.length > 1 ? results.shift()! : results[0]!
    if (typeof result === 'string') return result
    const { ApiError } = await import('./error')
    throw new ApiError(result, `status ${result}`)
  })
}

// connect opens the connection for events and returns what sends one.
function connect() {
  let stream!: ReadableStreamDefaultController<Uint8Array>
  serve(
    () =>
      new Response(
        new ReadableStream<Uint8Array>({
          start: (controller) => {
            stream = controller
          },
        }),
      ),
  )
  return async (event: string) => {
    stream.enqueue(new TextEncoder().encode(`id: 1\ndata: ${JSON.stringify({ id: '1', event })}\n\n`))
    await pass(0)
  }
}

// use mounts useLoad.
async function use<T>(loadIt: (signal: AbortSignal) => Promise<T>, options?: LoadOptions) {
  const { useLoad } = await load()
  return mount((id: string) => useLoad(loadIt, [id], options), 'a')
}

describe('useLoad', () => {
  test('loads once, and again when the deps change', async () => {
    const get = answers('first', 'second')
    const { shown, show } = await use(get)
    expect(shown()).toMatchObject({ data: 'first', loading: false })
    await show('a')
    expect(get).toHaveBeenCalledTimes(1)
    await show('b')
    expect(shown()).toMatchObject({ data: 'second', loading: false })
  })

  test('an answer that comes after the deps changed is left out', async () => {
    const late: ((text: string) => void)[] = []
    const get = vi.fn((_: AbortSignal) => new Promise<string>((resolve) => late.push(resolve)))
    const { shown, show } = await use(get)
    await show('b')
    expect(get.mock.calls[0]![0].aborted).toBe(true)
    late[1]!('of b')
    late[0]!('of a')
    await pass(100)
    expect(shown().data).toBe('of b')
  })

  test('several events lead to one request, soon after', async () => {
    const send = connect()
    const get = answers('first', 'second')
    const { shown } = await use(get, { follows: (event) => event.event === 'asset.ready' })
    await send('stream.idle')
    await pass(1000)
    expect(get).toHaveBeenCalledTimes(1)
    await send('asset.ready')
    await send('asset.ready')
    await pass(299)
    expect(get).toHaveBeenCalledTimes(1)
    await pass(100)
    expect(get).toHaveBeenCalledTimes(2)
    expect(shown().data).toBe('second')
  })

  test('what is wanted while it loads is loaded afterwards, once', async () => {
    const late: ((text: string) => void)[] = []
    const get = vi.fn((_: AbortSignal) => new Promise<string>((resolve) => late.push(resolve)))
    const { shown } = await use(get)
    shown().reload()
    shown().reload()
    expect(get).toHaveBeenCalledTimes(1)
    late[0]!('old')
    await pass(100)
    expect(get).toHaveBeenCalledTimes(2)
    late[1]!('new')
    await pass(100)
    expect(shown().data).toBe('new')
    expect(get).toHaveBeenCalledTimes(2)
  })

  test('every so many seconds, while somebody sees it', async () => {
    const get = answers('it')
    await use(get, { every: 5 })
    await pass(10_000)
    expect(get).toHaveBeenCalledTimes(3)
    Object.assign(document, { hidden: true })
    await pass(60_000)
    expect(get).toHaveBeenCalledTimes(3)
  })

  test.each([0, 429, 500, 502, 503])('status %d: the data stays, and is loaded again', async (status) => {
    const get = answers('first', status, status, 'later')
    const { shown } = await use(get)
    shown().reload()
    await pass(100)
    expect(shown()).toMatchObject({ data: 'first', error: { status } })
    await pass(3000)
    expect(get).toHaveBeenCalledTimes(3)
    await pass(3000)
    expect(shown()).toMatchObject({ data: 'later' })
    expect(shown().error).toBeUndefined()
  })

  test.each([403, 404])('status %d: the data goes, and nobody asks again', async (status) => {
    const get = answers('first', status)
    const { shown } = await use(get)
    shown().reload()
    await pass(60_000)
    expect(shown()).toMatchObject({ data: undefined, error: { status }, loading: false })
    expect(get).toHaveBeenCalledTimes(2)
  })

  test('a page that is gone loads nothing more', async () => {
    const send = connect()
    const get = answers('first', 0)
    const { shown } = await use(get, { follows: () => true, every: 5 })
    shown().reload()
    await pass(0)
    unmount()
    await send('asset.ready')
    await pass(60_000)
    expect(get).toHaveBeenCalledTimes(2)
  })
})

describe('useList', () => {
  const page = (limit: number, there: number) => ({
    items: Array.from({ length: Math.min(limit, there) }, (_, i) => i),
    next: limit < there ? 'cursor' : '',
    total: there,
  })

  async function use(there: number, size?: number) {
    const { useList } = await load()
    const get = vi.fn(async (_cursor: string, limit: number) => page(limit, there))
    return { get, ...(await mount((search: string) => useList(get, [search], { size }), '')) }
  }

  test('shows more, all in one request, until all is shown', async () => {
    const { get, shown } = await use(60)
    expect(shown()).toMatchObject({ total: 60, data: { length: 25 } })
    for (const limit of [50, 75]) {
      shown().more!()
      await pass(100)
      expect(get).toHaveBeenLastCalledWith('', limit, expect.anything())
    }
    expect(shown().data).toHaveLength(60)
    expect(shown().more).toBeUndefined()
  })

  test('another filter begins at the first page', async () => {
    const { get, shown, show } = await use(60)
    shown().more!()
    await pass(100)
    await show('film')
    expect(get).toHaveBeenLastCalledWith('', 25, expect.anything())
  })

  test('asks for no more than the API gives', async () => {
    const { get, shown } = await use(5000, 600)
    shown().more!()
    await pass(100)
    expect(get).toHaveBeenLastCalledWith('', 1000, expect.anything())
    expect(shown().more).toBeUndefined()
  })
})
