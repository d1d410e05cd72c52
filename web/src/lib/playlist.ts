// What a master playlist says of its renditions.

export interface Variant {
  name: string
  width?: number
  height?: number
  fps?: number
  bitrate: number // bits per second at most
  codecs: string
}

// variants reads the renditions of an HLS master playlist, the largest first.
export function variants(text: string): Variant[] {
  const lines = text.split('\n').map((line) => line.trim())
  const found: Variant[] = []
  for (let i = 0; i + 1 < lines.length; i++) {
    const [tag, list] = [lines[i]!.slice(0, 18), lines[i]!.slice(18)]
    if (tag !== '#EXT-X-STREAM-INF:') continue
    const attributes = Object.fromEntries(
      [...list.matchAll(/([A-Z0-9-]+)=("[^"]*"|[^,]*)/g)].map((m) => [m[1]!, m[2]!.replaceAll('"', '')]),
    )
    const [width, height] = (attributes.RESOLUTION ?? '').split('x').map(Number)
    found.push({
      name: decodeURIComponent(lines[i + 1]!.split('?')[0]!.split('/').at(-2) ?? lines[i + 1]!),
      width: width || undefined,
      height: height || undefined,
      fps: Number(attributes['FRAME-RATE']) || undefined,
      bitrate: Number(attributes['AVERAGE-BANDWIDTH'] ?? attributes.BANDWIDTH ?? 0),
      codecs: attributes.CODECS ?? '',
    })
  }
  return found.sort((a, b) => b.bitrate - a.bitrate)
}
