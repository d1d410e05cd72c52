// The client of the public API. Whatever the console does goes through here, so a caller with a
// key can do it too.
import createClient, { type Middleware } from 'openapi-fetch'
import type { components, paths } from '../schema'
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

// ApiError is an answer that is no success. Its message is what the API said.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }

  // temporary says whether the same request may succeed later.
  get temporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500
  }
}

// signed adds the log-in token and the chosen project to a request.
export async function signed(request: Request): Promise<Request> {
  const id = project.get()
  if (id) {
    const url = new URL(request.url)
    url.searchParams.set('projectId', id)
    request = new Request(url, request)
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

// sentence returns what an error answer says.
export function sentence(status: number, body: unknown): string {
  const errors = (body as { errors?: unknown } | undefined)?.errors
  if (Array.isArray(errors) && errors.length > 0) {
    const sentences = errors.filter((e) => typeof e === 'string' && !e.startsWith('{')) // the others are for programs
    return (sentences.length > 0 ? sentences : errors).join('; ')
  }
  return status === 0 ? 'The server does not answer.' : `The server answered with status ${status}.`
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
