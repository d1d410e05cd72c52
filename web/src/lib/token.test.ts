import { expect, test, vi } from 'vitest'
import { base, left, pass } from '../test/browser'

const minute = 60_000

// log counts the requests for a token; each one is valid for ten minutes.
function log(status = () => 200) {
  const asked = vi.fn(async (_: string | URL | Request, init?: RequestInit) => {
    expect(init?.method).toBe('POST')
    const body = { token: `token ${asked.mock.calls.length}`, expiresAt: Date.now() + 10 * minute, form: 'value' }
    return status() === 200 ? Response.json(body) : Response.json({ errors: ['not now'] }, { status: status() })
  })
  vi.stubGlobal('fetch', asked)
  return asked
}

test('is asked for once, also by callers at the same time', async () => {
  const { token, formValue } = await import('./token')
  const asked = log()
  expect(await Promise.all([token(), token(), token()])).toEqual(['token 1', 'token 1', 'token 1'])
  expect(String(asked.mock.calls[0]![0])).toBe(`${base}session/token`)
  expect(await token()).toBe('token 1')
  expect(formValue()).toBe('value')
})

test('is renewed a minute before it ends', async () => {
  const { token } = await import('./token')
  log()
  await token()
  await pass(9 * minute - 1)
  expect(await token()).toBe('token 1')
  await pass(1)
  expect(await token()).toBe('token 2')
})

test('a failure is said with its status, and is over with the next call', async () => {
  const { token } = await import('./token')
  let status = 503
  log(() => status)
  await expect(token()).rejects.toMatchObject({ status: 503, temporary: true, message: 'not now' })
  status = 200
  expect(await token()).toBe('token 2')
})

test('a browser that is not logged in goes to the log-in page, and comes back', async () => {
  const { token } = await import('./token')
  log(() => 401)
  Object.assign(location, { pathname: '/weir/streams/abc', search: '?tab=health' })
  let came = false
  void token().then(() => (came = true))
  await pass(0)
  expect(left).toEqual([`${base}login?next=streams%2Fabc%3Ftab%3Dhealth`])
  expect(came).toBe(false)
})
