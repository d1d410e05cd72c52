// The deliveries of a webhook: what was sent, what came back, and sending it again.
import { useEffect } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useList, useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Action, Dialog } from '../../ui/form'
import { Card, Facts } from '../../ui/page'
import { Empty, Show, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge, Moment } from '../../ui/values'
import { useQuery } from '../location'
import type { Webhook } from '../webhook'

type Delivery = Schemas['WebhookLog']

export function Deliveries({ webhook }: { webhook: Webhook }) {
  const [shown, show] = useQuery('show', 'all')
  const [open, setOpen] = useQuery('delivery')
  const filters = JSON.stringify(shown === 'failed' ? [{ id: 'success', value: 'false' }] : [])
  const deliveries = useList<Delivery>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/webhook/{id}/log', {
          params: { path: { id: webhook.id }, query: { cursor, limit, filters, count: 'true' } },
          signal,
        }),
      ),
    [webhook.id, filters],
    { follows: (e) => webhook.events.includes(e.event), every: 5 },
  )
  const last = webhook.status?.lastTriggeredAt
  useEffect(() => deliveries.reload(), [last])
  return (
    <Card
      title="Deliveries"
      actions={
        <div class="tabs flat" role="group" aria-label="Which deliveries">
          <button type="button" class="tab" aria-pressed={shown !== 'failed'} onClick={() => show('all')}>
            All
          </button>
          <button type="button" class="tab" aria-pressed={shown === 'failed'} onClick={() => show('failed')}>
            Failed
          </button>
        </div>
      }
    >
      <ShowList
        of={deliveries}
        empty={
          <Empty title={shown === 'failed' ? 'No failed deliveries' : 'Nothing was sent yet'}>
            <p>
              {shown === 'failed' ? 'Deliveries that fail appear here.' : 'Send a test, or wait for the first event.'}
            </p>
          </Empty>
        }
      >
        {(items) => (
          <Table
            items={items}
            columns={[
              { label: 'Sent', cell: (d) => <Ago at={d.createdAt} /> },
              { label: 'Event', cell: (d) => d.event },
              { label: 'Response', cell: (d) => <Outcome of={d} /> },
              { label: 'Duration', cell: (d) => seconds(d.duration) },
            ]}
            actions={(d) => (
              <button
                type="button"
                class="small quiet"
                onClick={() => setOpen(d.id)}
                aria-label={`Details of ${d.event}`}
              >
                Details
              </button>
            )}
          />
        )}
      </ShowList>
      {open && <OneDelivery webhook={webhook} id={open} show={setOpen} resent={deliveries.reload} />}
    </Card>
  )
}

const seconds = (n: number) => (n < 1 ? `${Math.round(n * 1000)} ms` : `${n.toFixed(1)} s`)

function Outcome({ of }: { of: Delivery }) {
  return (
    <>
      <Badge tone={of.success ? 'good' : 'bad'}>
        {of.response.status ? String(of.response.status) : 'no response'}
      </Badge>{' '}
      {!of.success && <span class="hint">{of.response.statusText}</span>}
    </>
  )
}

function OneDelivery({
  webhook,
  id,
  show,
  resent,
}: {
  webhook: Webhook
  id: string
  show: (id: string) => void
  resent: () => void
}) {
  const delivery = useLoad(
    (signal) =>
      ask(api.GET('/api/webhook/{id}/log/{logId}', { params: { path: { id: webhook.id, logId: id } }, signal })),
    [id],
  )
  const resend = async () => {
    const next = await ask(
      api.POST('/api/webhook/{id}/log/{logId}/resend', { params: { path: { id: webhook.id, logId: id } } }),
    )
    resent()
    show(next.id)
  }
  return (
    <Dialog title="Delivery" close={() => show('')} wide>
      <Show of={delivery}>
        {(data) => (
          <>
            <DeliveryDetails of={data} />
            {data.event !== 'playback.accessControl' && (
              <div class="actions">
                <Action act={resend} done="The event was sent again. This is the new delivery.">
                  Send again
                </Action>
              </div>
            )}
          </>
        )}
      </Show>
    </Dialog>
  )
}

// DeliveryDetails shows what was sent and what came back. In short it leaves out what was sent.
export function DeliveryDetails({ of, short = false }: { of: Delivery; short?: boolean }) {
  const headers = Object.entries(of.request.headers).map(([name, value]) => `${name}: ${value}`)
  const answer = decoded(of.response.body)
  return (
    <>
      {short && (
        <p class={of.success ? 'notice' : 'error'}>
          {of.success
            ? 'The test arrived.'
            : of.response.status
              ? 'Your program refused the test.'
              : 'Your program did not answer.'}
        </p>
      )}
      <Facts
        of={[
          ['Event', !short && of.event],
          [
            'Response',
            of.response.status
              ? `${of.response.status} ${(of.response.statusText ?? '').replace(String(of.response.status), '').trim()}`
              : `none: ${of.response.statusText}`,
          ],
          ['Duration', seconds(of.duration)],
          ['Sent', !short && <Moment at={of.createdAt} />],
        ]}
      />
      {(answer || !short) && <Code label="Response" text={answer || '(nothing)'} />}
      {!short && (
        <Code
          label="Request"
          text={[`${of.request.method} ${of.request.url}`, ...headers, '', pretty(of.request.body)].join('\n')}
        />
      )}
    </>
  )
}

function decoded(base64: string): string {
  return pretty(new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))))
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}
