// The console at `/`: what a person sees of weir. It starts here; pages are in pages/, one file
// each, and routes.tsx lists them.
import { render } from 'preact'
import { ErrorBoundary, LocationProvider, Route, Router } from 'preact-iso'
import { Empty } from '../ui/states'
import { Page } from '../ui/page'
import { Toasts } from '../ui/toast'
import '../ui/style.css'
import { Frame } from './frame'
import { base } from './location'
import { page } from './retrying'
import { folders, routes } from './routes'
import { applyTheme } from './theme'
import { Uploads } from './uploads'

const Unknown = () => (
  <Page title="Nothing here">
    <Empty title="There is no such page">
      <p>
        The address may be mistyped. <a href="./">Go to the overview</a>.
      </p>
    </Empty>
  </Page>
)

const pages = routes.map(({ path, load }) => ({ path, component: page(load) }))

// inConsole matches links that the console shows by itself; the others are pages of the server.
const inConsole = new RegExp(`^(\\./$|(${folders.join('|')})([/?]|$))`)

const App = () => (
  <LocationProvider scope={inConsole}>
    <Frame>
      <ErrorBoundary>
        <Router>
          {pages.map(({ path, component }) => (
            <Route key={path} path={base + path} component={component} />
          ))}
          <Route default component={Unknown} />
        </Router>
      </ErrorBoundary>
    </Frame>
    <Uploads />
    <Toasts />
  </LocationProvider>
)

applyTheme()
const app = document.getElementById('app')!
app.replaceChildren() // what the page shows until the script runs
render(<App />, app)
