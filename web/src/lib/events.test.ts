import { describe, expect, test, vi } from 'vitest'
import { base, cut, page, pass, serve, until } from '../test/browser'
import type { WeirEvent } from './events'

const load = () => import('./events')

// chunked is a body that arrives in pieces of a size.
function chunked(text: string, size: number): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close()
      controller.enqueue(bytes.slice(at, at + size))
      at += size
    },
  })
}

describe('Server-Sent Events', () => {
  const parse = async (text: string, size = text.length) => {
    const { messages } = await load()
    const found = []
    for await (const message of messages(chunked(text, size))) found.push(message)
    return found
  }

  const text =
    ': hello\n\nid: 7\ndata: {"name":"Fußball ⚽"}\n\nevent: ping\nid:8\ndata:first\ndata: second\n\nid: 9\n\n'
  const want = [
    { id: '7', data: '{"name":"Fußball ⚽"}' },
    { id: '8', data: 'first\nsecond' },
    { id: '9', data: '' },
  ]

  test.each([1, 2, 3, 5, 1000])('in pieces of %d bytes', async (size) => expect(await parse(text, size)).toEqual(want))

  test.each([1, 4, 1000])('with the line ends of other servers, in pieces of %d bytes', async (size) => {
    expect(await parse(text.replaceAll('\n', '\r\n'), size)).toEqual(want)
  })

  test('a message without its end is left out', async () =>
    expect(await parse('data: 1\n\ndata: 2\n')).toEqual([{ id: '', data: '1' }]))

  test('only one space goes', async () => expect(await parse('data:  two \n\n')).toEqual([{ id: '', data: ' two ' }]))

  test('the connection is let go when nobody reads on', async () => {
    const { messages } = await load()
    const cancel = vi.fn()
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\n\ndata: 2\n\n')),
      cancel,
    })
    for await (const _ of messages(body)) break
    await until(() => expect(cancel).toHaveBeenCalled())
  })
})

// connections are those to the events, in the order in which they were opened.
function connect(statuses: number[] = []) {
  const connections: { cursor: string | null; send: (text: string) => void; close: () => void; gone: boolean }[] = []
  const status = () => statuses.shift() ?? 200
  serve((request) => {
    expect(request.url).toMatch(new RegExp(`^${base}api/events`))
    const code = status()
    if (code === 0) return cut()
    let stream!: ReadableStreamDefaultController<Uint8Array>
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        stream = controller
      },
    })
    const connection = {
      cursor: new URL(request.url).searchParams.get('cursor'),
      send: (text: string) => stream.enqueue(new TextEncoder().encode(text)),
      close: () => stream.close(),
      gone: false,
    }
    request.signal.addEventListener('abort', () => {
      connection.gone = true
      stream.error(request.signal.reason)
    })
    connections.push(connection)
    return new Response(body, { status: code })
  })
  return connections
}

const event = (id: string) => `id: ${id}\ndata: ${JSON.stringify({ id, event: 'stream.started' })}\n\n`

// listen follows the events and returns the ids of those that came.
async function listen() {
  const { follow } = await load()
  const heard: string[] = []
  const stop = follow((e: WeirEvent | 'missed') => heard.push(e === 'missed' ? e : e.id))
  await pass(0)
  return { heard, stop, follow }
}

describe('following', () => {
  test('all listeners share a connection; one that stops hears no more', async () => {
    const connections = connect()
    const { heard, stop, follow } = await listen()
    const others = vi.fn()
    follow(others)
    connections[0]!.send(event('1'))
    await pass(0)
    stop()
    connections[0]!.send(event('2'))
    await pass(0)
    expect(heard).toEqual(['1'])
    expect(others).toHaveBeenCalledTimes(2)
    expect(connections).toHaveLength(1)
  })

  test('a connection that breaks continues where it was', async () => {
    const connections = connect()
    const { heard } = await listen()
    connections[0]!.send(event('1'))
    connections[0]!.close()
    await pass(2000)
    expect(connections[1]!.cursor).toBe('1')
    connections[1]!.send(event('2'))
    await pass(0)
    expect(heard).toEqual(['1', '2'])
  })

  test('without a cursor, some may have been missed', async () => {
    const connections = connect()
    const { heard } = await listen()
    connections[0]!.close()
    await pass(2000)
    expect(connections[1]!.cursor).toBeNull()
    expect(heard).toEqual(['missed'])
  })

  test('a cursor that is too old is given up', async () => {
    const connections = connect([200, 410, 200])
    const { heard } = await listen()
    connections[0]!.send(event('1'))
    connections[0]!.close()
    await pass(5000)
    expect(connections.map((c) => c.cursor)).toEqual([null, '1', null])
    expect(heard).toEqual(['1', 'missed'])
  })

  test('waits longer after each failure, at most half a minute', async () => {
    const random = vi.spyOn(Math, 'random').mockReturnValue(0.5) // neither shorter nor longer
    const connections = connect([0, 503, 0, 0, 0, 0, 0, 200])
    await listen()
    await pass(1000 + 2000 + 4000 + 8000 + 16_000 + 30_000 + 30_000 - 1)
    expect(connections).toHaveLength(1) // with status 503
    await pass(1)
    expect(connections).toHaveLength(2)
    random.mockRestore()
  })

  test('a page that nobody sees has no connection', async () => {
    page.hidden = true
    const connections = connect()
    const { heard } = await listen()
    expect(connections).toHaveLength(0)
    page.show(true)
    await pass(0)
    connections[0]!.send(event('1'))
    await pass(0)
    page.show(false)
    await pass(60_000)
    expect(connections[0]!.gone).toBe(true)
    expect(connections).toHaveLength(1)
    page.show(true)
    await pass(0) // at once
    expect(connections[1]!.cursor).toBe('1')
    connections[1]!.send(event('2'))
    await pass(0)
    expect(heard).toEqual(['1', '2'])
    page.show(false)
    await pass(0)
    page.show(true)
    await pass(0)
    expect(connections[2]!.cursor).toBe('2')
  })

  test('what is no event ends the connection, not the following', async () => {
    const connections = connect()
    const { heard } = await listen()
    connections[0]!.send('id: 1\ndata: {broken\n\n')
    await pass(2000)
    expect(connections[1]!.cursor).toBe('1')
    connections[1]!.send(event('2'))
    await pass(0)
    expect(heard).toEqual(['2'])
  })
})
