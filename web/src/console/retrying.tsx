// The script of a page: it is loaded when the page is shown, and again if that failed.
import type { FunctionComponent } from 'preact'
import { lazy } from 'preact-iso'
import { useEffect, useState } from 'preact/hooks'
import { root } from '../lib/api'
import { Card, Page } from '../ui/page'
import { Loading, Problem } from '../ui/states'

type Component = FunctionComponent<{ id: string }> // a part of the path; '' where it has none

// Script is what the file of a page exports.
export type Script = { default: Component }

// page returns a page whose script is loaded when it is shown.
export const page = (load: () => Promise<Script>): Component =>
  lazy(() => load().catch(() => ({ default: retrying(load) })))

const cut = { status: 0, message: 'The server does not answer, so this page could not be loaded.' }
const missing = {
  status: 500,
  message: 'The server answers, but this page could not be loaded. weir may have been updated.',
}

// retrying returns a page that loads its script again: when it is shown, and when somebody asks for
// it. Some browsers keep in mind that a script failed, and a new version of weir has other scripts:
// then the whole console has to be loaded again, which makes sense only if the server answers.
function retrying(load: () => Promise<Script>): Component {
  let Loaded: Component | undefined
  return (props) => {
    const [problem, setProblem] = useState<typeof cut>()
    const [, show] = useState(false)
    const again = async (reload: boolean) => {
      setProblem(undefined)
      try {
        Loaded = (await load()).default
        return show(true)
      } catch {
        // It is tried in another way.
      }
      const answers = await fetch(root + '/', { method: 'HEAD', cache: 'no-store' }).then(
        () => true,
        () => false,
      )
      if (answers && reload) location.reload()
      else setProblem(answers ? missing : cut)
    }
    useEffect(() => void (Loaded ?? again(false)), [])
    if (Loaded) return <Loaded {...props} />
    return (
      <Page title="This page is not loaded">
        <Card>{problem ? <Problem of={problem} again={() => void again(true)} /> : <Loading />}</Card>
      </Page>
    )
  }
}
