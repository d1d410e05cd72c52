// Webhooks: the list, and a new one.
import { useState } from 'preact/hooks'
import { api, ask, askPage } from '../../lib/api'
import { plural } from '../../lib/format'
import { useList } from '../../lib/load'
import { Dialog, Form } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago } from '../../ui/values'
import { useGo, useQuery } from '../location'
import { asNewWebhook, noChoices, WebhookFields, WebhookState, type Webhook } from '../webhook'

export default function Webhooks() {
  const [creating, setCreating] = useQuery('create')
  const webhooks = useList<Webhook>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/webhook', {
          params: { query: { cursor, limit, order: 'createdAt-true', count: 'true' } },
          signal,
        }),
      ),
    [],
    { every: 10 },
  )
  const create = (
    <button type="button" onClick={() => setCreating('1')}>
      Create a webhook
    </button>
  )
  return (
    <Page title="Webhooks" actions={create} calls={[{ method: 'GET', path: '/api/webhook?limit=25' }]}>
      <p class="lead">
        A webhook tells your program what happens here: weir sends a request to your address for each event.{' '}
        <a href="docs/webhooks">How webhooks work</a>
      </p>
      <Card>
        <ShowList
          of={webhooks}
          empty={
            <Empty title="No webhooks yet">
              <p>Create one with the address of your program. You can send a test to it right away.</p>
              {create}
            </Empty>
          }
        >
          {(items) => <WebhookTable webhooks={items} />}
        </ShowList>
      </Card>
      {creating && <NewWebhook close={() => setCreating('')} />}
    </Page>
  )
}

const WebhookTable = ({ webhooks }: { webhooks: Webhook[] }) => (
  <Table
    items={webhooks}
    columns={[
      { label: 'Name', cell: (webhook) => <a href={`webhooks/${webhook.id}`}>{webhook.name || 'without a name'}</a> },
      { label: 'URL', cell: (webhook) => webhook.url },
      {
        label: 'Events',
        cell: ({ events }) => (
          <span title={events.join('\n')}>{events.length === 1 ? events[0] : plural(events.length, 'event')}</span>
        ),
      },
      { label: 'State', cell: (webhook) => <WebhookState webhook={webhook} /> },
      { label: 'Last sent', cell: (webhook) => <Ago at={webhook.status?.lastTriggeredAt} /> },
    ]}
  />
)

function NewWebhook({ close }: { close: () => void }) {
  const [choices, change] = useState(noChoices)
  const go = useGo()
  const submit = async () => {
    const { id } = await ask(api.POST('/api/webhook', { body: asNewWebhook(choices) }))
    go(`webhooks/${id}`)
  }
  return (
    <Dialog title="Create a webhook" close={close} wide>
      <Form submit={submit} label="Create the webhook" cancel={close} disabled={choices.events.length === 0}>
        <WebhookFields of={choices} change={change} />
      </Form>
    </Dialog>
  )
}
