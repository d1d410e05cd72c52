// The uploads of this browser, in a corner of every page.
import { useState } from 'preact/hooks'
import { bytes, duration, plural } from '../lib/format'
import { cancel, dismiss, pause, resume, uploads, type Upload } from '../lib/uploads'
import { Action } from '../ui/form'
import { Progress } from '../ui/values'

export function Uploads() {
  const [folded, fold] = useState(false)
  const all = uploads.value
  if (all.length === 0) return null
  const open = all.filter((u) => u.state !== 'done').length
  const total = all.reduce((sum, u) => sum + u.file.size, 0)
  const sent = all.reduce((sum, u) => sum + u.sent, 0)
  return (
    <section class="uploads" aria-label="Uploads">
      <div class="head">
        <h2>{open > 0 ? `Uploading ${plural(open, 'file')}` : 'All files are uploaded'}</h2>
        <div class="actions">
          <button type="button" class="small quiet" aria-expanded={!folded} onClick={() => fold(!folded)}>
            {folded ? 'Show' : 'Hide'}
          </button>
          {open === 0 && (
            <button type="button" class="small quiet" onClick={() => dismiss(...all.map((u) => u.id))}>
              Close
            </button>
          )}
        </div>
      </div>
      {folded ? (
        <Progress value={total > 0 ? sent / total : 0} label="All uploads" />
      ) : (
        <ul>
          {all.map((u) => (
            <Row key={u.id} of={u} />
          ))}
        </ul>
      )}
    </section>
  )
}

function Row({ of: u }: { of: Upload }) {
  return (
    <li>
      <div class="upload-name">
        {u.assetID ? <a href={'assets/' + u.assetID}>{u.file.name}</a> : u.file.name}
        <span class="hint">{bytes(u.file.size)}</span>
      </div>
      {u.state !== 'done' && (
        <Progress value={u.file.size > 0 ? u.sent / u.file.size : 0} label={`Upload of ${u.file.name}`} />
      )}
      <p
        class={u.state === 'failed' ? 'upload-state bad' : 'upload-state hint'}
        role={u.state === 'failed' ? 'alert' : undefined}
      >
        {state(u)}
      </p>
      <div class="actions">
        {(u.state === 'sending' || u.state === 'waiting' || u.state === 'offline') && (
          <button type="button" class="small quiet" aria-label={`Pause ${u.file.name}`} onClick={() => pause(u.id)}>
            Pause
          </button>
        )}
        {(u.state === 'paused' || u.state === 'failed') && (
          <button
            type="button"
            class="small quiet"
            aria-label={`${u.state === 'failed' ? 'Try again' : 'Continue'}: ${u.file.name}`}
            onClick={() => resume(u.id)}
          >
            {u.state === 'failed' ? 'Try again' : 'Continue'}
          </button>
        )}
        {u.state === 'done' ? (
          <button type="button" class="small quiet" aria-label={`Dismiss ${u.file.name}`} onClick={() => dismiss(u.id)}>
            Dismiss
          </button>
        ) : (
          <Action class="small red quiet" label={`Cancel ${u.file.name}`} act={() => cancel(u.id)}>
            Cancel
          </Action>
        )}
      </div>
    </li>
  )
}

function state(u: Upload): string {
  switch (u.state) {
    case 'waiting':
      return 'Waits for its turn.'
    case 'offline':
      return 'No connection. It continues by itself.'
    case 'paused':
      return 'Paused.'
    case 'failed':
      return u.error
    case 'done':
      return 'Uploaded.'
  }
  if (!u.speed) return 'Starting.'
  return `${bytes(u.speed)}/s, ${duration((u.file.size - u.sent) / u.speed)} left`
}
