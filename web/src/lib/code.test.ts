import { describe, expect, test, vi } from 'vitest'
import { base } from '../test/browser'
import type { Call } from './code'

const load = () => import('./code')

// words are the arguments that a shell makes of a command.
function words(command: string, variables: Record<string, string> = {}): string[] {
  const found = ['']
  const parts = /(\s+)|'([^']*)'|"([^"]*)"|\\(.)|([^\s'"\\]+)/g
  for (const [, space, single, double, escaped, bare] of command.replaceAll('\\\n', '').matchAll(parts)) {
    const doubled = double?.replace(/\$(\w+)/g, (_, name) => variables[name]!)
    found.push(space ? '' : `${found.pop()}${single ?? doubled ?? escaped ?? bare}`)
  }
  return found
}

// run runs JavaScript of the console in Node and returns what it asked for.
async function run(code: string, env: Record<string, string>): Promise<Request> {
  let got: Request | undefined
  const ask = async (url: string, init?: RequestInit) => {
    got = new Request(url, init)
    return Response.json({})
  }
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor
  await new AsyncFunction('fetch', 'process', 'console', code)(ask, { env }, { log: vi.fn() })
  return got!
}

const text = `it's "quoted" \\ and\n\`new\` \${line}`

const calls: [string, Call][] = [
  ['a list', { method: 'GET', path: '/api/stream?limit=25' }],
  ['a filter with a quote', { method: 'GET', path: "/api/stream?search=it's" }],
  ['a body', { method: 'POST', path: '/api/stream', body: { name: text } }],
  ['a POST without a body', { method: 'POST', path: '/api/stream/abc/start-pull' }],
  ['a change', { method: 'PATCH', path: '/api/stream/abc', body: { name: text, record: true } }],
  ['a deletion', { method: 'DELETE', path: '/api/stream/abc' }],
]

describe.each(calls)('%s', (_, call) => {
  const url = base.slice(0, -1) + call.path

  test('as curl', async () => {
    const { asCurl } = await load()
    const [curl, ...rest] = words(asCurl(call), { WEIR_API_KEY: 'key' })
    expect(curl).toBe('curl')
    const value = (flag: string) => (rest.includes(flag) ? rest[rest.indexOf(flag) + 1] : undefined)
    const body = value('-d')
    expect(value('-X') ?? (body === undefined ? 'GET' : 'POST')).toBe(call.method)
    expect(body && JSON.parse(body)).toEqual(call.body)
    expect(rest).toContain('Authorization: Bearer key')
    expect(rest.includes('Content-Type: application/json')).toBe(call.body !== undefined)
    expect(rest.filter((word) => word.startsWith('https:'))).toEqual([url])
  })

  test('as JavaScript', async () => {
    const { asJavaScript } = await load()
    const request = await run(asJavaScript(call), { WEIR_API_KEY: 'key' })
    expect(request.url).toBe(new URL(url).href)
    expect(request.method).toBe(call.method)
    expect(request.headers.get('Authorization')).toBe('Bearer key')
    const body = await request.text()
    expect(body ? JSON.parse(body) : undefined).toEqual(call.body)
    if (body) expect(request.headers.get('Content-Type')).toBe('application/json')
  })
})

describe('secrets come from the environment', () => {
  const call: Call = {
    method: 'POST',
    path: '/api/transcode',
    body: { credentials: { accessKeyId: '$S3_KEY', secretAccessKey: '$S3_SECRET' }, name: 'costs $S3_KEY' },
    secrets: ['S3_KEY', 'S3_SECRET'],
  }
  const env = { WEIR_API_KEY: 'key', S3_KEY: 'AKIA', S3_SECRET: 'a/b+c' }
  const want = { credentials: { accessKeyId: 'AKIA', secretAccessKey: 'a/b+c' }, name: 'costs $S3_KEY' }

  test('as curl', async () => {
    const { asCurl } = await load()
    expect(JSON.parse(words(asCurl(call), env).at(-1)!)).toEqual(want)
  })

  test('as JavaScript', async () => {
    const { asJavaScript } = await load()
    expect(await (await run(asJavaScript(call), env)).json()).toEqual(want)
  })
})

test('what wants a log-in says so', async () => {
  const { asCurl, asJavaScript } = await load()
  const call: Call = { method: 'GET', path: '/api/node', login: true }
  expect(words(asCurl(call), { WEIR_TOKEN: 'token' })).toContain('Authorization: JWT token')
  const request = await run(asJavaScript(call), { WEIR_TOKEN: 'token' })
  expect(request.headers.get('Authorization')).toBe('JWT token')
})
