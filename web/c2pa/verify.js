// Verifies an init segment and a segment with the validator of others (c2pa.js), in a worker: it
// reads files in a way that only workers can, and takes a while.
import init, { WasmReader } from './c2pa.js'

const ready = init({ module_or_path: new URL('c2pa.wasm', import.meta.url) })
ready.catch(() => {}) // the first answer says it

self.onmessage = async ({ data: { number, start, segment, trust } }) => {
  try {
    await ready
    const settings = JSON.stringify({ trust: { trust_anchors: trust }, verify: { verify_trust: Boolean(trust) } })
    const reader = await WasmReader.fromBlobFragment('video/mp4', new Blob([start]), new Blob([segment]), settings)
    postMessage({ number, report: JSON.parse(reader.json()) })
    reader.free()
  } catch (error) {
    postMessage({ number, error: String(error?.message || error) })
  }
}
