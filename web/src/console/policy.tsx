// The choice of who may watch, for streams and assets: everybody, viewers with a token, or viewers whom
// one of the caller's webhooks lets in.
import { api, askPage } from '../lib/api'
import { useLoad } from '../lib/load'
import type { PolicyChoice } from '../lib/policy'
import { SelectField } from '../ui/form'

// PolicyField leaves out everybody if the choice is between those who check.
export function PolicyField({
  label,
  value,
  onValue,
  everybody,
  hint,
}: {
  label: string
  value: PolicyChoice
  onValue: (choice: PolicyChoice) => void
  everybody?: string
  hint?: string
}) {
  const webhooks = useLoad(
    (signal) => askPage(api.GET('/api/webhook', { params: { query: { limit: 1000 } }, signal })),
    [],
  )
  const deciding = (webhooks.data?.items ?? []).filter((w) => w.events?.includes('playback.accessControl'))
  const options = new Map<PolicyChoice, string>(everybody ? [['public', everybody]] : [])
  options.set('jwt', 'viewers with a token that you sign (JWT)')
  for (const { id, name, url } of deciding)
    options.set(`webhook:${id}`, `viewers whom the webhook “${name || url}” lets in`)
  if (!options.has(value)) options.set(value, 'viewers whom a webhook lets in') // it is loading, or the webhook is gone
  return (
    <SelectField
      label={label}
      value={value}
      onValue={onValue}
      options={[...options]}
      hint={
        <>
          {hint}{' '}
          {value === 'jwt' && (
            <>
              Make the key that signs tokens on the page <a href="access">Access</a>.
            </>
          )}
          {value.startsWith('webhook:') && 'It is asked about each viewer, by the access key of your page.'}
          {webhooks.data && deciding.length === 0 && (
            <>
              For a program that decides, make a <a href="webhooks?create=1">webhook</a> for playback.accessControl.
            </>
          )}
        </>
      }
    />
  )
}
