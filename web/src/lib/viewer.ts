// What the browser remembers of a viewer, for the next video. Storage may be blocked, as it is in frames
// of other sites in some browsers: then it is known until the page is left.
import type { Wish } from './choice'

export const textSizes = ['small', 'normal', 'large'] as const
export const textContrasts = ['plain', 'box'] as const

export interface Viewer {
  text: Wish
  audio: Wish
  textSize: (typeof textSizes)[number]
  textContrast: (typeof textContrasts)[number]
}

const key = 'weir.viewer'
let kept = '{}'

function stored(): string {
  try {
    return localStorage.getItem(key) ?? kept
  } catch {
    return kept
  }
}

const text = (value: unknown) => (typeof value === 'string' ? value : undefined)

// asWish takes what is stored for what it is: anything may have written it.
function asWish(value: unknown): Wish {
  const { off, language, name } = (value ?? {}) as Record<string, unknown>
  return { off: off === true, language: text(language), name: text(name) }
}

const oneOf = <T extends string>(values: readonly T[], value: unknown, other: T): T =>
  values.find((v) => v === value) ?? other

// recall returns what is known of the viewer.
export function recall(): Viewer {
  let found: Record<string, unknown> = {}
  try {
    found = (JSON.parse(stored()) ?? {}) as typeof found
  } catch {
    // It is as if nothing was stored.
  }
  return {
    text: asWish(found.text),
    audio: asWish(found.audio),
    textSize: oneOf(textSizes, found.textSize, 'normal'),
    textContrast: oneOf(textContrasts, found.textContrast, 'box'),
  }
}

// remember changes some of it.
export function remember(patch: Partial<Viewer>) {
  kept = JSON.stringify({ ...recall(), ...patch })
  try {
    localStorage.setItem(key, kept)
  } catch {
    // Until the page is left, then.
  }
}
