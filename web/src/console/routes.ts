// All pages of the console, in the order of its menu. The build reads them too: the server has to
// know which paths are those of the console (vite.config.ts).
import type { Script } from './retrying'

export interface ConsoleRoute {
  path: string // relative to the base of the console
  label?: string // in the menu; without one, other pages link to it
  load: () => Promise<Script>
}

interface Group {
  title: string
  admin?: boolean // only administrators see it in the menu
  routes: ConsoleRoute[]
}

export const groups: Group[] = [
  {
    title: '',
    routes: [
      { path: '', label: 'Overview', load: () => import('./pages/overview') },
      { path: 'streams', label: 'Streams', load: () => import('./pages/streams') },
      { path: 'streams/:id', load: () => import('./pages/stream') },
      { path: 'streams/:id/live', load: () => import('./pages/live') },
      { path: 'live', load: () => import('./pages/live') },
      { path: 'assets', label: 'Assets', load: () => import('./pages/assets') },
      { path: 'assets/:id', load: () => import('./pages/asset') },
      { path: 'tasks', label: 'Tasks', load: () => import('./pages/tasks') },
      { path: 'tasks/new', load: () => import('./pages/task_new') },
      { path: 'tasks/:id', load: () => import('./pages/task') },
    ],
  },
  {
    title: 'Build',
    routes: [
      { path: 'webhooks', label: 'Webhooks', load: () => import('./pages/webhooks') },
      { path: 'webhooks/:id', load: () => import('./pages/webhook') },
      { path: 'access', label: 'Access', load: () => import('./pages/access') },
      { path: 'keys', label: 'Keys', load: () => import('./pages/keys') },
      { path: 'targets', label: 'Targets', load: () => import('./pages/targets') },
      { path: 'stores', label: 'Object stores', load: () => import('./pages/stores') },
      { path: 'usage', label: 'Usage', load: () => import('./pages/usage') },
    ],
  },
  {
    title: 'Administer',
    admin: true,
    routes: [
      { path: 'users', label: 'Users', load: () => import('./pages/users') },
      { path: 'nodes', label: 'Nodes', load: () => import('./pages/nodes') },
      { path: 'queue', label: 'Queue', load: () => import('./pages/queue') },
    ],
  },
]

export const routes = groups.flatMap((group) => group.routes)

// folders are the first segments of the paths: streams of streams/:id.
export const folders = [...new Set(routes.map((route) => route.path.split('/')[0]!))].filter(Boolean)
