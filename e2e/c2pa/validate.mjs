// Checks files with two validators that share no code. Standard input is
// {trust: PEM, checks: [{name, file} or {name, file, segment}]}, with file the init segment of
// segment; standard output is [{name, wasm, ts}], each with state and codes.
import fs from 'node:fs';
import init, { WasmReader } from '@contentauth/c2pa-wasm';
import { BMFF } from '@trustnxt/c2pa-ts/asset';
import { SuperBox } from '@trustnxt/c2pa-ts/jumbf';
import { ManifestStore } from '@trustnxt/c2pa-ts/manifest';

// Node has no FileReaderSync, and its Blob can only be read later.
class Bytes extends Blob {
  constructor(parts, options) {
    super(parts, options);
    this.bytes = Buffer.concat(parts.map((p) => (p instanceof ArrayBuffer ? Buffer.from(p) : Buffer.from(p.buffer ?? p, p.byteOffset ?? 0, p.byteLength))));
  }
  slice(from = 0, to = this.size, type) {
    return new Bytes([this.bytes.subarray(from, to)], { type });
  }
}
globalThis.FileReaderSync = class {
  readAsArrayBuffer({ bytes }) {
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  }
};
for (const brand of ['isom', 'iso6', 'mp42', 'mp41']) BMFF.canReadBrands.add(brand);

const { trust, checks } = JSON.parse(fs.readFileSync(0, 'utf8'));
const settings = JSON.stringify({ trust: { trust_anchors: trust }, verify: { verify_trust: true } });
await init({ module_or_path: fs.readFileSync(new URL(import.meta.resolve('@contentauth/c2pa-wasm/c2pa.wasm'))) });

async function wasm({ file, segment }) {
  const data = fs.readFileSync(file);
  try {
    const reader = segment
      ? await WasmReader.fromBlobFragment('video/mp4', new Bytes([data]), new Bytes([fs.readFileSync(segment)]), settings)
      : await WasmReader.fromBytes('video/mp4', data, settings);
    const report = JSON.parse(reader.json());
    const found = report.validation_results ?? {};
    const codes = [found.activeManifest, ...(found.ingredientDeltas ?? []).map((d) => d.validationDeltas)]
      .flatMap((r) => [...(r?.failure ?? []), ...(r?.informational ?? [])])
      .map((f) => `${f.code}: ${f.explanation}`);
    const sources = Object.values(report.manifests ?? {})
      .flatMap((m) => m.ingredients ?? [])
      .flatMap((i) => i.validation_results?.activeManifest?.failure ?? [])
      .filter((f) => !f.code.endsWith('.untrusted'))
      .map((f) => f.code);
    return { state: report.validation_state, codes, sources, manifests: process.env.FULL ? report.manifests : undefined };
  } catch (e) {
    return { state: 'Error', codes: [String(e?.message ?? e)] };
  }
}

async function ts({ file }) {
  try {
    const asset = new BMFF(fs.readFileSync(file));
    const store = asset.getManifestJUMBF();
    if (!store) return { state: 'None', codes: [] };
    const result = await ManifestStore.read(SuperBox.fromBuffer(store)).validate(asset);
    const codes = result.statusEntries.filter((e) => !e.success).map((e) => `${e.code}: ${e.explanation}`);
    return { state: result.isValid ? 'Valid' : 'Invalid', codes };
  } catch (e) {
    return { state: 'Error', codes: [String(e?.stack ?? e)] };
  }
}

const results = [];
for (const check of checks) {
  // Only one of them can check a segment by itself.
  results.push({ name: check.name, wasm: await wasm(check), ts: check.segment ? undefined : await ts(check) });
}
console.log(JSON.stringify(results));
