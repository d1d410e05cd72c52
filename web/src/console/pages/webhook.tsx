// One webhook: its state, a test, and its deliveries.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../../lib/api'
import { useLoad } from '../../lib/load'
import { Samples } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Action, Dialog, Form, SelectField } from '../../ui/form'
import { Card, Facts, Page } from '../../ui/page'
import { Loading, Show } from '../../ui/states'
import { Ago, Moment } from '../../ui/values'
import { useGo, useQuery } from '../location'
import {
  asPatch,
  canTest,
  choicesOf,
  failing,
  WebhookFields,
  WebhookState,
  type EventName,
  type Webhook,
} from '../webhook'
import { Deliveries, DeliveryDetails } from './webhook_deliveries'

export default function WebhookPage({ id }: { id: string }) {
  const path = { params: { path: { id } } }
  const webhook = useLoad((signal) => ask(api.GET('/api/webhook/{id}', { ...path, signal })), [id], { every: 5 })
  const [editing, setEditing] = useQuery('edit')
  const go = useGo()
  const remove = async () => {
    await ask(api.DELETE('/api/webhook/{id}', path))
    go('webhooks')
  }
  return (
    <Page
      title={webhook.data?.name || 'Webhook'}
      back={{ href: 'webhooks', label: 'Webhooks' }}
      actions={
        webhook.data && (
          <>
            <button type="button" class="quiet" onClick={() => setEditing('1')}>
              Edit
            </button>
            <Action
              class="red quiet"
              act={remove}
              done="The webhook is deleted."
              confirm="Nothing more is sent to it, also no events that wait."
            >
              Delete
            </Action>
          </>
        )
      }
      calls={[
        { method: 'GET', path: `/api/webhook/${id}` },
        { method: 'GET', path: `/api/webhook/${id}/log?limit=25` },
        { method: 'POST', path: `/api/webhook/${id}/test`, body: { event: webhook.data?.events.find(canTest) } },
      ]}
    >
      <Show of={webhook}>
        {(data) => (
          <>
            <div class="columns">
              <State webhook={data} reload={webhook.reload} />
              <Test webhook={data} reload={webhook.reload} />
            </div>
            <Deliveries webhook={data} />
            <Verify />
            {editing && (
              <Edit
                webhook={data}
                close={() => {
                  setEditing('')
                  webhook.reload()
                }}
              />
            )}
          </>
        )}
      </Show>
    </Page>
  )
}

function State({ webhook, reload }: { webhook: Webhook; reload: () => void }) {
  const { status } = webhook
  const resume = async () => {
    await ask(api.PATCH('/api/webhook/{id}', { params: { path: { id: webhook.id } }, body: { name: webhook.name } }))
    reload()
  }
  return (
    <Card title="State">
      {status?.paused && (
        <div class="warning">
          <p>
            Paused, because {status.paused.reason}. Events wait. weir tries again <Ago at={status.paused.until} />.
            Repair your program, then resume.
          </p>
          <Action class="small" act={resume} done="Sending goes on.">
            Resume now
          </Action>
        </div>
      )}
      {!status?.paused && failing(webhook) && (
        <p class="warning">
          The last delivery failed
          {status?.lastFailure?.statusCode
            ? ` with status ${status.lastFailure.statusCode}`
            : status?.lastFailure?.error
              ? `: ${status.lastFailure.error}`
              : ''}
          . The deliveries below say why.
        </p>
      )}
      <Facts
        of={[
          ['State', <WebhookState webhook={webhook} />],
          ['URL', <Copyable text={webhook.url} />],
          ['Events', webhook.events.join(', ')],
          ['Of stream', webhook.streamId && <a href={`streams/${webhook.streamId}`}>{webhook.streamId}</a>],
          ['Last sent', <Ago at={status?.lastTriggeredAt} />],
          ['Last failure', status?.lastFailure && <Moment at={status.lastFailure.timestamp} />],
          ['Created', <Moment at={webhook.createdAt} />],
          ['Id', <Copyable text={webhook.id} />],
        ]}
      />
    </Card>
  )
}

function Test({ webhook, reload }: { webhook: Webhook; reload: () => void }) {
  const events = webhook.events.filter(canTest)
  const [chosen, choose] = useState<EventName>()
  const [answer, setAnswer] = useState<Schemas['WebhookLog']>()
  const [busy, setBusy] = useState(false)
  if (events.length === 0) {
    return (
      <Card title="Send a test">
        <p>
          This webhook is only asked about viewers. That can’t be tested: play something whose policy is this webhook.
        </p>
      </Card>
    )
  }
  const event = chosen && events.includes(chosen) ? chosen : events[0]!
  const submit = async () => {
    setBusy(true)
    setAnswer(undefined)
    try {
      setAnswer(
        await ask(api.POST('/api/webhook/{id}/test', { params: { path: { id: webhook.id } }, body: { event } })),
      )
    } finally {
      setBusy(false)
    }
    reload()
  }
  return (
    <Card title="Send a test">
      <p>weir sends an event now. It looks and is signed like a real one, and its payload has “test”: true.</p>
      <Form submit={submit} label="Send a test">
        <SelectField
          label="Event to send"
          value={event}
          onValue={choose}
          options={events.map((e) => [e, e] as const)}
        />
      </Form>
      <div aria-live="polite" class="test-answer">
        {busy && <Loading what="Waiting for the response" />}
        {answer && <DeliveryDetails of={answer} short />}
      </div>
    </Card>
  )
}

function Edit({ webhook, close }: { webhook: Webhook; close: () => void }) {
  const [choices, change] = useState(choicesOf(webhook))
  const submit = async () => {
    await ask(api.PATCH('/api/webhook/{id}', { params: { path: { id: webhook.id } }, body: asPatch(choices) }))
    close()
  }
  return (
    <Dialog title="Edit the webhook" close={close} wide>
      <Form submit={submit} label="Save" cancel={close}>
        <WebhookFields of={choices} change={change} exists />
      </Form>
    </Dialog>
  )
}

const verify = {
  JavaScript: `import { createHmac, timingSafeEqual } from 'node:crypto'

// rawBody is the body as it came, before it was parsed.
function genuine(rawBody, header, secret) {
  const sent = Buffer.from(header.match(/v1=([0-9a-f]+)/)?.[1] ?? '', 'hex')
  const want = createHmac('sha256', secret).update(rawBody).digest()
  return sent.length === want.length && timingSafeEqual(sent, want)
}

// genuine(rawBody, request.headers['livepeer-signature'], process.env.WEBHOOK_SECRET)`,
  Go: `func genuine(rawBody []byte, header, secret string) bool {
	_, sent, _ := strings.Cut(header, "v1=")
	got, err := hex.DecodeString(sent)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(rawBody)
	return err == nil && hmac.Equal(got, mac.Sum(nil))
}

// genuine(body, r.Header.Get("Livepeer-Signature"), os.Getenv("WEBHOOK_SECRET"))`,
  Python: `import hashlib, hmac

def genuine(raw_body: bytes, header: str, secret: str) -> bool:
    want = hmac.new(secret.encode(), raw_body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(header.rpartition("v1=")[2], want)

# genuine(body, headers["Livepeer-Signature"], os.environ["WEBHOOK_SECRET"])`,
}

const Verify = () => (
  <Card title="Check that a request comes from weir">
    <p>
      With a shared secret, every request has the header <code>Livepeer-Signature</code>. Compare it with your own sum
      of the body. <a href="docs/webhooks">More about webhooks</a>
    </p>
    <Samples of={verify} label="Check the signature" />
  </Card>
)
