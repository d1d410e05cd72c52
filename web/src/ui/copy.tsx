import { useState } from 'preact/hooks'

// Copy is a button that copies a text.
export function Copy({ text, what = 'Copy' }: { text: string; what?: string }) {
  const [said, say] = useState('')
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      say('Copied')
    } catch {
      say('Select it and copy it by hand') // the browser refuses, as it does over plain HTTP
    }
    setTimeout(() => say(''), 2000)
  }
  return (
    <button type="button" class="small quiet copy" onClick={copy} aria-live="polite">
      {said || what}
    </button>
  )
}

// Copyable is a value with a button that copies it.
export function Copyable({ text }: { text: string }) {
  return (
    <span class="copyable">
      <code>{text}</code>
      <Copy text={text} />
    </span>
  )
}

// Secret is a value that is hidden until asked for.
export function Secret({ text, name }: { text: string; name: string }) {
  const [shown, show] = useState(false)
  return (
    <span class="copyable">
      <code>{shown ? text : '•'.repeat(16)}</code>
      <button
        type="button"
        class="small quiet"
        onClick={() => show(!shown)}
        aria-label={`${shown ? 'Hide' : 'Show'} ${name}`}
      >
        {shown ? 'Hide' : 'Show'}
      </button>
      <Copy text={text} />
    </span>
  )
}
