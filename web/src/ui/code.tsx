import { useState } from 'preact/hooks'
import { asCurl, asJavaScript, type Call } from '../lib/code'
import { Copy } from './copy'

const languages = { curl: asCurl, JavaScript: asJavaScript }

// AsCode shows calls of the API as curl and as JavaScript.
export function AsCode({ calls, open = false, title = 'As code' }: { calls: Call[]; open?: boolean; title?: string }) {
  const [language, setLanguage] = useState<keyof typeof languages>('curl')
  return (
    <details class="as-code" open={open}>
      <summary>{title}</summary>
      <div class="tabs" role="group" aria-label="Language">
        {(Object.keys(languages) as (keyof typeof languages)[]).map((name) => (
          <button key={name} type="button" class="tab" aria-pressed={name === language} onClick={() => setLanguage(name)}>
            {name}
          </button>
        ))}
      </div>
      {calls.map((call) => (
        <Code key={call.method + call.path} text={languages[language](call)} />
      ))}
    </details>
  )
}

// Code is a block of code with a button that copies it.
export function Code({ text, label }: { text: string; label?: string }) {
  return (
    <div class="code">
      {label && <p class="code-label">{label}</p>}
      <pre tabIndex={0} aria-label={label ?? 'Code'}>
        <code>{text}</code>
      </pre>
      <Copy text={text} />
    </div>
  )
}
