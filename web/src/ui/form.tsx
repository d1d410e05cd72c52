// Fields, buttons and dialogs.
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { toast } from './toast'

// Field is a label with its input and a hint below.
export function Field({
  label,
  hint,
  children,
}: {
  label: string
  hint?: ComponentChildren
  children: (id: string, hintID?: string) => ComponentChildren
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hint ? id + 'h' : undefined)}
      {hint && (
        <p class="hint" id={id + 'h'}>
          {hint}
        </p>
      )}
    </div>
  )
}

interface Text {
  label: string
  hint?: ComponentChildren
  value: string
  onValue: (value: string) => void
  type?: 'text' | 'url' | 'email' | 'number' | 'search' | 'password' | 'datetime-local'
  autoComplete?: string
  placeholder?: string
  required?: boolean
  autoFocus?: boolean
  min?: number
  max?: number
  maxLength?: number
  step?: number | string
  pattern?: string
  list?: string
}

export function TextField({ label, hint, value, onValue, ...rest }: Text) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintID) => (
        <input
          {...(rest as object)}
          id={id}
          aria-describedby={hintID}
          value={value}
          onInput={(e) => onValue(e.currentTarget.value)}
        />
      )}
    </Field>
  )
}

export function SelectField<T extends string>(props: {
  label: string
  hint?: ComponentChildren
  value: T
  options: readonly (readonly [T, string])[]
  onValue: (value: T) => void
  required?: boolean // '' is no choice
}) {
  return (
    <Field label={props.label} hint={props.hint}>
      {(id, hintID) => (
        <select
          id={id}
          aria-describedby={hintID}
          value={props.value}
          required={props.required}
          onChange={(e) => props.onValue(e.currentTarget.value as T)}
        >
          {props.options.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

export function Check({
  label,
  hint,
  checked,
  onChecked,
}: {
  label: string
  hint?: ComponentChildren
  checked: boolean
  onChecked: (on: boolean) => void
}) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(e) => onChecked(e.currentTarget.checked)} />
      <span>
        {label}
        {hint && <span class="hint">{hint}</span>}
      </span>
    </label>
  )
}

type ActionProps = {
  class?: string
  children: ComponentChildren
  act: () => Promise<unknown>
  done?: string
  disabled?: boolean
  confirm?: string
  label?: string
}

// Action is a button that does something with the API: it is disabled while that runs, says what
// was done, and what went wrong. With confirm it asks first.
export function Action({ act, done, confirm, children, class: extra = '', disabled, label }: ActionProps) {
  const [busy, setBusy] = useState(false)
  const [asking, ask] = useState(false)
  const run = async () => {
    ask(false)
    setBusy(true)
    try {
      await act()
      if (done) toast(done)
    } catch (e) {
      toast((e as Error).message, 'bad')
    }
    setBusy(false)
  }
  return (
    <>
      <button
        type="button"
        class={extra}
        disabled={busy || disabled}
        aria-busy={busy}
        aria-label={label}
        onClick={confirm ? () => ask(true) : run}
      >
        {children}
      </button>
      {asking && (
        <Dialog title="Are you sure?" close={() => ask(false)}>
          <p>{confirm}</p>
          <div class="actions">
            <button type="button" class={extra.replace('quiet', '')} onClick={run}>
              {children}
            </button>
            <button type="button" class="quiet" onClick={() => ask(false)}>
              Cancel
            </button>
          </div>
        </Dialog>
      )}
    </>
  )
}

// Form is a form that calls the API. The error of the API shows above its buttons.
export function Form({
  submit,
  label,
  children,
  cancel,
  disabled,
}: {
  submit: () => Promise<unknown>
  label: string
  children: ComponentChildren
  cancel?: () => void
  disabled?: boolean
}) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState('')
  const mounted = useRef(true)
  useEffect(
    () => () => {
      mounted.current = false
    },
    [],
  )
  const onSubmit = async (e: Event) => {
    e.preventDefault()
    setBusy(true)
    setError('')
    try {
      await submit()
    } catch (failure) {
      if (mounted.current) setError((failure as Error).message)
    }
    if (mounted.current) setBusy(false)
  }
  return (
    <form onSubmit={onSubmit}>
      {children}
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      <div class="actions">
        <button type="submit" disabled={busy || disabled} aria-busy={busy}>
          {label}
        </button>
        {cancel && (
          <button type="button" class="quiet" onClick={cancel}>
            Cancel
          </button>
        )}
      </div>
    </form>
  )
}

// Dialog is a modal dialog; Escape and a click outside close it.
export function Dialog({
  title,
  close,
  children,
  wide = false,
}: {
  title: string
  close: () => void
  children: ComponentChildren
  wide?: boolean
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog
      ref={dialog}
      class={wide ? 'wide' : ''}
      aria-labelledby={id}
      onClose={close}
      onClick={(e) => e.target === dialog.current && close()}
    >
      <div class="dialog">
        <div class="head">
          <h2 id={id}>{title}</h2>
          <button type="button" class="plain" aria-label="Close" onClick={close}>
            ✕
          </button>
        </div>
        {children}
      </div>
    </dialog>
  )
}
