// What the pages of webhooks have in common: their events, their state and their form.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../lib/api'
import { useLoad } from '../lib/load'
import { Copy } from '../ui/copy'
import { Check, Field, SelectField, TextField } from '../ui/form'
import { Badge } from '../ui/values'

export type Webhook = Schemas['Webhook']
export type EventName = Schemas['EventName']

// groups are the events that weir sends, with what each means.
const groups: [string, [EventName, string][]][] = [
  [
    'Streams',
    [
      ['stream.started', 'An encoder starts to send.'],
      ['stream.idle', 'The encoder is gone, or the stream was ended.'],
    ],
  ],
  [
    'Recordings',
    [
      ['recording.started', 'A session begins that is recorded.'],
      ['recording.waiting', 'The session is over; its recording is being made.'],
      ['recording.ready', 'The recording can be watched.'],
    ],
  ],
  [
    'Multistream',
    [
      ['multistream.connected', 'A target receives the stream.'],
      ['multistream.error', 'A target does not take the stream.'],
      ['multistream.disconnected', 'A target no longer receives the stream.'],
    ],
  ],
  [
    'Assets',
    [
      ['asset.created', 'An asset was made; its video is not there yet.'],
      ['asset.updated', 'Something about an asset changed.'],
      ['asset.ready', 'An asset can be watched.'],
      ['asset.failed', 'An asset could not be processed.'],
      ['asset.deleted', 'An asset was deleted.'],
    ],
  ],
  [
    'Tasks',
    [
      ['task.spawned', 'A task was made.'],
      ['task.updated', 'A task made progress.'],
      ['task.completed', 'A task is done.'],
      ['task.failed', 'A task failed.'],
    ],
  ],
  [
    'Playback',
    [
      [
        'playback.accessControl',
        'Asks whether a viewer may watch. Needed for streams and assets whose policy is this webhook.',
      ],
    ],
  ],
]

// canTest says whether a test of the event can be sent.
export const canTest = (event: EventName): boolean => event !== 'playback.accessControl'

// failing says whether the last delivery failed.
export const failing = ({ status }: Webhook) =>
  !!status?.lastFailure && status.lastFailure.timestamp >= (status.lastTriggeredAt ?? 0)

export function WebhookState({ webhook }: { webhook: Webhook }) {
  if (webhook.status?.paused) return <Badge tone="warn">paused</Badge>
  if (failing(webhook)) return <Badge tone="bad">failing</Badge>
  return webhook.status?.lastTriggeredAt ? <Badge tone="good">working</Badge> : <Badge tone="soft">not used yet</Badge>
}

export interface Choices {
  name: string
  url: string
  events: EventName[]
  streamId: string
  sharedSecret: string
}

export const noChoices: Choices = {
  name: '',
  url: '',
  events: ['stream.started', 'stream.idle', 'asset.ready', 'asset.failed'],
  streamId: '',
  sharedSecret: '',
}

export const choicesOf = ({ name, url, events, streamId }: Webhook): Choices => ({
  name,
  url,
  events,
  streamId: streamId ?? '',
  sharedSecret: '',
})

// asNewWebhook returns the body that creates a webhook.
export const asNewWebhook = ({ name, url, events, streamId, sharedSecret }: Choices): Schemas['NewWebhook'] => ({
  name,
  url,
  events,
  ...(streamId && { streamId }),
  ...(sharedSecret && { sharedSecret }),
})

// asPatch returns the body that changes a webhook. Without a new secret the present one stays.
export const asPatch = ({ name, url, events, streamId, sharedSecret }: Choices): Schemas['WebhookPatch'] => ({
  name,
  url,
  events,
  streamId,
  ...(sharedSecret && { sharedSecret }),
})

const lastStreams = 100

export function WebhookFields({
  of,
  change,
  exists = false,
}: {
  of: Choices
  change: (to: Choices) => void
  exists?: boolean
}) {
  const set = (some: Partial<Choices>) => change({ ...of, ...some })
  const streams = useLoad(() => ask(api.GET('/api/stream', { params: { query: { limit: lastStreams } } })), [])
  const names: [string, string][] = (streams.data ?? []).map(({ id, name }) => [id, name])
  if (of.streamId && !names.some(([id]) => id === of.streamId)) names.unshift([of.streamId, of.streamId])
  const toggle = (event: EventName, on: boolean) =>
    set({ events: on ? [...of.events, event] : of.events.filter((e) => e !== event) })
  return (
    <>
      <TextField
        label="Name"
        value={of.name}
        onValue={(name) => set({ name })}
        required
        autoFocus
        hint="For you, for example: my web shop"
      />
      <TextField
        label="URL"
        type="url"
        value={of.url}
        onValue={(url) => set({ url })}
        required
        placeholder="https://example.com/webhook"
        pattern="https?://.+"
        hint="weir sends a POST request to it."
      />
      <SecretField value={of.sharedSecret} onValue={(sharedSecret) => set({ sharedSecret })} exists={exists} />
      <fieldset>
        <legend>Events</legend>
        <div class="event-groups">
          {groups.map(([title, events]) => (
            <div key={title} role="group" aria-label={title}>
              <h3>{title}</h3>
              {events.map(([event, hint]) => (
                <Check
                  key={event}
                  label={event}
                  hint={hint}
                  checked={of.events.includes(event)}
                  onChecked={(on) => toggle(event, on)}
                />
              ))}
            </div>
          ))}
        </div>
      </fieldset>
      <SelectField
        label="Of which stream"
        value={of.streamId}
        onValue={(streamId) => set({ streamId })}
        options={[['', 'all streams, assets and tasks'], ...names]}
        hint={of.streamId ? 'Only events of this stream and its recordings are sent.' : undefined}
      />
    </>
  )
}

const secretBytes = 24

function randomSecret(): string {
  return [...crypto.getRandomValues(new Uint8Array(secretBytes))].map((b) => b.toString(16).padStart(2, '0')).join('')
}

// SecretField is a hidden text with a button that makes one up.
function SecretField({ value, onValue, exists }: { value: string; onValue: (value: string) => void; exists: boolean }) {
  const [shown, show] = useState(false)
  return (
    <Field
      label="Shared secret"
      hint={
        exists
          ? 'Leave it empty to keep the present one, which weir does not show.'
          : 'With it, your program checks that a request comes from weir. Copy it now: weir does not show it again.'
      }
    >
      {(id, hintID) => (
        <div class="with-buttons">
          <input
            {...({ type: shown ? 'text' : 'password' } as object)}
            id={id}
            aria-describedby={hintID}
            autoComplete="off"
            value={value}
            onInput={(e) => onValue(e.currentTarget.value)}
          />
          <button
            type="button"
            class="small quiet"
            onClick={() => show(!shown)}
            aria-label={shown ? 'Hide the secret' : 'Show the secret'}
          >
            {shown ? 'Hide' : 'Show'}
          </button>
          <button
            type="button"
            class="small quiet"
            onClick={() => onValue(randomSecret())}
            aria-label="Generate a secret"
          >
            Generate
          </button>
          {value && <Copy text={value} />}
        </div>
      )}
    </Field>
  )
}
