// What surrounds every page: the menu, the project, the account.
import type { ComponentChildren } from 'preact'
import { useLocation } from 'preact-iso'
import { useEffect, useState } from 'preact/hooks'
import { api, ask, project } from '../lib/api'
import { useLoad } from '../lib/load'
import { formValue } from '../lib/token'
import { Loading, Problem } from '../ui/states'
import { base } from './location'
import { MeContext, type Me } from './me'
import { groups } from './routes'
import { setTheme, theme, type Theme } from './theme'

export function Frame({ children }: { children: ComponentChildren }) {
  const me = useLoad(() => ask(api.GET('/api/user/me')), [])
  const { path } = useLocation()
  const [open, setOpen] = useState(false)
  useEffect(() => setOpen(false), [path]) // the menu of a phone closes when a page was chosen
  if (!me.data) return me.error ? <Problem of={me.error} again={me.reload} /> : <Loading />
  return (
    <MeContext.Provider value={me.data}>
      <a class="skip" href={location.pathname + '#main'} onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="./">
          <span class="logo" aria-hidden="true" />
          weir
        </a>
        <button
          type="button"
          class="quiet menu-button"
          aria-expanded={open}
          aria-controls="menu"
          onClick={() => setOpen(!open)}
        >
          Menu
        </button>
      </header>
      <div id="menu" class={open ? 'side open' : 'side'}>
        <Menu me={me.data} path={path} />
      </div>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </MeContext.Provider>
  )
}

function skip(e: Event) {
  e.preventDefault()
  document.getElementById('main')?.focus()
}

function Menu({ me, path }: { me: Me; path: string }) {
  const current = (entry: string) =>
    path === base + entry ||
    (entry !== '' && path.startsWith(base + entry + '/')) ||
    (entry === '' && path + '/' === base)
  return (
    <>
      <nav aria-label="Console">
        {groups
          .filter((group) => !group.admin || me.admin)
          .map(({ title, routes }) => (
            <div key={title} class="menu-group">
              {title && <p class="menu-title">{title}</p>}
              {routes
                .filter((route) => route.label)
                .map(({ path, label }) => (
                  <a key={path} href={path || './'} aria-current={current(path) ? 'page' : undefined}>
                    {label}
                  </a>
                ))}
            </div>
          ))}
        <div class="menu-group">
          <p class="menu-title">Help</p>
          <a href="docs">Manual</a>
          <a href="docs/api">API reference</a>
        </div>
      </nav>
      <div class="account">
        <Projects me={me} />
        <ThemeChoice />
        <p class="email" title={me.email}>
          {me.email}
        </p>
        <p class="account-links">
          <a href="account">Account</a>
          <LogOut />
        </p>
      </div>
    </>
  )
}

// Projects lets a person with several projects choose the one that the console shows.
function Projects({ me }: { me: Me }) {
  const projects = useLoad(() => ask(api.GET('/api/project')), [])
  if (!projects.data || projects.data.length < 2) return null
  return (
    <label class="compact">
      <span>Project</span>
      <select
        value={project.get() || me.defaultProjectId}
        onChange={(e) => {
          project.set(e.currentTarget.value === me.defaultProjectId ? '' : e.currentTarget.value)
          location.reload()
        }}
      >
        {projects.data.map((p) => (
          <option key={p.id} value={p.id}>
            {p.name || 'default'}
          </option>
        ))}
      </select>
    </label>
  )
}

function ThemeChoice() {
  return (
    <label class="compact">
      <span>Theme</span>
      <select value={theme()} onChange={(e) => setTheme(e.currentTarget.value as Theme)}>
        <option value="system">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  )
}

// LogOut sends the form that ends the session of the browser, as the pages of the server do.
const LogOut = () => (
  <form method="post" action="logout">
    <input type="hidden" name="form" value={formValue()} />
    <button type="submit" class="link">
      Log out
    </button>
  </form>
)
