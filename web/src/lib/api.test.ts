import { expect, test, vi } from 'vitest'
import { base, cut, serve } from '../test/browser'

const load = () => import('./api')

test('a call goes below the prefix, with the token', async () => {
  const { api, ask } = await load()
  const got = serve(() => Response.json({ id: 'abc' }))
  expect(await ask(api.GET('/api/stream/{id}', { params: { path: { id: 'a/b' } } }))).toEqual({ id: 'abc' })
  expect(got[0]!.url).toBe(`${base}api/stream/a%2Fb`)
  expect(got[0]!.headers.get('Authorization')).toBe('JWT token')
})

test('the chosen project is in the address', async () => {
  const { api, ask, project } = await load()
  const got = serve(() => Response.json([]))
  project.set('p1')
  await ask(api.GET('/api/stream', { params: { query: { limit: 5 } } }))
  project.set('')
  await ask(api.GET('/api/stream', { params: { query: { limit: 5 } } }))
  expect(got.map((request) => new URL(request.url).search)).toEqual(['?limit=5&projectId=p1', '?limit=5'])
})

// Firefox has no body of a Request; Chromium sends one that is taken from a Request over HTTP/2 only.
test('in a project, the body of a request is sent too', async () => {
  const { api, ask, project } = await load()
  const got = serve(() => Response.json({ id: 'abc' }))
  project.set('p1')
  vi.spyOn(Request.prototype, 'body', 'get').mockReturnValue(null)
  await ask(api.POST('/api/stream', { body: { name: 'The show' } }))
  vi.restoreAllMocks()
  const [request] = got
  expect(request!.method).toBe('POST')
  expect(request!.headers.get('Content-Type')).toBe('application/json')
  expect(await request!.json()).toEqual({ name: 'The show' })
})

test('a request can be aborted, also in a project', async () => {
  const { api, ask, project } = await load()
  serve(() => new Promise(() => {}))
  project.set('p1')
  const abort = new AbortController()
  const answer = ask(api.GET('/api/stream', { signal: abort.signal }))
  abort.abort()
  await expect(answer).rejects.toMatchObject({ name: 'AbortError' })
})

test('errors have the status and the sentence of the API', async () => {
  const { api, ask } = await load()
  serve(() => Response.json({ errors: ['there is no such stream'] }, { status: 404 }))
  const answer = ask(api.GET('/api/stream/{id}', { params: { path: { id: 'abc' } } }))
  await expect(answer).rejects.toMatchObject({ status: 404, message: 'there is no such stream' })
})

test('without a connection the status is 0', async () => {
  const { api, ask } = await load()
  serve(cut)
  await expect(ask(api.GET('/api/stream'))).rejects.toMatchObject({ status: 0, message: 'The server does not answer.' })
})

test('a page of a list has the cursor of the next one, and the count', async () => {
  const { api, askPage } = await load()
  const first = `<${base}api/stream?cursor=before>; rel="prev", <${base}api/stream?cursor=a%2Bb&limit=2>; rel="next"`
  const answers = [
    Response.json([{ id: 'a' }, { id: 'b' }], { headers: { Link: first, 'X-Total-Count': '3' } }),
    Response.json([{ id: 'c' }], { headers: { Link: `</api/stream?cursor=before>; rel="prev"` } }),
  ]
  serve(() => answers.shift()!)
  expect(await askPage(api.GET('/api/stream'))).toEqual({ items: [{ id: 'a' }, { id: 'b' }], next: 'a+b', total: 3 })
  expect(await askPage(api.GET('/api/stream'))).toEqual({ items: [{ id: 'c' }], next: '', total: undefined })
})
