// Users, for administrators: the list, a new one, and what can be done with one.
import { useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { useList } from '../../lib/load'
import { Copyable } from '../../ui/copy'
import { Action, Check, Dialog, Form, TextField } from '../../ui/form'
import { Card, Page } from '../../ui/page'
import { Search } from '../../ui/search'
import { Empty, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge, Moment } from '../../ui/values'
import { forAdmins } from '../admin'
import { useQuery } from '../location'
import { useMe } from '../me'
import { QuotaDialog } from './user_quota'

type User = Schemas['User']
type Link = { email: string; url: string; expiresAt: number }

export default forAdmins('Users', Users)

function Users() {
  const me = useMe()
  const [search, setSearch] = useQuery('search')
  const [deleted, setDeleted] = useQuery('deleted')
  const [creating, setCreating] = useQuery('create')
  const [link, setLink] = useState<Link>()
  const [limits, setLimits] = useState<User>()
  const filters = JSON.stringify(search ? [{ id: 'email', value: search.trim().toLowerCase() }] : [])
  const query = { order: 'createdAt-true', count: 'true', filters, ...(deleted && { all: 'true' }) } as const
  const users = useList<User>(
    (cursor, limit, signal) =>
      askPage(api.GET('/api/user', { params: { query: { ...query, cursor, limit } }, signal })),
    [filters, deleted],
    { every: 15 },
  )
  const makeLink = async ({ id, email }: User) =>
    setLink({ email, ...(await ask(api.POST('/api/user/{id}/password-link', { params: { path: { id } } }))) })
  return (
    <Page
      title="Users"
      actions={
        <button type="button" onClick={() => setCreating('1')}>
          Create a user
        </button>
      }
      calls={[{ method: 'GET', path: '/api/user?limit=25', login: true }]}
    >
      <Card>
        <div class="filters">
          <Search label="Search by e-mail" value={search} onValue={setSearch} />
          <Check label="Show deleted users" checked={deleted !== ''} onChecked={(on) => setDeleted(on ? '1' : '')} />
        </div>
        <ShowList
          of={users}
          empty={
            <Empty title="Nobody found">
              <p>{search ? `No user has “${search}” in the e-mail address.` : 'There are no users.'}</p>
            </Empty>
          }
        >
          {(items) => (
            <Table
              items={items}
              columns={[
                {
                  label: 'E-mail',
                  cell: (user) => (
                    <span>
                      <span class="whole" title={user.email}>
                        {user.email}
                      </span>{' '}
                      {user.admin && <Badge tone="soft">administrator</Badge>}{' '}
                      {user.id === me.id && <span class="hint">you</span>}
                    </span>
                  ),
                },
                { label: 'State', cell: (user) => <UserState user={user} /> },
                { label: 'Created', cell: (user) => <Ago at={user.createdAt} /> },
                { label: 'Last seen', cell: (user) => <Ago at={user.lastSeen} /> },
              ]}
              actions={(user) => (
                <UserActions
                  user={user}
                  self={user.id === me.id}
                  reload={users.reload}
                  makeLink={makeLink}
                  limits={setLimits}
                />
              )}
            />
          )}
        </ShowList>
      </Card>
      {creating && (
        <NewUser
          close={() => setCreating('')}
          made={(user) => {
            setCreating('')
            users.reload()
            return makeLink(user)
          }}
        />
      )}
      {link && <LinkDialog of={link} close={() => setLink(undefined)} />}
      {limits && (
        <QuotaDialog
          user={limits}
          close={() => {
            setLimits(undefined)
            users.reload()
          }}
        />
      )}
    </Page>
  )
}

interface UserActionsProps {
  user: User
  self: boolean
  reload: () => void
  makeLink: (user: User) => Promise<void>
  limits: (user: User) => void
}

function UserActions({ user, self, reload, makeLink, limits }: UserActionsProps) {
  const params = { path: { id: user.id } }
  const then = (answer: Promise<unknown>) => answer.then(reload)
  const suspend = (suspended: boolean) =>
    then(ask(api.PATCH('/api/user/{id}/suspended', { params, body: { suspended } })))
  const disable = (disabled: boolean) => then(ask(api.PATCH('/api/user/{id}/disabled', { params, body: { disabled } })))
  const remove = () => then(ask(api.DELETE('/api/user/{id}', { params })))
  const restore = () => then(ask(api.POST('/api/user/{id}/restore', { params })))
  if (user.deleted) {
    return (
      <Action class="small" act={restore} done={`${user.email} is back.`} label={`Restore ${user.email}`}>
        Restore
      </Action>
    )
  }
  return (
    <>
      <button type="button" class="small quiet" onClick={() => limits(user)} aria-label={`Limits of ${user.email}`}>
        Limits
      </button>
      <Action
        class="small quiet"
        act={() => makeLink(user)}
        confirm={`This makes a link with which ${user.email} sets a new password. Earlier links stop working; the present password works until the link is used.`}
        label={`Password link for ${user.email}`}
      >
        Password link
      </Action>
      {!self && (
        <>
          <Action
            class="small quiet"
            act={() => suspend(!user.suspended)}
            done={user.suspended ? `${user.email} may use weir again.` : `${user.email} is suspended.`}
            confirm={
              user.suspended
                ? undefined
                : `${user.email} can’t log in, send or play anything until you resume the account.`
            }
            label={`${user.suspended ? 'Resume' : 'Suspend'} ${user.email}`}
          >
            {user.suspended ? 'Resume' : 'Suspend'}
          </Action>
          <Action
            class="small quiet"
            act={() => disable(!user.disabled)}
            done={user.disabled ? `${user.email} may stream again.` : `${user.email} can’t stream.`}
            confirm={
              user.disabled
                ? undefined
                : `${user.email} can log in, but nothing of this account can be sent or watched until you allow it again.`
            }
            label={`${user.disabled ? 'Enable' : 'Disable'} ${user.email}`}
          >
            {user.disabled ? 'Enable' : 'Disable'}
          </Action>
          <Action
            class="small red quiet"
            act={remove}
            done={`${user.email} is deleted.`}
            confirm={`Everything of ${user.email} ends at once: keys, broadcasts, tasks, playback. It can be restored for a while, then it is removed for good.`}
            label={`Delete ${user.email}`}
          >
            Delete
          </Action>
        </>
      )}
    </>
  )
}

function UserState({ user }: { user: User }) {
  if (user.deleted) return <Badge tone="bad">deleted</Badge>
  if (user.suspended) return <Badge tone="warn">suspended</Badge>
  if (user.disabled) return <Badge tone="warn">disabled</Badge>
  return <Badge tone="good">active</Badge>
}

function NewUser({ made, close }: { made: (user: User) => Promise<void>; close: () => void }) {
  const [email, setEmail] = useState('')
  const submit = async () => made(await ask(api.POST('/api/user', { body: { email } })))
  return (
    <Dialog title="Create a user" close={close}>
      <Form submit={submit} label="Create the user" cancel={close}>
        <TextField
          label="E-mail"
          type="email"
          value={email}
          onValue={setEmail}
          required
          autoFocus
          hint="weir sends no mail. You get a link to pass on, with which the user sets a password."
        />
      </Form>
    </Dialog>
  )
}

const LinkDialog = ({ of, close }: { of: Link; close: () => void }) => (
  <Dialog title={`Password link for ${of.email}`} close={close} wide>
    <p class="warning">Copy it now: it is not shown again. Whoever has it can log in as this user.</p>
    <p>
      <Copyable text={of.url} />
    </p>
    <p>
      It works once, until <Moment at={of.expiresAt} />.
    </p>
    <div class="actions">
      <button type="button" onClick={close}>
        Done
      </button>
    </div>
  </Dialog>
)
