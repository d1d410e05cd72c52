// All pages of the console. A new one needs a line here, and its first path segment in
// internal/web/console.go if that is new.
import type { FunctionComponent } from 'preact'
import { lazy } from 'preact-iso'
import { retrying, type Script } from './retrying'

// base is the path of the console; '/' unless a proxy serves weir below a prefix.
export const base = new URL('.', document.baseURI).pathname

interface ConsoleRoute {
  path: string // relative to base
  page: FunctionComponent<any>
}

interface MenuEntry {
  path: string
  label: string
  admin?: boolean // only administrators see it
}

// page returns a page whose script is loaded when it is shown.
const page = (load: () => Promise<Script>): FunctionComponent<any> =>
  lazy(() => load().catch(() => ({ default: retrying(load) })))

export const routes: ConsoleRoute[] = [
  { path: '', page: page(() => import('./pages/overview')) },
  { path: 'streams', page: page(() => import('./pages/streams')) },
  { path: 'streams/:id', page: page(() => import('./pages/stream')) },
  { path: 'streams/:id/live', page: page(() => import('./pages/live')) },
  { path: 'assets', page: page(() => import('./pages/assets')) },
  { path: 'assets/:id', page: page(() => import('./pages/asset')) },
  { path: 'tasks', page: page(() => import('./pages/tasks')) },
  { path: 'tasks/new', page: page(() => import('./pages/task_new')) },
  { path: 'tasks/:id', page: page(() => import('./pages/task')) },
  { path: 'webhooks', page: page(() => import('./pages/webhooks')) },
  { path: 'webhooks/:id', page: page(() => import('./pages/webhook')) },
  { path: 'access', page: page(() => import('./pages/access')) },
  { path: 'keys', page: page(() => import('./pages/keys')) },
  { path: 'targets', page: page(() => import('./pages/targets')) },
  { path: 'stores', page: page(() => import('./pages/stores')) },
  { path: 'usage', page: page(() => import('./pages/usage')) },
  { path: 'users', page: page(() => import('./pages/users')) },
  { path: 'nodes', page: page(() => import('./pages/nodes')) },
  { path: 'queue', page: page(() => import('./pages/queue')) },
]

// menu is the navigation, in groups.
export const menu: { title: string; entries: MenuEntry[] }[] = [
  {
    title: '',
    entries: [
      { path: '', label: 'Overview' },
      { path: 'streams', label: 'Streams' },
      { path: 'assets', label: 'Assets' },
      { path: 'tasks', label: 'Tasks' },
    ],
  },
  {
    title: 'Build',
    entries: [
      { path: 'webhooks', label: 'Webhooks' },
      { path: 'access', label: 'Access' },
      { path: 'keys', label: 'Keys' },
      { path: 'targets', label: 'Targets' },
      { path: 'stores', label: 'Object stores' },
      { path: 'usage', label: 'Usage' },
    ],
  },
  {
    title: 'Administer',
    entries: [
      { path: 'users', label: 'Users', admin: true },
      { path: 'nodes', label: 'Nodes', admin: true },
      { path: 'queue', label: 'Queue', admin: true },
    ],
  },
]

// inConsole matches links that the console shows by itself; the others are pages of the server.
const first = [...new Set(routes.map((route) => route.path.split('/')[0]).filter(Boolean))]
export const inConsole = new RegExp(`^(\\./$|(${first.join('|')})([/?]|$))`)
