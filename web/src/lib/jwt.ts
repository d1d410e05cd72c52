// Tokens of viewers, made in the browser: the private key never leaves it.

// Claims are what a token of a viewer says.
export interface Claims {
  sub: string // playback id
  pub: string // public key, as the API shows it
  iat: number // seconds
  exp: number
  [name: string]: unknown
}

const base64url = (bytes: ArrayBuffer | Uint8Array<ArrayBuffer>) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')

const fromBase64 = (text: string) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0))

const algorithm = { name: 'ECDSA', namedCurve: 'P-256' }

// canSign says whether this browser signs here. It refuses on pages over plain HTTP, except on localhost.
export const canSign = () => crypto.subtle !== undefined

// PEM of a key, of which the API shows the base64.
export const pemOf = (base64: string) => atob(base64)

// privateKey reads a private key: PEM (PKCS 8), or base64 of that as the API shows it.
async function privateKey(text: string): Promise<CryptoKey> {
  try {
    const pem = text.includes('-----BEGIN') ? text : atob(text)
    const body = /-----BEGIN PRIVATE KEY-----([\s\S]+)-----END PRIVATE KEY-----/.exec(pem)
    return await crypto.subtle.importKey('pkcs8', fromBase64(body![1]!), algorithm, true, ['sign'])
  } catch {
    throw new Error(
      'This is no private key. Paste the file that was downloaded when the key was made: it starts with -----BEGIN PRIVATE KEY-----.',
    )
  }
}

// publicOf returns the public key that belongs to a private key, as the API shows it.
export async function publicOf(text: string): Promise<string> {
  const { d: _, key_ops: __, ...jwk } = await crypto.subtle.exportKey('jwk', await privateKey(text))
  const key = await crypto.subtle.importKey('jwk', jwk, algorithm, true, ['verify'])
  const spki = btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.exportKey('spki', key))))
  return btoa(`-----BEGIN PUBLIC KEY-----\n${spki.replace(/.{64}(?=.)/g, '$&\n')}\n-----END PUBLIC KEY-----\n`)
}

// sign returns a token with ES256.
export async function sign(claims: Claims, key: string): Promise<string> {
  const encode = (part: unknown) => base64url(new TextEncoder().encode(JSON.stringify(part)))
  const text = `${encode({ alg: 'ES256', typ: 'JWT' })}.${encode(claims)}`
  const signature = await crypto.subtle.sign(
    { name: 'ECDSA', hash: 'SHA-256' },
    await privateKey(key),
    new TextEncoder().encode(text),
  )
  return `${text}.${base64url(signature)}`
}
