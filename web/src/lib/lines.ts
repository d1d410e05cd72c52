// The lines of a text: of a transcript, or the titles of chapters.

export interface Line {
  start: number // seconds
  text: string
}

// lineAt returns the index of the line that began last; -1 = it is before the first one. A seek may lead
// to a moment before the time that was asked for.
export const lineAt = (lines: readonly Line[], time: number) => lines.findLastIndex((line) => line.start <= time + 0.01)

// parts divides a text at what was searched for, whatever the case: each second part is a place of it.
export function parts(text: string, search: string): string[] {
  if (!search) return [text]
  return text.split(new RegExp(`(${search.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')})`, 'giu'))
}
