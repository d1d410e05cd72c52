import { expect, test } from 'vitest'
import { pemOf, publicOf, sign } from './jwt'

const ecdsa = { name: 'ECDSA', namedCurve: 'P-256' }

const base64 = (bytes: ArrayBuffer) => btoa(String.fromCharCode(...new Uint8Array(bytes)))
const pem = (label: string, bytes: ArrayBuffer, lineEnd = '\n') =>
  [`-----BEGIN ${label}-----`, ...base64(bytes).match(/.{1,64}/g)!, `-----END ${label}-----`, ''].join(lineEnd)

// pair makes keys with WebCrypto, and writes them as PEM.
async function pair(namedCurve = 'P-256') {
  const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve }, true, ['sign', 'verify'])
  const pkcs8 = await crypto.subtle.exportKey('pkcs8', keys.privateKey)
  const spki = await crypto.subtle.exportKey('spki', keys.publicKey)
  return { pkcs8, spki, privatePEM: pem('PRIVATE KEY', pkcs8), publicPEM: pem('PUBLIC KEY', spki) }
}

const fromURL = (text: string) =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0))
const decode = (part: string) => JSON.parse(new TextDecoder().decode(fromURL(part)))

test('a token says what was claimed, and the public key verifies it', async () => {
  const { spki, privatePEM, publicPEM } = await pair()
  const claims = { sub: 'abc', pub: btoa(publicPEM), iat: 1, exp: 2, custom: { name: 'Zoë ⚽?>' } }
  const token = await sign(claims, privatePEM)
  expect(token).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/) // base64url without padding
  const [header, body, signature] = token.split('.') as [string, string, string]
  expect(decode(header)).toEqual({ alg: 'ES256', typ: 'JWT' })
  expect(decode(body)).toEqual(claims)
  const key = await crypto.subtle.importKey('spki', spki, ecdsa, false, ['verify'])
  const verify = (text: string) =>
    crypto.subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, fromURL(signature), new TextEncoder().encode(text))
  expect(await verify(`${header}.${body}`)).toBe(true)
  expect(await verify(`${header}.${body}x`)).toBe(false)
})

test('the public key is as the API shows it: base64 of its PEM', async () => {
  const { privatePEM, publicPEM } = await pair()
  expect(pemOf(await publicOf(privatePEM))).toBe(publicPEM)
})

test('a private key is read as a file has it, and as the API shows it', async () => {
  const { pkcs8, privatePEM, publicPEM } = await pair()
  for (const text of [
    privatePEM.trim(),
    `\n${privatePEM}\n`,
    pem('PRIVATE KEY', pkcs8, '\r\n'), // saved on Windows
    `Name: my site\n${privatePEM}`,
    btoa(privatePEM),
    btoa(privatePEM).replace(/.{76}/g, '$&\n'),
  ]) {
    expect(pemOf(await publicOf(text))).toBe(publicPEM)
  }
})

test('what is no private key for ES256 is refused in a sentence', async () => {
  const { pkcs8, publicPEM } = await pair()
  const other = await pair('P-384')
  for (const text of [
    '',
    'hello',
    publicPEM,
    btoa(publicPEM),
    other.privatePEM,
    pem('PRIVATE KEY', pkcs8.slice(0, 40)),
    pem('EC PRIVATE KEY', pkcs8),
  ]) {
    await expect(sign({ sub: 'abc', pub: '', iat: 1, exp: 2 }, text)).rejects.toThrow('This is no private key.')
  }
})
