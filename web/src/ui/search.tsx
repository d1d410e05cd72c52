import { useEffect, useState } from 'preact/hooks'

const typing = 300 // ms to wait for the next key before searching

// Search is a field that reports what was typed when the typing pauses.
export function Search({ value, onValue, label }: { value: string; onValue: (value: string) => void; label: string }) {
  const [text, setText] = useState(value)
  useEffect(() => setText(value), [value])
  useEffect(() => {
    if (text === value) return
    const timer = setTimeout(() => onValue(text), typing)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <input
      type="search"
      class="search"
      aria-label={label}
      placeholder={label}
      value={text}
      onInput={(e) => setText(e.currentTarget.value)}
    />
  )
}

// Choice is a filter with a few values.
export function Choice({
  label,
  value,
  options,
  onValue,
}: {
  label: string
  value: string
  options: readonly (readonly [string, string])[]
  onValue: (value: string) => void
}) {
  return (
    <select aria-label={label} value={value} onChange={(e) => onValue(e.currentTarget.value)}>
      {options.map(([id, text]) => (
        <option key={id} value={id}>
          {text}
        </option>
      ))}
    </select>
  )
}
