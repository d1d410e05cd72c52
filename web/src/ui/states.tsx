// What a page shows before, instead of and after its data.
import type { ComponentChildren } from 'preact'
import type { List, Loaded } from '../lib/load'
import { count } from '../lib/format'

export function Loading({ what = 'Loading' }: { what?: string }) {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" />
      {what} …
    </div>
  )
}

// Empty tells what will be here and what to do to have it.
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  )
}

// Problem tells what went wrong, and offers what a person can do about it.
export function Problem({ of, again }: { of: { status: number; message: string }; again?: () => void }) {
  const title =
    of.status === 403
      ? 'You may not see this'
      : of.status === 404
        ? 'There is nothing here'
        : of.status === 0
          ? 'No connection'
          : 'That did not work'
  return (
    <div class="problem" role="alert">
      <h2>{title}</h2>
      <p>{of.status === 404 ? 'The address may be mistyped, or what was here is gone.' : of.message}</p>
      {again && of.status !== 403 && of.status !== 404 && (
        <button type="button" class="quiet" onClick={again}>
          Try again
        </button>
      )}
    </div>
  )
}

// Unloaded stands where a part of the page would be whose script could not be loaded. Some browsers
// keep in mind that a script failed, so only a new page can load it.
export function Unloaded({ what }: { what: string }) {
  return <Problem of={{ status: 500, message: `The ${what} could not be loaded.` }} again={() => location.reload()} />
}

// Show shows what was loaded, or its state.
export function Show<T>({
  of,
  children,
  empty,
}: {
  of: Loaded<T>
  children: (data: T) => ComponentChildren
  empty?: ComponentChildren
}) {
  if (of.data === undefined) return of.error ? <Problem of={of.error} again={of.reload} /> : <Loading />
  if (empty !== undefined && Array.isArray(of.data) && of.data.length === 0) return <>{empty}</>
  return (
    <>
      {of.error && <Problem of={of.error} again={of.reload} />}
      {children(of.data)}
    </>
  )
}

// ShowList does the same for a list, with a button for the next page.
export function ShowList<T>({
  of,
  children,
  empty,
}: {
  of: List<T>
  children: (items: T[]) => ComponentChildren
  empty: ComponentChildren
}) {
  return (
    <Show of={of} empty={empty}>
      {(items) => (
        <>
          {children(items)}
          {of.more && (
            <p class="more">
              <button type="button" class="quiet" onClick={of.more}>
                Show more
              </button>
              {of.total !== undefined && (
                <span class="hint">
                  {count(items.length)} of {count(of.total)}
                </span>
              )}
            </p>
          )}
        </>
      )}
    </Show>
  )
}
