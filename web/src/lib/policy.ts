// Who may watch: what a form offers, and the policies of the API.
import type { Schemas } from './api'

export type Policy = NonNullable<Schemas['PlaybackPolicy']>

// PolicyChoice is the value of an option: a webhook that decides has its id there.
export type PolicyChoice = 'public' | 'jwt' | `webhook:${string}`

// choiceOf returns what a form shows of a policy.
export function choiceOf(policy?: Schemas['PlaybackPolicy']): PolicyChoice {
  if (policy?.type === 'webhook') return `webhook:${policy.webhookId ?? ''}`
  return policy?.type ?? 'public'
}

// policyOf returns the policy that was chosen; undefined = everybody may watch. What the form does not
// show stays as it was.
export function policyOf(choice: PolicyChoice, was?: Schemas['PlaybackPolicy']): Policy | undefined {
  if (choice === 'public') return undefined
  const { webhookId: _, webhookContext = {}, ...others } = was ?? {}
  if (choice === 'jwt') return { ...others, type: 'jwt' }
  return { ...others, type: 'webhook', webhookId: choice.slice('webhook:'.length), webhookContext }
}
