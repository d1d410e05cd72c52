// server.mjs: a UCAN upload service, and the people who use it. The service is the real
// @storacha/upload-api over stores in memory; the people are @storacha/client. Everything listens on
// loopback. It prints {"url", "did"} when it is ready, and ends when its standard input does.
//
//   POST /                 invocations
//   GET  /receipt/CID      the receipt of a task
//   POST /test/NAME        a function of this file: JSON in, JSON out
import fs from 'node:fs'
import nodeHTTP from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createContext } from '@storacha/upload-api/test/context'
import { create } from '@storacha/client'
import { StoreMemory } from '@storacha/client/stores/memory'
import { connect } from '@ucanto/client'
import { delegate, Message, Receipt } from '@ucanto/core'
import * as ed25519 from '@ucanto/principal/ed25519'
import { CAR, HTTP } from '@ucanto/transport'
import { CarWriter, CarBlockIterator } from '@ipld/car'
import { base64 } from 'multiformats/bases/base64'
import { CID } from 'multiformats/cid'
import { identity } from 'multiformats/hashes/identity'
import { sha256 } from 'multiformats/hashes/sha2'

const puts = { count: 0, fail: 0, bytes: 0, again: 0 }
const stored = new Set() // paths of PUTs that succeeded
const orders = {} // how often each ability was invoked
const disabled = new Set() // abilities that the service has no more
let outages = 0 // how many invocations fail next

// The storage nodes of the test context listen on all interfaces and destroy connections before
// their answers are out.
const http = {
  ...nodeHTTP,
  createServer: (handle) => {
    const server = nodeHTTP.createServer((req, res) => {
      const destroy = res.destroy.bind(res)
      res.destroy = () => (res.writableFinished ? destroy() : res)
      if (req.method === 'PUT') {
        puts.count++
        if (puts.fail > 0) {
          puts.fail--
          req.resume()
          res.writeHead(503).end()
          return
        }
        puts.bytes += Number(req.headers['content-length'])
        if (stored.has(req.url)) puts.again++
        res.on('finish', () => res.statusCode < 300 && stored.add(req.url))
      }
      return handle(req, res)
    })
    const listen = server.listen.bind(server)
    server.listen = (ready) => listen(0, '127.0.0.1', ready)
    return server
  },
}
const context = await createContext({ http, requirePaymentPlan: false, assert: { fail: (e) => console.error('service:', e) } })
// What the services of the context delegate to one another ends after 30 seconds.
for (const { invocationConfig: c } of [context.indexingService, context.claimsService]) {
  c.proofs = [await delegate({ issuer: c.audience, audience: c.issuer, capabilities: [{ can: 'assert/*', with: c.with }], expiration: Infinity })]
}

// Nobody clicks on the link in the mail of a log-in.
const send = context.email.sendValidation.bind(context.email)
context.email.sendValidation = async (mail) => {
  await send(mail)
  setTimeout(() => context.grantAccess(mail).catch((e) => console.error('log-in:', e)), 50)
}

const read = async (req) => {
  const chunks = []
  for await (const c of req) chunks.push(c)
  return Buffer.concat(chunks)
}

const server = nodeHTTP.createServer(async (req, res) => {
  try {
    const name = new URL(req.url, url).pathname.slice(1)
    if (req.method === 'POST' && name === '') {
      const body = new Uint8Array(await read(req))
      const message = await CAR.inbound.accept({ headers: req.headers, body }).ok.decoder.decode({ headers: req.headers, body })
      for (const i of message.invocations) for (const c of i.capabilities) orders[c.can] = (orders[c.can] ?? 0) + 1
      if (outages > 0) {
        outages--
        res.writeHead(503).end()
        return
      }
      const [first] = message.invocations
      if (disabled.has(first.capabilities[0].can)) {
        // The public service has answered this since it ended.
        const error = { name: 'ServiceUnavailable', message: `The "${first.capabilities[0].can}" capability is currently disabled.` }
        const receipt = await Receipt.issue({ issuer: context.id, ran: first, result: { error } })
        res.writeHead(200).end((await CAR.outbound.encode(await Message.build({ receipts: [receipt] }))).body)
        return
      }
      const answer = await context.connection.channel.request({ headers: req.headers, body })
      res.writeHead(answer.status ?? 200, answer.headers).end(answer.body)
    } else if (name.startsWith('receipt/')) {
      const receipt = await context.agentStore.receipts.get(CID.parse(name.slice(8)))
      if (receipt.error) res.writeHead(404).end()
      else res.writeHead(200).end((await CAR.outbound.encode(await Message.build({ receipts: [receipt.ok] }))).body)
    } else {
      const text = String(await read(req))
      const out = await functions[name.slice('test/'.length)](JSON.parse(text) ?? {})
      res.writeHead(200).end(JSON.stringify(out ?? null))
    }
  } catch (e) {
    res.writeHead(500).end(`${e.stack} ${e.cause ? JSON.stringify(e.cause) : ''}`)
  }
})
await new Promise((ready) => server.listen(0, '127.0.0.1', ready))
const url = `http://127.0.0.1:${server.address().port}`

const connection = (to, did) => connect({ id: { did: () => did }, codec: CAR.outbound, channel: HTTP.open({ url: new URL(to), method: 'POST' }) })

// people have a client each, by the DID of their space.
const people = new Map()
const spaces = new Map()
const authorizations = new Map()
const delegations = new Map()

// newClient makes a client of the service at an address.
const newClient = async (to, did, principal) => {
  const c = connection(to, did)
  return create({ principal, store: new StoreMemory(), serviceConf: { access: c, upload: c, filecoin: c, gateway: c }, receiptsEndpoint: new URL(`${to}/receipt/`) })
}

