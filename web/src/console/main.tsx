// The console at `/`: what a person sees of weir. It starts here; pages are in pages/, one file
// each, and routes.tsx lists them.
import { render } from 'preact'
import { ErrorBoundary, LocationProvider, Route, Router } from 'preact-iso'
import { Empty } from '../ui/states'
import { Page } from '../ui/page'
import { Toasts } from '../ui/toast'
import '../ui/style.css'
import { Frame } from './frame'
import { base, inConsole, routes } from './routes'
import { applyTheme } from './theme'

const Unknown = () => (
  <Page title="Nothing here">
    <Empty title="There is no such page">
      <p>
        The address may be mistyped. <a href="./">Go to the overview</a>.
      </p>
    </Empty>
  </Page>
)

const App = () => (
  <LocationProvider scope={inConsole}>
    <Frame>
      <ErrorBoundary>
        <Router>
          {routes.map(({ path, page }) => (
            <Route key={path} path={base + path} component={page} />
          ))}
          <Route default component={Unknown} />
        </Router>
      </ErrorBoundary>
    </Frame>
    <Toasts />
  </LocationProvider>
)

applyTheme()
const app = document.getElementById('app')!
app.replaceChildren() // what the page shows until the script runs
render(<App />, app)
