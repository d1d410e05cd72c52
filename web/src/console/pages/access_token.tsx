// The token maker: signs a token of a viewer in the browser, and shows the same in code.
import { useEffect, useState } from 'preact/hooks'
import { api, ask, root, type Schemas } from '../../lib/api'
import { canSign, pemOf, publicOf, sign, type Claims } from '../../lib/jwt'
import { Code, Samples } from '../../ui/code'
import { Field, Form, SelectField, TextField } from '../../ui/form'
import { Card } from '../../ui/page'
import { useQuery } from '../location'

type Key = Schemas['SigningKeyInList']
export type Pair = Schemas['SigningKeyPair']

const lifetimes = [
  ['600', '10 minutes'],
  ['3600', '1 hour'],
  ['86400', '1 day'],
  ['604740', '7 days, the longest'], // a minute less, as clocks differ
] as const

interface Made {
  token: string
  claims: Claims
}

export function TokenMaker({ keys, pair }: { keys: Key[]; pair?: Pair }) {
  const [playbackID, setPlaybackID] = useQuery('playbackId')
  const [secret, setSecret] = useState('')
  const [lifetime, setLifetime] = useState<string>('3600')
  const [issuer, setIssuer] = useState('')
  const [more, setMore] = useState('')
  const [made, setMade] = useState<Made>()
  const [verdict, setVerdict] = useState('')
  useEffect(() => {
    if (pair) setSecret(pemOf(pair.privateKey))
  }, [pair])
  const submit = async () => {
    setMade(undefined)
    setVerdict('')
    const pub = await publicOf(secret)
    const now = Math.floor(Date.now() / 1000)
    const claims: Claims = {
      ...others(more),
      ...(issuer && { iss: issuer }),
      sub: playbackID.trim(),
      pub,
      iat: now,
      exp: now + Number(lifetime),
    }
    setMade({ token: await sign(claims, secret), claims })
    setVerdict(await problem(claims.sub, pub, keys))
  }
  return (
    <Card title="Make a token">
      <p>
        Make one here to try it out. Your server makes them in the same way. The private key stays in this page: it is
        sent nowhere and not kept.
      </p>
      {!canSign() && (
        <p class="warning">
          This browser signs only on pages over HTTPS or on localhost. Open the console with an https:// address.
        </p>
      )}
      <Form submit={submit} label="Make the token" disabled={!canSign()}>
        <Field
          label="Private key"
          hint={
            pair && secret === pemOf(pair.privateKey)
              ? `The key “${pair.name}” that you just made.`
              : 'Paste the file that was downloaded when the key was made, or make a new key.'
          }
        >
          {(id, hintID) => (
            <textarea
              id={id}
              aria-describedby={hintID}
              class="masked"
              rows={4}
              required
              spellcheck={false}
              autoComplete="off"
              placeholder="-----BEGIN PRIVATE KEY-----"
              value={secret}
              onInput={(e) => setSecret(e.currentTarget.value)}
            />
          )}
        </Field>
        <div class="fields">
          <TextField
            label="Playback id"
            value={playbackID}
            onValue={setPlaybackID}
            required
            hint="sub: what the viewer may watch. It is on the page of the stream or asset."
          />
          <SelectField
            label="Valid for"
            value={lifetime}
            onValue={setLifetime}
            options={lifetimes}
            hint="exp: until when the token is good. A live stream ends for the viewer then, unless the player shows a newer token."
          />
          <TextField
            label="Issuer"
            value={issuer}
            onValue={setIssuer}
            hint="iss: who made the token. Optional; weir does not check it."
          />
          <TextField
            label="Other claims"
            value={more}
            onValue={setMore}
            placeholder={'{"custom": {"userId": "42"}}'}
            hint="JSON. Optional; weir does not read them."
          />
        </div>
      </Form>
      {made && (
        <div class="made" aria-live="polite">
          {verdict && <p class="warning">{verdict}</p>}
          <Code label="Token" text={made.token} />
          <Code label="What it says" text={JSON.stringify(made.claims, null, 2)} />
          <Code label="Watch page" text={watchURL(made)} />
          <p>
            <a href={watchURL(made)} target="_blank" rel="noopener">
              Open the watch page
            </a>
          </p>
        </div>
      )}
      <h3>The same on your server</h3>
      <Samples label="Sign a token" of={samples(playbackID.trim() || 'PLAYBACK_ID', Number(lifetime))} />
    </Card>
  )
}

const watchURL = ({ token, claims }: Made) => `${root}/play/${encodeURIComponent(claims.sub)}?jwt=${token}`

// others reads claims that the person added.
function others(text: string): Record<string, unknown> {
  if (!text.trim()) return {}
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // said below
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('The other claims must be a JSON object, for example {"custom": {"userId": "42"}}.')
  return value as Record<string, unknown>
}

// problem says why a token will not work, '' when it should.
async function problem(playbackID: string, publicKey: string, keys: Key[]): Promise<string> {
  const key = keys.find((k) => k.publicKey.trim() === publicKey)
  if (key?.disabled) return `The key “${key.name}” is off, so viewers with this token are refused.`
  try {
    await ask(api.POST('/api/access-control/gate', { body: { type: 'jwt', stream: playbackID, pub: publicKey } }))
    return ''
  } catch (e) {
    return `This token will not work: ${(e as Error).message}`
  }
}

function samples(playbackID: string, lifetime: number): Record<string, string> {
  return {
    JavaScript: `// npm install jose
import { SignJWT, importPKCS8 } from 'jose'

const stored = process.env.PRIVATE_KEY // PEM, or the base64 of it that the API shows
const key = await importPKCS8(stored.startsWith('-----') ? stored : atob(stored), 'ES256')
const token = await new SignJWT({ pub: process.env.PUBLIC_KEY }) // as the API shows it
  .setProtectedHeader({ alg: 'ES256', typ: 'JWT' })
  .setSubject('${playbackID}')
  .setIssuedAt()
  .setExpirationTime(Math.floor(Date.now() / 1000) + ${lifetime})
  .sign(key)
console.log('${root}/play/${playbackID}?jwt=' + token)`,
    Go: `// go get github.com/golang-jwt/jwt/v5
text := []byte(os.Getenv("PRIVATE_KEY")) // PEM, or the base64 of it that the API shows
if decoded, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
	text = decoded
}
key, err := jwt.ParseECPrivateKeyFromPEM(text)
if err != nil {
	log.Fatal(err)
}
token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
	"sub": "${playbackID}",
	"pub": os.Getenv("PUBLIC_KEY"), // as the API shows it
	"iat": time.Now().Unix(),
	"exp": time.Now().Add(${lifetime} * time.Second).Unix(),
}).SignedString(key)
if err != nil {
	log.Fatal(err)
}
fmt.Println("${root}/play/${playbackID}?jwt=" + token)`,
    Python: `# pip install pyjwt cryptography
import base64, os, time, jwt

key = os.environ["PRIVATE_KEY"]  # PEM, or the base64 of it that the API shows
if not key.startswith("-----"):
    key = base64.b64decode(key)
now = int(time.time())
token = jwt.encode(
    {
        "sub": "${playbackID}",
        "pub": os.environ["PUBLIC_KEY"],  # as the API shows it
        "iat": now,
        "exp": now + ${lifetime},
    },
    key,
    algorithm="ES256",
)
print("${root}/play/${playbackID}?jwt=" + token)`,
  }
}
