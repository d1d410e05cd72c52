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
          <button
            key={name}
            type="button"
            class="tab"
            aria-pressed={name === language}
            onClick={() => setLanguage(name)}
          >
            {name}
          </button>
        ))}
      </div>
      {calls.some((call) => call.login) && (
        <p class="hint">
          API keys are refused here: use the token of a log-in. <a href="docs/accounts">How to get one</a>
        </p>
      )}
      {calls.map((call) => (
        <Code key={call.method + call.path} text={languages[language](call)} />
      ))}
    </details>
  )
}

// Code is a block of code with a button that copies it. A secret in it is hidden, and copied.
export function Code({ text, label, secret }: { text: string; label?: string; secret?: string }) {
  return (
    <div class="code">
      {label && <p class="code-label">{label}</p>}
      <pre tabIndex={0} role="group" aria-label={label ?? 'Code'}>
        <code>{secret ? text.replaceAll(secret, '•'.repeat(16)) : text}</code>
      </pre>
      <Copy text={text} />
    </div>
  )
}

// Samples shows the same code in several languages.
export function Samples({ of, label }: { of: Record<string, string>; label: string }) {
  const [chosen, choose] = useState(Object.keys(of)[0]!)
  return (
    <>
      <div class="tabs" role="group" aria-label={`Language of: ${label}`}>
        {Object.keys(of).map((name) => (
          <button key={name} type="button" class="tab" aria-pressed={name === chosen} onClick={() => choose(name)}>
            {name}
          </button>
        ))}
      </div>
      <Code text={of[chosen]!} label={label} />
    </>
  )
}
