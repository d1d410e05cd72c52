// Languages of texts: their tags of BCP 47, their names, and which one the name of a file says.

// usual are the tags that a form offers; others can be typed.
export const usual = (
  'af ar bg bn ca cs cy da de el en en-GB en-US es es-419 et eu fa fi fil fr fr-CA ga gl gu he hi hr hu hy id is it ja ka ' +
  'kk km kn ko lo lt lv mk ml mn mr ms my nb ne nl nn pa pl pt pt-BR pt-PT ro ru si sk sl sq sr sv sw ta te th tr uk ur uz ' +
  'vi yue zh zh-Hans zh-Hant zu'
).split(' ')

const english = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'none' })

// languageName returns the English name of a language; '' = none is known.
export function languageName(tag: string): string {
  try {
    return english.of(tag) ?? ''
  } catch {
    return '' // it is no tag
  }
}

// ownName returns the name of a language as a menu has it for those who speak it: Deutsch; '' = none is
// known.
export function ownName(tag: string): string {
  try {
    const name = new Intl.DisplayNames([tag], { type: 'language', fallback: 'none' }).of(tag) ?? ''
    // Menus begin with a capital. Other scripts have none, or not for this.
    return name.replace(/^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}]/u, (first) =>
      first.toLocaleUpperCase(tag),
    )
  } catch {
    return ''
  }
}

let names: Map<string, string> | undefined

// named returns the tag of a language by its name.
function named(name: string): string | undefined {
  names ??= new Map(
    usual.flatMap((tag) => [languageName(tag), ownName(tag)].map((n) => [n.toLowerCase(), tag] as const)),
  )
  return names.get(name.toLowerCase())
}

// tagOf returns the tag that was typed, as it is written, or that of the language whose name was;
// undefined = it is neither.
export function tagOf(text: string): string | undefined {
  const typed = text.trim()
  if (!typed) return undefined
  try {
    // Primary tags have two or three letters, so that of "german" is none.
    const tag = /^[a-z]{2,3}(?![a-z])/i.test(typed)
      ? Intl.getCanonicalLocales(typed.replaceAll('_', '-'))[0]
      : undefined
    return named(typed) ?? tag
  } catch {
    return named(typed)
  }
}

export interface Guess {
  language?: string
  forced: boolean
  closedCaptions: boolean
  chapters: boolean
}

// guess reads what people write into the names of such files: film.de.srt, film.pt-BR.forced.vtt,
// film_en.sdh.srt, German.srt.
export function guess(file: string): Guess {
  const marks: string[] = []
  const base = file.replace(/\.[^.]*$/, '').replace(/([._\s([-]+(forced|sdh|cc|default|chapters)[)\]]?)+$/i, (all) => {
    marks.push(...all.toLowerCase().split(/[^a-z]+/))
    return ''
  })
  return {
    language: languageAtEnd(base),
    forced: marks.includes('forced'),
    closedCaptions: marks.includes('sdh') || marks.includes('cc'),
    chapters: marks.includes('chapters') || /^chapters\b/i.test(file),
  }
}

function languageAtEnd(base: string): string | undefined {
  const separated = '(?:^|[._\\s([-])'
  const tags = [
    new RegExp(`${separated}([A-Za-z]{2,3}[-_](?:[A-Z][a-z]{3}|[A-Za-z]{2}|419))[)\\]]?$`),
    new RegExp(`${separated}([A-Za-z]{2,3})[)\\]]?$`),
  ]
  for (const found of tags.map((pattern) => pattern.exec(base)?.[1])) {
    const tag = found && tagOf(found)
    if (tag && isLikely(found, tag)) return tag
  }
  const word = /\p{L}+$/u.exec(base)?.[0]
  return word && named(word)
}

// isLikely says whether a part of a name is meant as a tag: "In" is a word, and few files are in a
// language whose tag has three letters.
function isLikely(part: string, tag: string): boolean {
  const primary = part.split(/[-_]/)[0]!
  const oneCase = primary === primary.toLowerCase() || primary === primary.toUpperCase()
  return oneCase && languageName(tag) !== '' && (tag.split('-')[0]!.length === 2 || usual.includes(tag))
}
