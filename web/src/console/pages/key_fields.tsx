// The fields of an API key: its name and what it may do.
import type { Schemas } from '../../lib/api'
import { Check, Field, SelectField, TextField } from '../../ui/form'

type Access = Schemas['Access']
type Rule = NonNullable<Access['rules']>[number]
type Method = NonNullable<Rule['methods']>[number]

// A key is for servers, for web pages, or for some calls only.
type Kind = 'server' | 'page' | 'rules'

export interface Choices {
  name: string
  kind: Kind
  origins: string
  full: boolean // from web pages: every call
  rules: string // one a line: methods and path
}

export const noChoices: Choices = { name: '', kind: 'server', origins: '', full: false, rules: '' }

export function choicesOf({ name, access }: { name: string; access?: Access }): Choices {
  return {
    name,
    kind: access?.rules ? 'rules' : access?.cors ? 'page' : 'server',
    origins: access?.cors?.allowedOrigins?.join(' ') ?? '',
    full: access?.cors?.fullAccess ?? false,
    rules: (access?.rules ?? [])
      .flatMap(({ methods, resources }) => resources.map((path) => `${methods?.join(',') ?? '*'} ${path}`))
      .join('\n'),
  }
}

// accessOf returns the restrictions for the API; undefined = none.
export function accessOf({ kind, origins, full, rules }: Choices): Access | undefined {
  const allowedOrigins = origins.split(/[\s,]+/).filter(Boolean)
  const cors = allowedOrigins.length > 0 ? { cors: { allowedOrigins, ...(full && { fullAccess: true }) } } : {}
  if (kind === 'server') return undefined
  return kind === 'page' ? cors : { ...cors, rules: parseRules(rules) }
}

// parseRules reads lines such as "get,post stream/:id".
function parseRules(text: string): Rule[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const [first, path, more] = line.split(/\s+/)
      if (!first || !path || more)
        throw new Error(
          `“${line}” is no rule. Write the methods, a space, and a path, for example: get,patch stream/:id`,
        )
      const methods = first.toLowerCase().split(',') as Method[]
      return { resources: [path.replace(/^\/?(api\/)?/, '')], methods }
    })
}

// mayDo says in a few words what a key may do.
export function mayDo({ access }: { access?: Access }): string {
  if (access?.rules) return access.rules.length === 0 ? 'nothing' : 'some calls'
  if (access?.cors) return access.cors.fullAccess ? 'everything, from web pages' : 'web pages'
  return 'everything'
}

export function KeyFields({ of, change }: { of: Choices; change: (to: Choices) => void }) {
  const set = (some: Partial<Choices>) => change({ ...of, ...some })
  return (
    <>
      <TextField
        label="Name"
        value={of.name}
        onValue={(name) => set({ name })}
        required
        autoFocus
        hint="What uses it, for example: web shop"
      />
      <SelectField
        label="Used from"
        value={of.kind}
        onValue={(kind) => set({ kind })}
        options={[
          ['server', 'my servers: it may do everything'],
          ['page', 'web pages: only calls that are safe there'],
          ['rules', 'anywhere: only the calls that I list'],
        ]}
      />
      {of.kind === 'rules' && (
        <Field
          label="Allowed calls"
          hint="One a line: methods, a space, a path below /api. A path may have :id and a * at the end; * is every method."
        >
          {(id, hintID) => (
            <textarea
              id={id}
              aria-describedby={hintID}
              rows={4}
              required
              spellcheck={false}
              placeholder={'get stream/:id\nget,post asset*'}
              value={of.rules}
              onInput={(e) => set({ rules: e.currentTarget.value })}
            />
          )}
        </Field>
      )}
      {of.kind !== 'server' && (
        <TextField
          label="Origins of the pages"
          value={of.origins}
          onValue={(origins) => set({ origins })}
          required={of.kind === 'page'}
          placeholder="https://shop.example.com"
          hint={
            of.kind === 'page'
              ? 'Separated by spaces; * is any.'
              : 'Only if web pages use it. Separated by spaces; * is any.'
          }
        />
      )}
      {of.kind === 'page' && (
        <Check
          label="Every call"
          hint="Also those that list and delete. Whoever sees the page can take the key and do the same."
          checked={of.full}
          onChecked={(full) => set({ full })}
        />
      )}
    </>
  )
}
