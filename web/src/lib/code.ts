// Writes calls of the API as code: whatever the console shows, a program can get.
import { root } from './api'

export interface Call {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string // with its query: /api/stream?limit=25
  body?: unknown
  // secrets are the names of environment variables that the body names as $NAME.
  secrets?: string[]
  // login says that the call needs the token of a log-in, and refuses API keys.
  login?: boolean
}

const credential = ({ login }: Call, variable: (name: string) => string) =>
  login ? `JWT ${variable('WEIR_TOKEN')}` : `Bearer ${variable('WEIR_API_KEY')}`

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

export function asCurl(call: Call): string {
  const { method, path, body, secrets = [] } = call
  const lines = [
    `curl ${method === 'GET' || (method === 'POST' && body !== undefined) ? '' : `-X ${method} `}${quoted(root + path)}`,
  ]
  lines.push(`-H "Authorization: ${credential(call, (name) => '$' + name)}"`)
  if (body !== undefined) {
    // A variable is outside the single quotes, so that the shell puts its value there.
    const text = secrets.reduce(
      (all, name) => all.replaceAll(`"$${name}"`, `"'"$${name}"'"`),
      quoted(JSON.stringify(body, null, 2)),
    )
    lines.push(`-H 'Content-Type: application/json'`, `-d ${text}`)
  }
  return lines.join(' \\\n  ')
}

export function asJavaScript(call: Call): string {
  const { method, path, body, secrets = [] } = call
  const authorization = `Authorization: \`${credential(call, (name) => `\${process.env.${name}}`)}\``
  const text = secrets.reduce(
    (all, name) => all?.replaceAll(`"$${name}"`, `process.env.${name}`),
    JSON.stringify(body, null, 2),
  )
  const options = [
    ...(method === 'GET' ? [] : [`method: '${method}'`]),
    body === undefined
      ? `headers: { ${authorization} }`
      : `headers: {\n    ${authorization},\n    'Content-Type': 'application/json',\n  }`,
    ...(body === undefined ? [] : [`body: JSON.stringify(${text!.replaceAll('\n', '\n  ')})`]),
  ]
  return [
    `const response = await fetch('${(root + path).replaceAll("'", "\\'")}', {\n  ${options.join(',\n  ')},\n})`,
    'if (!response.ok) throw new Error(await response.text())',
    'console.log(response.status === 204 ? null : await response.json())',
  ].join('\n')
}
