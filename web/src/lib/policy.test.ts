import { expect, test } from 'vitest'
import { choiceOf, policyOf, type Policy } from './policy'

const asked: Policy = {
  type: 'webhook',
  webhookId: 'w1',
  webhookContext: JSON.parse('{"shop":7}'),
  refreshInterval: 60,
}

test('a choice and its policy say the same', () => {
  for (const choice of ['public', 'jwt', 'webhook:w1'] as const) expect(choiceOf(policyOf(choice))).toBe(choice)
  expect(choiceOf(null)).toBe('public')
  expect(choiceOf({ type: 'public', allowedOrigins: ['https://a.example'] })).toBe('public')
  expect(policyOf('public', asked)).toBeUndefined()
  expect(policyOf('jwt')).toEqual({ type: 'jwt' })
  expect(policyOf('webhook:w2')).toEqual({ type: 'webhook', webhookId: 'w2', webhookContext: {} })
})

test('what a form does not show stays', () => {
  expect(policyOf('webhook:w2', asked)).toEqual({ ...asked, webhookId: 'w2' })
  expect(policyOf('jwt', asked)).toEqual({ type: 'jwt', refreshInterval: 60 })
  expect(policyOf('webhook:w1', { type: 'jwt', allowedOrigins: ['https://a.example'] })).toEqual({
    type: 'webhook',
    webhookId: 'w1',
    webhookContext: {},
    allowedOrigins: ['https://a.example'],
  })
})
