// Short messages about what was done.
import { signal } from '@preact/signals'

interface Message {
  id: number
  text: string
  tone: 'good' | 'bad'
}

const messages = signal<Message[]>([])
let last = 0

// toast shows a message for a few seconds; errors stay longer.
export function toast(text: string, tone: 'good' | 'bad' = 'good') {
  const id = ++last
  messages.value = [...messages.value, { id, text, tone }]
  setTimeout(() => dismiss(id), tone === 'bad' ? 12_000 : 4000)
}

const dismiss = (id: number) => (messages.value = messages.value.filter((m) => m.id !== id))

export const Toasts = () => (
  <div class="toasts" role="status" aria-live="polite">
    {messages.value.map((m) => (
      <div key={m.id} class={'toast ' + m.tone}>
        <span>{m.text}</span>
        <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(m.id)}>
          ✕
        </button>
      </div>
    ))}
  </div>
)
