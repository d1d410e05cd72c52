// The client of the public API. Whatever the console does goes through here, so a caller with a
// key can do it too.
import createClient, { type Middleware } from 'openapi-fetch'
import type { components, paths } from '../schema'
import { ApiError, sentence } from './error'
import { token } from './token'

export type Schemas = components['schemas']

// root is the address of weir: a page knows it by its <base>, also below a prefix of a proxy.
export const root = new URL('.', document.baseURI).href.replace(/\/$/, '')

// project is the project that the console shows, '' for the default one of the user.
const projectKey = 'weir.project'
export const project = {
  get: () => localStorage.getItem(projectKey) ?? '',
  set: (id: string) => (id ? localStorage.setItem(projectKey, id) : localStorage.removeItem(projectKey)),
}

// signed adds the log-in token and the chosen project to a request.
export async function signed(request: Request): Promise<Request> {
  const id = project.get()
  if (id) {
    const url = new URL(request.url)
    url.searchParams.set('projectId', id)
    // The body is read here: that of a Request is a stream, which browsers send over HTTP/2 or not at all.
    const body = await request.arrayBuffer()
    const { method, headers, signal } = request
    request = new Request(url, { method, headers, signal, body: body.byteLength > 0 ? body : undefined })
  }
  request.headers.set('Authorization', 'JWT ' + (await token()))
  return request
}

const credentials: Middleware = { onRequest: ({ request }) => signed(request) }

export const api = createClient<paths>({ baseUrl: root })
api.use(credentials)

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

// ask waits for an answer and returns its data, or throws an ApiError.
export async function ask<T>(answer: Promise<Answer<T>>): Promise<NonNullable<T>> {
  return (await askAll(answer)).data
}

// askAll does the same and returns the response too, for its headers.
export async function askAll<T>(answer: Promise<Answer<T>>): Promise<{ data: NonNullable<T>; response: Response }> {
  let result: Answer<T>
  try {
    result = await answer
  } catch (e) {
    if (e instanceof ApiError || (e as Error).name === 'AbortError') throw e
    throw new ApiError(0, sentence(0, undefined))
  }
  const { data, error, response } = result
  if (!response.ok) throw new ApiError(response.status, sentence(response.status, error))
  return { data: data as NonNullable<T>, response }
}

// PageOf is one page of a list.
export interface PageOf<T> {
  items: T[]
  next: string // cursor of the next page, '' on the last one
  total?: number // only when the caller asked for the count
}

// askPage waits for one page of a list.
export async function askPage<T>(answer: Promise<Answer<T[]>>): Promise<PageOf<T>> {
  const { data, response } = await askAll(answer)
  const link = /<([^>]*)>\s*;\s*rel="next"/.exec(response.headers.get('Link') ?? '')
  const total = response.headers.get('X-Total-Count')
  return {
    items: data as T[],
    next: link ? (new URL(link[1]!, root).searchParams.get('cursor') ?? '') : '',
    total: total === null ? undefined : Number(total),
  }
}
