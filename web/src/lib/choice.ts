// Which text and which audio a viewer wants, of those that a video has.

import { ownName } from './language'

export interface Choice {
  id?: string // of the text
  name: string
  language: string // a tag of BCP 47; '' = it is not known
  default: boolean
  forced: boolean // only for those who understand the audio
}

// label returns what a menu calls a choice. One without a name of its own is named by its language.
export const label = (name: string, language: string) =>
  name && name !== language ? name : ownName(language) || name || language

// Wish is what a viewer chose last, maybe of another video.
export interface Wish {
  off?: boolean // no text
  language?: string
  name?: string
}

const primary = (tag: string) => tag.split('-')[0]!

// match returns the index of what a viewer chose last; -1 = there is no such thing here.
export function match(choices: readonly Choice[], { language = '', name }: Wish): number {
  if (!language) return -1
  const wanted = language.toLowerCase()
  const rules: ((tag: string, choice: Choice) => boolean)[] = [
    (tag, choice) => tag === wanted && choice.name === name,
    (tag, choice) => tag === wanted && !choice.forced,
    (tag, choice) => primary(tag) === primary(wanted) && !choice.forced,
  ]
  for (const rule of rules) {
    const found = choices.findIndex((choice) => rule(choice.language.toLowerCase(), choice))
    if (found >= 0) return found
  }
  return -1
}

// first returns the index of what is shown when a video starts: the default, unless the viewer wants
// something else; -1 = nothing.
export function first(choices: readonly Choice[], wish: Wish): number {
  if (wish.off) return -1
  const wanted = match(choices, wish)
  return wanted >= 0 ? wanted : choices.findIndex((choice) => choice.default)
}

// some returns the index of what is shown to somebody who wants something; -1 = there is nothing.
export function some(choices: readonly Choice[], wish: Wish): number {
  const wanted = first(choices, { ...wish, off: false })
  if (wanted >= 0) return wanted
  const whole = choices.findIndex((choice) => !choice.forced)
  return whole >= 0 ? whole : choices.length - 1
}
