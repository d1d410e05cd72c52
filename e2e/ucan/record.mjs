// record.mjs DIR: writes the proofs of internal/ucan/testdata that no command line tool makes. Keys
// and times are fixed, so only the RSA key differs from run to run.
import fs from 'node:fs'
import path from 'node:path'
import * as ed25519 from '@ucanto/principal/ed25519'
import * as RSA from '@ucanto/principal/rsa'
import { Absentee } from '@ucanto/principal'
import { delegate, Delegation, CBOR } from '@ucanto/core'
import { CarWriter } from '@ipld/car'
import { base64 } from 'multiformats/bases/base64'
import { CID } from 'multiformats/cid'
import { identity } from 'multiformats/hashes/identity'
import { sha256 } from 'multiformats/hashes/sha2'

const out = process.argv[2]
const key = (n) => ed25519.derive(new Uint8Array(32).fill(n))
const space = await key(1), agent = await key(2), other = await key(3), weir = await key(18)
const account = Absentee.from({ id: 'did:mailto:example.com:user' })
const late = 4102444800 // 2100
const needed = ['space/blob/add', 'space/index/add', 'upload/add']
const caps = (subject, abilities = needed, nb) => abilities.map((can) => ({ can, with: subject.did(), ...(nb && { nb }) }))
const from = (issuer, audience, capabilities, options = {}) =>
  delegate({ issuer, audience, capabilities, expiration: late, ...options })

const write = async (name, delegation, drop) => {
  const archive = await delegation.archive()
  if (archive.error) throw archive.error
  save(name, drop ? await without(delegation, drop) : archive.ok)
}
const save = (name, bytes) =>
  fs.writeFileSync(path.join(out, name), CID.createV1(0x0202, identity.digest(bytes)).toString(base64) + '\n')

// car returns a CAR file without roots.
const car = async (blocks) => {
  const { writer, out } = CarWriter.create([])
  const parts = []
  const read = (async () => { for await (const part of out) parts.push(part) })()
  for (const b of blocks) await writer.put({ cid: b.cid, bytes: b.bytes })
  await writer.close()
  await read
  return new Uint8Array(Buffer.concat(parts))
}
const without = (delegation, drop) => car([...delegation.export()].filter((b) => !b.cid.equals(drop.cid)))

const toAgent = (options) => from(space, agent, caps(space, ['space/*', 'upload/*']), options)
const toWeir = (proofs, options) => from(agent, weir, caps(space), { proofs, ...options })

await write('good/space.txt', await from(space, weir, caps(space)))
await write('good/no-end.txt', await from(space, weir, caps(space), { expiration: Infinity }))
const rsa = await RSA.generate()
await write('good/rsa.txt', await from(rsa, weir, caps(space), { proofs: [await from(space, rsa, caps(space))] }))
const viaAccount = await from(space, account, [{ can: '*', with: space.did() }])
const session = await from(account, agent, [{ can: '*', with: 'ucan:*' }], { proofs: [viaAccount] })
await write('good/account.txt', await toWeir([session]))
await write('good/several-parents.txt', await toWeir([
  await from(other, agent, caps(other)), await toAgent({ expiration: 1700000000 }), session, await toAgent()]))
await write('good/split.txt', await toWeir([
  await from(space, agent, caps(space, ['space/*'])), await from(space, agent, caps(space, ['upload/*']))]))
let parent = await toAgent()
await write('good/facts.txt', await toWeir([parent], {
  facts: [{ text: 'ü <>&"\\ 🐔\n', list: [1, -1, true, null, 1.5, 2 ** 40], bytes: new Uint8Array([1, 2, 3]), link: parent.cid, z: 1, aa: { b: 1, a: 2 } }],
  nonce: 'nonce', notBefore: 1700000000 }))

await write('bad/not-yet.txt', await toWeir([await toAgent({ notBefore: late - 1 })]))
await write('bad/expired-parent.txt', await toWeir([await toAgent({ expiration: 1700000000 })]))
await write('bad/caveats.txt', await from(space, weir, caps(space, needed, { root: parent.cid })))
await write('bad/two-spaces.txt', await from(space, weir, [...caps(space), ...caps(other)], { proofs: [await from(other, space, caps(other))] }))
await write('bad/mixed-spaces.txt', await from(space, weir, [...caps(space, ['space/*']), ...caps(other, ['upload/*'])]))
await write('bad/no-space.txt', await from(space, weir, [{ can: 'upload/add', with: 'mailto:user@example.com' }]))
await write('bad/missing-parent.txt', await toWeir([parent]), parent)
await write('bad/no-parent.txt', await toWeir([]))
await write('bad/escalated.txt', await toWeir([await from(space, agent, caps(space, ['upload/*', 'space/blob/*']))]))
await write('bad/other-space-parent.txt', await toWeir([await from(other, agent, caps(space, ['space/*', 'upload/*']))]))
await write('bad/parent-for-other.txt', await toWeir([await from(space, other, caps(space))]))
const web = other.withDID('did:web:example.com')
await write('bad/web-issuer.txt', await from(web, weir, caps(space), { proofs: [await from(space, web, caps(space))] }))
let deep = await toAgent()
for (let i = 0; i < 20; i++) deep = await from(agent, agent, caps(space), { proofs: [deep], nonce: String(i) })
await write('bad/deep.txt', await toWeir([deep]))

// forge writes a proof with a changed parent whose hash is right.
const forge = async (name, change) => {
  const data = CBOR.decode(parent.root.bytes)
  change(data)
  const bytes = CBOR.encode(data)
  const cid = CID.createV1(0x71, await sha256.digest(bytes))
  save(name, await car([{ cid, bytes }, ...(await toWeir([cid])).export()]))
}
await forge('bad/forged-parent.txt', (d) => { d.exp = late + 1 })
await forge('bad/wrong-signature.txt', (d) => { d.s[d.s.length - 1] ^= 1 })
await forge('bad/short-signature.txt', (d) => { d.s = d.s.slice(0, 2) })
await forge('bad/strange-issuer.txt', (d) => { d.iss = new Uint8Array([1, 2, 3]) })
await forge('bad/version.txt', (d) => { d.v = '1.0.0' })
const blocks = [...(await toWeir([parent])).export()]
blocks[0] = { cid: blocks[0].cid, bytes: blocks[0].bytes.map((b, i) => (i === 100 ? b ^ 1 : b)) }
save('bad/changed-block.txt', await car(blocks))
save('bad/not-a-delegation.txt', await car([{ cid: CID.createV1(0x71, await sha256.digest(CBOR.encode({ a: 1 }))), bytes: CBOR.encode({ a: 1 }) }]))
save('bad/no-blocks.txt', await car([]))
