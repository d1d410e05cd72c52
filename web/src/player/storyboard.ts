// The pictures that show where a seek leads: sprites with a WebVTT file that says when and where.
export interface Scene {
  start: number
  end: number
  image: string
  x: number
  y: number
  width: number
  height: number
}

// loadStoryboard returns the pictures of a video; none if it has no such file.
export async function loadStoryboard(folder: string, query: string): Promise<Scene[]> {
  try {
    const address = new URL(folder + 'thumbnails/sprite.vtt' + query)
    const answer = await fetch(address)
    return answer.ok ? parse(await answer.text(), address.href) : []
  } catch {
    return []
  }
}

const seconds = (text: string) => text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0)

export function parse(text: string, address: string): Scene[] {
  const scenes: Scene[] = []
  for (const cue of text.split(/\r?\n\r?\n/)) {
    const found = /([\d:.]+) --> ([\d:.]+)[^\n]*\n\s*(\S+)#xywh=(\d+),(\d+),(\d+),(\d+)/.exec(cue)
    if (!found) continue
    const [x, y, width, height] = found.slice(4).map(Number) as [number, number, number, number]
    scenes.push({
      start: seconds(found[1]!),
      end: seconds(found[2]!),
      image: new URL(found[3]!, address).href,
      x,
      y,
      width,
      height,
    })
  }
  return scenes
}

// sceneAt returns the picture at a time, by halving.
export function sceneAt(scenes: Scene[], time: number): Scene | undefined {
  let low = 0
  let high = scenes.length - 1
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (scenes[middle]!.start <= time) low = middle
    else high = middle - 1
  }
  return scenes[low]
}
