// Hooks that load from the API and follow events, so that no page needs a reload button.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { PageOf } from './api'
import { ApiError } from './error'
import { follow, type WeirEvent } from './events'

// Loaded is something from the API: exactly one of data and error is set once it was loaded. Data
// stays while it is loaded again.
export interface Loaded<T> {
  data?: T
  error?: ApiError
  loading: boolean
  reload: () => void
}

export interface LoadOptions {
  // follows says which events change what was loaded.
  follows?: (event: WeirEvent) => boolean
  // every is the number of seconds between loads, for what no event tells of, such as viewers.
  every?: number
}

const settle = 300 // ms to wait for more events before loading again
const retry = 3000 // ms until a request is repeated that may succeed later

// useLoad loads something when the page shows it, again when deps change, and again after events.
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  deps: unknown[],
  options: LoadOptions = {},
): Loaded<T> {
  const [state, setState] = useState<{ data?: T; error?: ApiError; loading: boolean }>({ loading: true })
  const again = useRef(() => {})
  const latest = useRef({ load, options })
  latest.current = { load, options }
  useEffect(() => {
    const abort = new AbortController()
    let running = false
    let wanted = false
    let timer = 0
    const run = async () => {
      if (running) {
        wanted = true
        return
      }
      running = true
      try {
        const data = await latest.current.load(abort.signal)
        if (!abort.signal.aborted) setState({ data, loading: false })
      } catch (e) {
        if (!abort.signal.aborted) {
          const error = e instanceof ApiError ? e : new ApiError(0, (e as Error).message)
          setState((before) => ({ data: error.temporary ? before.data : undefined, error, loading: false }))
          if (error.temporary) soon(retry)
        }
      }
      running = false
      if (wanted && !abort.signal.aborted) {
        wanted = false
        void run()
      }
    }
    const soon = (wait = settle) => {
      timer ||= window.setTimeout(() => {
        timer = 0
        void run()
      }, wait)
    }
    again.current = run
    setState((before) => ({ data: before.data, loading: true }))
    void run()
    const stop = latest.current.options.follows
      ? follow((event) => (event === 'missed' || latest.current.options.follows?.(event)) && soon())
      : () => {}
    const every = latest.current.options.every
    const interval = every ? window.setInterval(() => document.hidden || void run(), every * 1000) : 0
    return () => {
      abort.abort()
      clearTimeout(timer)
      clearInterval(interval)
      stop()
    }
  }, deps)
  return { ...state, reload: () => again.current() }
}

const maxShown = 1000 // the largest limit of the API

// List is a list that is loaded page by page.
export interface List<T> extends Loaded<T[]> {
  more?: () => void // shows another page; undefined when there is none, or when no more fit on a screen
  total?: number
}

// useList loads a list page by page. load gets the cursor of a page and how many items it should
// have. After an event, all that is shown is loaded again in one request.
export function useList<T>(
  load: (cursor: string, limit: number, signal: AbortSignal) => Promise<PageOf<T>>,
  deps: unknown[],
  options: LoadOptions & { size?: number } = {},
): List<T> {
  const size = options.size ?? 25
  const shown = useRef(size)
  const key = JSON.stringify(deps)
  const lastKey = useRef(key)
  if (lastKey.current !== key) {
    lastKey.current = key
    shown.current = size
  }
  const first = useLoad((signal) => load('', shown.current, signal), deps, options)
  const total = first.data?.total
  return {
    ...first,
    data: first.data?.items,
    total,
    more:
      first.data?.next && shown.current < maxShown
        ? () => {
            shown.current = Math.min(shown.current + size, maxShown)
            first.reload()
          }
        : undefined,
  }
}
