// Writes calls of the API as code: whatever the console shows, a program can get.
import { root } from './api'

export interface Call {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string // with its query: /api/stream?limit=25
  body?: unknown
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

export function asCurl({ method, path, body }: Call): string {
  const lines = [`curl ${method === 'GET' || (method === 'POST' && body !== undefined) ? '' : `-X ${method} `}${quoted(root + path)}`]
  lines.push(`-H "Authorization: Bearer $WEIR_API_KEY"`)
  if (body !== undefined) lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body, null, 2))}`)
  return lines.join(' \\\n  ')
}

export function asJavaScript({ method, path, body }: Call): string {
  const options = [
    ...(method === 'GET' ? [] : [`method: '${method}'`]),
    body === undefined
      ? 'headers: { Authorization: `Bearer ${process.env.WEIR_API_KEY}` }'
      : "headers: {\n    Authorization: `Bearer ${process.env.WEIR_API_KEY}`,\n    'Content-Type': 'application/json',\n  }",
    ...(body === undefined ? [] : [`body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll('\n', '\n  ')})`]),
  ]
  return [
    `const answer = await fetch('${root + path}', {\n  ${options.join(',\n  ')},\n})`,
    'if (!answer.ok) throw new Error(await answer.text())',
    'console.log(answer.status === 204 ? null : await answer.json())',
  ].join('\n')
}
