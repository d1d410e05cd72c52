// What the pages of tasks show of one.
import { api, ask, type Schemas } from '../../lib/api'
import { ago } from '../../lib/format'
import { Action } from '../../ui/form'
import { Badge, Progress, type Tone } from '../../ui/values'

export type Task = Schemas['Task']
type Phase = Task['status']['phase']

export const types: Record<Task['type'], string> = {
  upload: 'make an asset',
  export: 'export an asset',
  'export-data': 'export metadata',
  'transcode-file': 'transcode to a bucket',
  clip: 'make a clip',
}

export const typeOf = (task: Pick<Task, 'type'>) => types[task.type]

export const phases: Record<Phase, [Tone, string]> = {
  pending: ['soft', 'not begun'],
  waiting: ['soft', 'waiting'],
  running: ['warn', 'running'],
  failed: ['bad', 'failed'],
  completed: ['good', 'completed'],
  cancelled: ['soft', 'cancelled'],
}

// TaskState is the state of a task in words, with its progress.
export function TaskState({ task: { status } }: { task: Task }) {
  const [tone, text] = phases[status.phase]
  return (
    <div class="task-state">
      <Badge tone={tone}>{text}</Badge>
      {status.phase === 'running' && <Progress value={status.progress ?? 0} label="Progress of the task" />}
      {status.phase === 'running' && (
        <span class="hint">
          {status.step}
          {status.eta && status.eta > Date.now() ? `${status.step ? ', ' : ''}done ${ago(status.eta)}` : ''}
        </span>
      )}
      {status.errorMessage && <span class="task-error">{status.errorMessage}</span>}
      {status.warnings?.length ? (
        <span class="hint">{status.warnings.length === 1 ? '1 warning' : `${status.warnings.length} warnings`}</span>
      ) : null}
    </div>
  )
}

export const unfinished = ({ status: { phase } }: Task) =>
  phase === 'pending' || phase === 'waiting' || phase === 'running'

// TaskActions are what can be done with a task in its state.
export function TaskActions({ task, small = false, changed }: { task: Task; small?: boolean; changed: () => void }) {
  const path = { id: task.id }
  const size = small ? 'small ' : ''
  const cancel = async () => {
    await ask(api.POST('/api/task/{id}/cancel', { params: { path } }))
    changed()
  }
  const retry = async () => {
    await ask(api.POST('/api/task/{id}/retry', { params: { path } }))
    changed()
  }
  if (unfinished(task)) {
    return (
      <Action
        class={size + 'red quiet'}
        act={cancel}
        done="The task is cancelled."
        confirm="What the task has done so far is lost. The asset that it makes fails."
      >
        Cancel the task
      </Action>
    )
  }
  if (task.status.phase === 'failed' || task.status.phase === 'cancelled') {
    return (
      <Action class={size + 'quiet'} act={retry} done="The task waits for its turn again.">
        Try again
      </Action>
    )
  }
  return null
}
