// The uploads of this browser: a queue that goes on while a person visits other pages. Files are
// sent by the tus protocol, in pieces, so that an upload continues where it was cut.
import { signal } from '@preact/signals'
import type { DetailedError, Upload as Tus } from 'tus-js-client'
import { api, ask, root, type Schemas } from './api'
import { type ApiError, sentence } from './error'

export type UploadOptions = Omit<Schemas['NewAsset'], 'name'>

export type UploadState = 'waiting' | 'sending' | 'offline' | 'paused' | 'done' | 'failed'

export interface Upload {
  id: number
  file: File
  options: UploadOptions
  state: UploadState
  sent: number // bytes that the server has, or that are on their way
  speed: number // bytes per second
  error: string
  assetID: string // '' until the asset exists
}

export const uploads = signal<Upload[]>([])

// active tells whether leaving the page would cut an upload.
export const active = () => uploads.value.some((u) => ['waiting', 'sending', 'offline', 'paused'].includes(u.state))

const atOnce = 2
const piece = 32 * 1024 * 1024 // small enough for proxies that keep a request until it is complete
const retry = { least: 1000, most: 10_000 }
const shownFor = 15_000 // ms that finished uploads stay on the list
const stalled = 30_000 // ms without a byte, after which the connection is taken for dead

interface Running {
  tus: Tus
  timer: number
  failures: number
  movedAt: number
}

const running = new Map<number, Running>()
let last = 0

function change(id: number, patch: Partial<Upload>) {
  uploads.value = uploads.value.map((u) => (u.id === id ? { ...u, ...patch } : u))
}

const find = (id: number) => uploads.value.find((u) => u.id === id)

const inState = (state: UploadState) => uploads.value.filter((u) => u.state === state).map((u) => u.id)

// add puts files into the queue.
export function add(files: Iterable<File>, options: UploadOptions = {}) {
  listen()
  const added = [...files].map(
    (file): Upload => ({ id: ++last, file, options, state: 'waiting', sent: 0, speed: 0, error: '', assetID: '' }),
  )
  uploads.value = [...uploads.value, ...added]
  next()
}

// pause stops an upload until resume is called.
export function pause(id: number) {
  stop(id)
  change(id, { state: 'paused', speed: 0 })
  next()
}

// resume continues an upload that was paused, or tries one again that failed.
export function resume(id: number) {
  change(id, { state: 'waiting', error: '' })
  next()
}

// cancel gives an upload up: the server forgets what it has of it.
export async function cancel(id: number) {
  const upload = find(id)
  if (!upload) return
  stop(id)
  forget(upload.file)
  dismiss(id)
  if (upload.assetID && upload.state !== 'done')
    await ask(api.DELETE('/api/asset/{id}', { params: { path: { id: upload.assetID } } }))
}

// dismiss takes uploads off the list.
export function dismiss(...ids: number[]) {
  for (const id of ids) running.delete(id)
  uploads.value = uploads.value.filter((u) => !ids.includes(u.id))
  next()
}

function stop(id: number) {
  const r = running.get(id)
  clearTimeout(r?.timer)
  void r?.tus.abort()
}

// next starts waiting uploads as long as there is room.
function next() {
  for (
    let free = atOnce - uploads.value.filter((u) => u.state === 'sending' || u.state === 'offline').length;
    free > 0;
    free--
  ) {
    const upload = uploads.value.find((u) => u.state === 'waiting')
    if (!upload) return
    change(upload.id, { state: 'sending' })
    void send(upload.id)
  }
}

// send begins or continues an upload.
async function send(id: number) {
  const known = running.get(id)
  if (known) {
    known.movedAt = Date.now()
    known.tus.start()
    return
  }
  try {
    const upload = find(id)!
    const [place, { Upload: TusUpload }] = await Promise.all([
      begun(upload).then((place) => place ?? begin(upload)),
      import('tus-js-client'),
    ])
    const state = find(id)?.state
    if (state === undefined) {
      await ask(api.DELETE('/api/asset/{id}', { params: { path: { id: place.assetID } } })) // it was cancelled meanwhile
      return
    }
    change(id, { assetID: place.assetID })
    const tus = new TusUpload(upload.file, {
      endpoint: `${root}/api/asset/upload/tus?token=${encodeURIComponent(place.token)}`,
      uploadUrl: place.url,
      uploadSize: upload.file.size,
      chunkSize: piece,
      retryDelays: null, // again() decides when to try again
      storeFingerprintForResuming: false,
      metadata: { filename: upload.file.name, filetype: upload.file.type },
      onProgress: (sent) => moved(id, sent),
      onUploadUrlAvailable: () => {
        // The server may not know that a proxy serves it below a prefix.
        tus.url = `${root}/api/asset/upload/tus/${tus.url?.split('/').pop()}`
        remember(upload.file, { ...place, url: tus.url })
      },
      onError: (error) => failed(id, error),
      onSuccess: () => finished(id),
    })
    running.set(id, { tus, timer: 0, failures: 0, movedAt: Date.now() })
    if (state === 'sending') tus.start()
  } catch (e) {
    const error = e as ApiError
    if (error.temporary) again(id)
    else fail(id, error.message)
  }
}

