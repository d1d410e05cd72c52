// How much an account may have: shown beside what it has, and changed by an administrator.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../../lib/api'
import { bytes, count } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Dialog, Form, TextField } from '../../ui/form'
import { Show } from '../../ui/states'

type Quota = Schemas['Quota']
type Resource = keyof Schemas['UserQuota']

export const resources: [Resource, string][] = [
  ['storage', 'Storage'],
  ['streams', 'Streams'],
  ['assets', 'Assets'],
  ['webhooks', 'Webhooks'],
  ['targets', 'Targets'],
  ['objectStores', 'Object stores'],
  ['projects', 'Projects'],
  ['keys', 'API keys'],
]

export const amount = (resource: Resource, n: number) => (resource === 'storage' ? bytes(n) : count(n))

const gigabyte = 1e9
const unit = (resource: Resource) => (resource === 'storage' ? gigabyte : 1)

export function QuotaDialog({ user, close }: { user: Schemas['User']; close: () => void }) {
  const used = useLoad(
    (signal) => ask(api.GET('/api/user/quota', { params: { query: { userId: user.id } }, signal })),
    [user.id],
  )
  return (
    <Dialog title={`Limits of ${user.email}`} close={close} wide>
      <Show of={used}>{(data) => <Limits user={user} used={data} close={close} />}</Show>
    </Dialog>
  )
}

function Limits({ user, used, close }: { user: Schemas['User']; used: Schemas['UserQuota']; close: () => void }) {
  const before = Object.fromEntries(
    resources.map(([r]) => [r, used[r].limit === undefined ? '' : String(used[r].limit / unit(r))]),
  ) as Record<Resource, string>
  const [limits, setLimits] = useState(before)
  const [viewers, setViewers] = useState(user.viewerLimit === undefined ? '' : String(user.viewerLimit))
  const submit = async () => {
    const quota: Quota = { ...user.quota }
    for (const [r] of resources)
      if (limits[r] !== before[r]) quota[r] = limits[r] === '' ? null : Math.round(Number(limits[r]) * unit(r))
    await ask(
      api.PATCH('/api/user/{id}', {
        params: { path: { id: user.id } },
        body: { quota, ...(viewers !== '' && { viewerLimit: Number(viewers) }) },
      }),
    )
    close()
  }
  return (
    <Form submit={submit} label="Save the limits" cancel={close}>
      <p>An empty field is no limit. What is there already stays, also above a new limit.</p>
      <div class="fields">
        {resources.map(([r, label]) => (
          <TextField
            key={r}
            label={r === 'storage' ? `${label} in GB` : label}
            type="number"
            min={0}
            step={r === 'storage' ? 'any' : 1}
            value={limits[r]}
            onValue={(value) => setLimits({ ...limits, [r]: value })}
            hint={`${amount(r, used[r].used)} used`}
          />
        ))}
        <TextField
          label="Viewers at once"
          type="number"
          min={0}
          value={viewers}
          onValue={setViewers}
          hint="10,000 when nothing is set"
        />
      </div>
    </Form>
  )
}
