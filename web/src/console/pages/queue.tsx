// Queue, for administrators: what waits and what runs, of all accounts.
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { count, plural } from '../../lib/format'
import { useList, useLoad } from '../../lib/load'
import { Card, Page } from '../../ui/page'
import { Empty, Show, ShowList } from '../../ui/states'
import { Table } from '../../ui/table'
import { Ago, Badge, Progress, type Tone } from '../../ui/values'
import { forAdmins } from '../admin'
import { useQuery } from '../location'

type Queue = Schemas['Queue']
type Task = Schemas['QueuedTask']

const tones: Record<Schemas['QueueState'], Tone> = { waiting: 'soft', starting: 'warn', running: 'warn' }

const State = ({ of }: { of: Schemas['QueueState'] }) => <Badge tone={tones[of]}>{of}</Badge>

const Account = ({ of }: { of: string }) => (
  <span class="whole" title={of}>
    {of}
  </span>
)

export default forAdmins('Queue', QueuePage)

function QueuePage() {
  const [user, setUser] = useQuery('user')
  const queue = useLoad((signal) => ask(api.GET('/api/queue', { signal })), [], { every: 5 })
  const tasks = useList<Task>(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/queue/task', {
          params: { query: { cursor, limit, count: 'true', ...(user && { userId: user }) } },
          signal,
        }),
      ),
    [user],
    { every: 5 },
  )
  return (
    <Page
      title="Queue"
      calls={[
        { method: 'GET', path: '/api/queue', login: true },
        { method: 'GET', path: '/api/queue/task?limit=25' + (user && `&userId=${user}`), login: true },
      ]}
    >
      <Show of={queue}>
        {(data) => (
          <>
            <Numbers queue={data} />
            {data.groups.length > 0 && <Groups queue={data} chosen={user} choose={setUser} />}
            <Card
              title="Tasks"
              actions={
                user && (
                  <button type="button" class="small quiet" onClick={() => setUser('')}>
                    Show all accounts
                  </button>
                )
              }
            >
              <ShowList
                of={tasks}
                empty={
                  <Empty title="The queue is empty">
                    <p>Uploads, imports, transcodes and exports appear here while they wait and run.</p>
                  </Empty>
                }
              >
                {(items) => <TaskTable tasks={items} />}
              </ShowList>
            </Card>
          </>
        )}
      </Show>
    </Page>
  )
}

function Numbers({ queue }: { queue: Queue }) {
  const { deliveries } = queue
  return (
    <dl class="tiles numbers">
      <div class="card">
        <dt>Running</dt>
        <dd>{count(queue.running)}</dd>
      </div>
      <div class="card">
        <dt>Waiting</dt>
        <dd>{count(queue.waiting)}</dd>
      </div>
      <div class="card">
        <dt>Oldest task</dt>
        <dd>{queue.oldest ? <Ago at={queue.oldest} /> : '–'}</dd>
      </div>
      <div class="card">
        <dt>Webhook events waiting</dt>
        <dd>{count(deliveries.waiting)}</dd>
        {(deliveries.waiting > 0 || deliveries.paused > 0) && (
          <dd class="small-print">
            for {plural(deliveries.webhooks, 'webhook')}
            {deliveries.paused > 0 && `, ${count(deliveries.paused)} paused`}
            {deliveries.oldest && (
              <>
                , oldest <Ago at={deliveries.oldest} />
              </>
            )}
          </dd>
        )}
      </div>
    </dl>
  )
}

const Groups = ({ queue, chosen, choose }: { queue: Queue; chosen: string; choose: (user: string) => void }) => (
  <Card title="By account">
    <Table
      items={queue.groups.map((group) => ({ ...group, id: group.userId + group.type + group.state }))}
      columns={[
        {
          label: 'Account',
          cell: (group) => (
            <button
              type="button"
              class="link"
              aria-pressed={group.userId === chosen}
              onClick={() => choose(group.userId)}
            >
              {group.email || group.userId}
            </button>
          ),
        },
        { label: 'Kind', cell: (group) => group.type },
        { label: 'State', cell: (group) => <State of={group.state} /> },
        { label: 'Tasks', number: true, cell: (group) => count(group.tasks) },
        { label: 'Oldest', cell: (group) => <Ago at={group.oldest} /> },
      ]}
    />
  </Card>
)

const TaskTable = ({ tasks }: { tasks: Task[] }) => (
  <Table
    items={tasks}
    columns={[
      {
        label: 'Task',
        cell: (task) => (
          <>
            {task.type} <span class="hint">{task.id.slice(0, 8)}</span>
          </>
        ),
      },
      { label: 'Account', cell: (task) => <Account of={task.email || task.userId} /> },
      { label: 'State', cell: (task) => <TaskState task={task} /> },
      { label: 'Progress', cell: (task) => <TaskProgress task={task} /> },
      { label: 'In the queue', cell: (task) => <Ago at={task.scheduledAt ?? task.createdAt} /> },
      { label: 'Node', cell: (task) => task.nodes.join(', ') || '–' },
    ]}
  />
)

const TaskState = ({ task }: { task: Task }) => (
  <>
    <State of={task.state} /> {task.position !== undefined && <span class="hint">place {count(task.position)}</span>}
    {task.dueAt !== undefined && (
      <span class="hint">
        {' '}
        tried again <Ago at={task.dueAt} />
      </span>
    )}
  </>
)

const TaskProgress = ({ task }: { task: Task }) => (
  <div>
    {task.progress !== undefined ? (
      <Progress value={task.progress} label={`Progress of ${task.type} ${task.id}`} />
    ) : (
      '–'
    )}
    {task.step && <span class="hint"> {task.step}</span>}
    {task.eta !== undefined && (
      <span class="hint">
        {' '}
        done <Ago at={task.eta} />
      </span>
    )}
  </div>
)