// carWithoutRoot is what w3cli exported.
const carWithoutRoot = async (delegation) => {
  const { writer, out } = CarWriter.create()
  const parts = []
  const all = (async () => { for await (const p of out) parts.push(p) })()
  for (const b of delegation.export()) await writer.put({ cid: b.cid, bytes: b.bytes })
  await writer.close()
  await all
  return new Uint8Array(Buffer.concat(parts))
}
const inCID = (bytes) => CID.createV1(0x0202, identity.digest(bytes)).toString(base64)

const functions = {
  // space makes a space, with a storage provider unless bare.
  async space({ bare }) {
    const client = await newClient(url, context.id.did(), await ed25519.generate())
    const space = await client.createSpace('test', { skipGatewayAuthorization: true })
    const authorization = await space.createAuthorization(client)
    await client.addSpace(authorization)
    await client.setCurrentSpace(space.did())
    people.set(space.did(), client)
    spaces.set(space.did(), space)
    authorizations.set(space.did(), authorization)
    if (!bare) {
      const r = await context.provisionsStorage.put({ cause: { cid: CID.parse('bafkqaaa') }, consumer: space.did(), customer: 'did:mailto:example.com:user', provider: context.id.did() })
      if (r.error) throw r.error
    }
    return space.did()
  },
  // proofs delegates abilities on a space to an audience, and returns the delegation in every form.
  async proofs({ space, audience, abilities, options }) {
    const d = await people.get(space).createDelegation({ did: () => audience }, abilities, { expiration: Infinity, ...options })
    delegations.set(d.cid.toString(), d)
    const archive = await d.archive()
    if (archive.error) throw archive.error
    const plain = Buffer.from(archive.ok).toString('base64')
    const old = await carWithoutRoot(d)
    return {
      cid: d.cid.toString(),
      forms: {
        storacha: plain,
        'storacha --base64': inCID(archive.ok),
        w3: Buffer.from(old).toString('base64'),
        'w3 --base64': inCID(old),
        'wrapped base64url': plain.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '').replace(/.{76}/g, '$&\n'),
      },
    }
  },
  // device logs the owner of a space in on a second device, whose rights come from the account.
  async device({ space, email }) {
    const owner = people.get(space)
    const account = await owner.login(email)
    const recovery = await spaces.get(space).createRecovery(account.did())
    const r = await owner.capability.access.delegate({ space, delegations: [recovery] })
    if (r.error) throw r.error
    const second = await newClient(url, context.id.did(), await ed25519.generate())
    await second.login(email)
    await second.capability.access.claim()
    await second.setCurrentSpace(space)
    people.set(space, second)
  },
  async revoke({ space, cid }) {
    const d = delegations.get(cid)
    const r = await people.get(space).revokeDelegation(d.cid, { proofs: [d] })
    if (r.error) throw r.error
  },
  // list returns the uploads of a space as its owner sees them. Without a nonce the service would
  // answer the same question within a second with the receipt that it has.
  async list({ space }) {
    const all = []
    for (let page; !page || (page.cursor && page.results.length);) {
      page = await people.get(space).capability.upload.list({ cursor: page?.cursor, nonce: crypto.randomUUID() })
      all.push(...page.results.map((u) => ({ root: u.root.toString(), shards: u.shards.map(String) })))
    }
    return all
  },
  // join writes the blocks of shards into one CAR file, and verifies all hashes.
  async join({ root, shards, file }) {
    const { writer, out } = CarWriter.create([CID.parse(root)])
    const written = pipeline(Readable.from(out), fs.createWriteStream(file))
    for (const s of shards) {
      const { multihash } = CID.parse(s)
      const stored = await context.blobRetriever.stream(multihash)
      if (stored.error) throw stored.error
      const parts = []
      for await (const part of stored.ok) parts.push(part)
      const bytes = new Uint8Array(Buffer.concat(parts))
      if (!Buffer.from((await sha256.digest(bytes)).bytes).equals(multihash.bytes)) throw new Error(`hash of shard ${s}`)
      for await (const b of await CarBlockIterator.fromBytes(bytes)) {
        if (!Buffer.from((await sha256.digest(b.bytes)).bytes).equals(b.cid.multihash.bytes)) throw new Error(`hash of block ${b.cid}`)
        await writer.put(b)
      }
    }
    await writer.close()
    await written
  },
  // puts counts the PUTs so far and lets the next ones fail.
  async puts({ fail }) {
    const before = { ...puts, stored: stored.size, orders: { ...orders } }
    if (fail !== undefined) puts.fail = fail
    return before
  },
  // disable takes abilities away from the service.
  async disable({ abilities }) {
    disabled.clear()
    for (const a of abilities) disabled.add(a)
  },
  // outage lets the next invocations fail.
  async outage({ count }) {
    outages = count
  },
  // elsewhere does something with a space at another server: ls or rm.
  async elsewhere({ space, to, did, what, root, cursor, size }) {
    const client = await newClient(to, did, people.get(space).agent.issuer)
    await client.addSpace(authorizations.get(space))
    await client.setCurrentSpace(space)
    try {
      if (what === 'rm') return { ok: await client.capability.upload.remove(CID.parse(root)) && true }
      const page = await client.capability.upload.list({ cursor, size })
      return { ok: page.results.map((r) => r.root.toString()), cursor: page.cursor }
    } catch (e) {
      return { error: e.cause?.name, message: e.cause?.message ?? String(e) }
    }
  },
  // agent returns what the storacha command line tool needs to act for the owner of a space.
  async agent({ space }) {
    const client = people.get(space)
    const archive = await authorizations.get(space).archive()
    return { key: ed25519.format(client.agent.issuer), proof: inCID(archive.ok) }
  },
}

process.stdin.on('end', () => process.exit(0)).resume()
console.log(JSON.stringify({ url, did: context.id.did() }))
