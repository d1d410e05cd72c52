// The keys of the player, as other video sites have them.

export type KeyAction =
  | { act: 'toggle' | 'mute' | 'fullscreen' | 'captions' | 'help' }
  | { act: 'seek'; by: number } // seconds
  | { act: 'volume'; by: number } // of 1
  | { act: 'jump'; part: number } // of what can be played

const actions: Record<string, KeyAction> = {
  ' ': { act: 'toggle' },
  k: { act: 'toggle' },
  j: { act: 'seek', by: -10 },
  l: { act: 'seek', by: 10 },
  ArrowLeft: { act: 'seek', by: -5 },
  ArrowRight: { act: 'seek', by: 5 },
  ArrowUp: { act: 'volume', by: 0.05 },
  ArrowDown: { act: 'volume', by: -0.05 },
  m: { act: 'mute' },
  f: { act: 'fullscreen' },
  c: { act: 'captions' },
  '?': { act: 'help' },
}

// actionOf returns what a key does; undefined = it is none of the player's. With caps lock the keys
// are the same.
export function actionOf(key: string): KeyAction | undefined {
  if (/^\d$/.test(key)) return { act: 'jump', part: Number(key) / 10 }
  const name = key.length === 1 ? key.toLowerCase() : key
  return Object.hasOwn(actions, name) ? actions[name] : undefined
}

// keyHelp lists the keys for people.
export const keyHelp: readonly (readonly [keys: readonly string[], what: string])[] = [
  [['Space', 'k'], 'play or pause'],
  [['j', 'l'], '10 seconds back or forward'],
  [['←', '→'], '5 seconds back or forward'],
  [['0', '…', '9'], 'to this tenth of the video'],
  [['↑', '↓'], 'louder or quieter'],
  [['m'], 'mute'],
  [['f'], 'full screen'],
  [['c'], 'captions, if there are any'],
  [['?'], 'this list'],
]

// within keeps a time in what can be played.
export const within = (time: number, start: number, end: number) => Math.min(Math.max(time, start), end)