function finished(id: number) {
  const upload = find(id)
  running.delete(id)
  if (upload) forget(upload.file)
  change(id, { state: 'done', sent: upload?.file.size ?? 0, speed: 0 })
  next()
  if (!active()) setTimeout(() => active() || dismiss(...inState('done')), shownFor)
}

function fail(id: number, error: string) {
  change(id, { state: 'failed', error, speed: 0 })
  next()
}

// failed decides whether an upload is tried again: not if the server refused it.
function failed(id: number, error: Error | DetailedError) {
  const answer = 'originalResponse' in error ? error.originalResponse : null
  const status = answer?.getStatus() ?? 0
  if (status === 0 || status >= 500 || [408, 409, 423, 429].includes(status)) {
    again(id)
    return
  }
  let body: unknown
  try {
    body = JSON.parse(answer!.getBody())
  } catch {
    // The sentence for the status is said.
  }
  const upload = find(id)
  running.delete(id)
  if (upload) forget(upload.file) // what the server has of it can't be continued
  fail(id, sentence(status, body))
}

const delays = new Map<number, number>() // the last delay of uploads that have not begun

// again tries an upload again after a while, or when the browser is online again.
function again(id: number) {
  if (find(id)?.state !== 'sending' && find(id)?.state !== 'offline') return
  change(id, { state: 'offline', speed: 0 })
  const r = running.get(id)
  const failures = r ? r.failures++ : (delays.get(id) ?? 0)
  if (!r) delays.set(id, failures + 1)
  const timer = window.setTimeout(() => go(id), Math.min(retry.least * 2 ** failures, retry.most))
  if (r) r.timer = timer
}

function go(id: number) {
  if (find(id)?.state !== 'offline') return
  clearTimeout(running.get(id)?.timer)
  change(id, { state: 'sending' })
  void send(id)
}

// moved notes that bytes are on their way.
function moved(id: number, sent: number) {
  const upload = find(id)
  const r = running.get(id)
  if (!upload || !r) return
  const now = Date.now()
  const elapsed = (now - r.movedAt) / 1000
  const bytes = sent - upload.sent
  if (elapsed < 0.5 && sent < upload.file.size) return // a few times a second is enough
  r.movedAt = now
  r.failures = 0
  const speed = bytes > 0 ? bytes / Math.max(elapsed, 0.001) : upload.speed
  change(id, { sent, speed: upload.speed ? upload.speed * 0.7 + speed * 0.3 : speed })
}

let listening = false

// listen watches the network, and warns before somebody leaves while files are sent.
function listen() {
  if (listening) return
  listening = true
  window.addEventListener('online', () => {
    for (const id of inState('offline')) go(id)
  })
  window.addEventListener('beforeunload', (e) => active() && e.preventDefault())
  setInterval(() => {
    for (const u of uploads.value) {
      const r = running.get(u.id)
      if (u.state !== 'sending' || !r || u.sent >= u.file.size || Date.now() - r.movedAt < stalled) continue
      void r.tus.abort()
      again(u.id)
    }
  }, 5000)
}

// Place is where the bytes of a file go.
interface Place {
  assetID: string
  token: string
  url?: string // of an upload that has begun
  at: number
}

async function begin({ file, options }: Upload): Promise<Place> {
  const answer = await ask(api.POST('/api/asset/request-upload', { body: { ...options, name: file.name } }))
  return {
    assetID: answer.asset.id,
    token: new URL(answer.tusEndpoint).searchParams.get('token') ?? '',
    at: Date.now(),
  }
}

// An upload that was cut by closing the page continues when the same file is chosen again.
const rememberFor = 12 * 3600 * 1000 // as long as its token is valid
const keyOf = (file: File) => `weir.upload.${file.name}.${file.size}.${file.lastModified}`

// begun returns where an earlier upload of a file can be continued.
async function begun({ id, file }: Upload): Promise<Place | undefined> {
  const place = remembered(file)
  // The same file may be on the list twice. Only the first of them continues.
  const others = uploads.value.filter((u) => u.id !== id && keyOf(u.file) === keyOf(file))
  if (!place || others.some((u) => u.assetID || u.id < id)) return undefined
  if (Date.now() - place.at > rememberFor) return undefined
  try {
    const asset = await ask(api.GET('/api/asset/{id}', { params: { path: { id: place.assetID } } }))
    return asset.status.phase === 'uploading' ? place : undefined
  } catch (e) {
    if ((e as ApiError).status === 404) return undefined // it is gone, or somebody else's
    throw e
  }
}

function remembered(file: File): Place | undefined {
  try {
    return JSON.parse(localStorage.getItem(keyOf(file)) ?? 'null') ?? undefined
  } catch {
    return undefined // it can't be read, so it is of no use
  }
}

const remember = (file: File, place: Place) => localStorage.setItem(keyOf(file), JSON.stringify(place))
const forget = (file: File) => localStorage.removeItem(keyOf(file))
