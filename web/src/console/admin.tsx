// Pages for administrators.
import type { FunctionComponent } from 'preact'
import { Card, Page } from '../ui/page'
import { Problem } from '../ui/states'
import { useMe } from './me'

const message = 'This page is for administrators of the service. Ask one of them if you need something from it.'

// forAdmins returns a page that others see only as a sentence.
export function forAdmins(title: string, Body: FunctionComponent): FunctionComponent {
  return () => {
    if (useMe().admin) return <Body />
    return (
      <Page title={title}>
        <Card>
          <Problem of={{ status: 403, message }} />
        </Card>
      </Page>
    )
  }
}
