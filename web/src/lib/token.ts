// The log-in token of the console: short-lived, kept in memory only, from the session of the browser.
import { ApiError, sentence } from './error'

const renewBefore = 60_000

let current = { token: '', expiresAt: 0, form: '' }
let asking: Promise<string> | undefined

// token returns a token that is valid for at least a minute. A browser that is not logged in goes
// to the log-in page, and comes back afterwards.
export async function token(): Promise<string> {
  if (Date.now() < current.expiresAt - renewBefore) return current.token
  asking ??= renew().finally(() => (asking = undefined))
  return asking
}

// formValue returns what a form for a page of the server must send in its field `form`.
export const formValue = (): string => current.form

async function renew(): Promise<string> {
  const answer = await fetch(new URL('session/token', document.baseURI), { method: 'POST' })
  if (answer.status === 401) {
    logIn()
    return new Promise(() => {}) // the browser leaves the page
  }
  if (!answer.ok) {
    throw new ApiError(answer.status, sentence(answer.status, await answer.json().catch(() => undefined)))
  }
  current = await answer.json()
  return current.token
}

function logIn() {
  const base = new URL('.', document.baseURI).pathname
  const here = location.pathname.slice(base.length) + location.search
  location.replace(new URL('login?next=' + encodeURIComponent(here), document.baseURI))
}
