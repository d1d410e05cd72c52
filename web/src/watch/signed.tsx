// Verifies the segments that are played, from when the viewer asks for it.
import type { Fragment } from 'hls.js'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Playback } from '../player/playback'

const actionWords: Record<string, string> = {
  'c2pa.created': 'recorded',
  'c2pa.opened': '', // "Made from" says it
  'c2pa.transcoded': 'encoded',
  'c2pa.trimmed': 'cut',
  'c2pa.repackaged': 'repackaged',
}

const changed = 'Not valid'

// Report is what is used of the report of the validator.
interface Report {
  active_manifest: string
  validation_state: string
  validation_results?: Results
  manifests: Record<string, Manifest>
}

interface Found {
  code: string
  explanation?: string
}

interface Results {
  activeManifest?: { failure?: Found[] }
  ingredientDeltas?: { validationDeltas?: { failure?: Found[] } }[]
}

interface Ingredient {
  title?: string
  description?: string
  active_manifest?: string
  validation_results?: Results
}

interface Manifest {
  title?: string
  assertions?: { label: string; data: { actions: { action: string; when?: string }[] } }[]
  signature_info?: { common_name?: string; issuer?: string; time?: string }
  claim_generator_info?: { name?: string; version?: string }[]
  ingredients?: Ingredient[]
}

async function load(address: string): Promise<Response> {
  const answer = await fetch(address, { cache: 'force-cache' }) // the bytes that the player has
  if (!answer.ok) throw new Error('the server answers with ' + answer.status)
  return answer
}

// inPlaylist finds what is played where the browser plays the playlist by itself.
async function inPlaylist(address: string, at: number): Promise<{ start: string; segment: string }> {
  const lines = (await (await load(address)).text()).split('\n').map((line) => line.trim())
  const uri = (line: string) => new URL(line, address).href
  if (!lines.some((line) => line.startsWith('#EXTINF')))
    return inPlaylist(uri(lines.find((line) => line && !line.startsWith('#'))!), at)
  let start = ''
  let segment = ''
  let end = 0
  for (const line of lines) {
    const map = /^#EXT-X-MAP:.*URI="([^"]*)"/.exec(line)
    if (map && !(segment && end > at)) start = uri(map[1]!)
    if (line.startsWith('#EXTINF:')) end += parseFloat(line.slice(8))
    if (!line || line.startsWith('#')) continue
    segment = uri(line)
    if (end > at) break
  }
  return { start, segment }
}

// failures returns why something is not valid. That its signer is not known is no such reason.
function failures(found?: Results): string[] {
  const all = [found?.activeManifest, ...(found?.ingredientDeltas ?? []).map((d) => d.validationDeltas)]
  return all
    .flatMap((f) => f?.failure ?? [])
    .filter((f) => !f.code.endsWith('.untrusted'))
    .map((f) => f.explanation || f.code)
}

// badSources returns what a manifest says about sources that were not valid when they were used.
function badSources(report: Report, id: string, seen = new Set<string>()): string[] {
  if (seen.has(id)) return []
  seen.add(id)
  return (report.manifests[id]?.ingredients ?? []).flatMap((i) => [
    ...failures(i.validation_results).map((why) => `${i.title || 'a file'}: ${why}`),
    ...(i.active_manifest ? badSources(report, i.active_manifest, seen) : []),
  ])
}

// facts writes what a manifest says, for people.
function facts(manifest: Manifest): [string, string, string][] {
  const actions = (manifest.assertions ?? [])
    .filter((a) => a.label.startsWith('c2pa.actions'))
    .flatMap((a) => a.data.actions)
  const signer = manifest.signature_info ?? {}
  const generator = manifest.claim_generator_info?.[0] ?? {}
  const when = signer.time ?? actions.find((a) => a.when)?.when
  const made = actions
    .map((a) => actionWords[a.action] ?? a.action)
    .filter(Boolean)
    .join(', ')
  const from = (manifest.ingredients ?? []).map(
    (i) =>
      (i.title || 'a file') +
      (failures(i.validation_results).length > 0
        ? ', which was signed, but was not valid any more'
        : i.active_manifest
          ? ', which is signed itself'
          : i.description
            ? `: ${i.description}`
            : ', which is not signed'),
  )
  return [
    ['who', 'Who', [signer.common_name, signer.issuer].filter(Boolean).join(', ')],
    [
      'what',
      'What',
      [manifest.title, made, 'with ' + [generator.name, generator.version].filter(Boolean).join(' ')]
        .filter(Boolean)
        .join(' · '),
    ],
    ['when', 'When', when ? new Date(when).toLocaleString() + (signer.time ? '' : ', as the signer says') : 'not said'],
    ['from', 'Made from', from.join('; ') || 'a live stream'],
  ]
}

export function Signed({ playback, root }: { playback: Playback; root: string }) {
  const [open, setOpen] = useState(false)
  const [verdict, setVerdict] = useState('')
  const [bad, setBad] = useState('') // what the badge says in the place of Signed
  const [manifest, setManifest] = useState<Manifest>()
  const state = useRef({ worker: undefined as Worker | undefined, trust: '', number: 0, checked: 0, bad: '' })

  const tell = (text: string, problem = '') => {
    const s = state.current
    // What was shown does not become good later, and the worst that was found stays.
    if ((s.bad && !problem) || (s.bad === changed && problem !== changed)) return
    s.bad = problem
    setBad(problem)
    setVerdict(text)
  }

  const check = async (frag: Fragment | null) => {
    const s = state.current
    const number = ++s.number
    try {
      const found = frag?.initSegment
        ? { start: frag.initSegment.url, segment: frag.url }
        : await inPlaylist(playback.source, playback.video.currentTime)
      const [start, segment] = await Promise.all(
        [found.start, found.segment].map(async (address) => (await load(address)).arrayBuffer()),
      )
      s.worker?.postMessage({ number, start, segment, trust: s.trust }, [start!, segment!])
    } catch (error) {
      if (!s.bad) setVerdict(`It could not be checked: ${(error as Error).message}.`)
    }
  }

  const answered = ({ data: { report, error } }: MessageEvent<{ report: Report; error?: string }>) => {
    if (error) return tell(`Not valid: ${error}.`, changed)
    const known = report.validation_state === 'Trusted'
    const bad = badSources(report, report.active_manifest)
    if (!known && report.validation_state !== 'Valid') {
      tell(`Not valid: ${failures(report.validation_results).join('; ') || report.validation_state}.`, changed)
    } else if (bad.length > 0) {
      tell(
        `The source was not valid: what you see is as it was signed, but what it was made from was not. ${bad.join('; ')}.`,
        'Source not valid',
      )
    } else {
      const n = ++state.current.checked
      tell(
        `Valid: what you see is as it was signed${known ? ' by this server.' : ', by a signer whom this server does not know.'} Checked: ${n} ${n === 1 ? 'segment' : 'segments'}.`,
      )
    }
    setManifest(report.manifests[report.active_manifest] ?? {})
  }

  useEffect(
    () => playback.fragment.subscribe((frag) => void (frag && state.current.number > 0 && check(frag))),
    [playback],
  )
  useEffect(() => () => state.current.worker?.terminate(), [])

  const click = async () => {
    setOpen(!open)
    const s = state.current
    if (s.worker) return
    setVerdict('Checking …')
    const file = 'verify.js' // is served beside this script, under a policy of its own
    s.worker = new Worker(new URL(file, import.meta.url), { type: 'module' })
    s.worker.onmessage = answered
    s.worker.onerror = () => setVerdict('It could not be checked: this browser can’t run the validator.')
    try {
      s.trust = await (await load(root + 'api/c2pa/root.pem')).text()
    } catch {
      // Then the signer is not known.
    }
    void check(playback.fragment.value)
  }

  return (
    <>
      <button
        id="signed"
        type="button"
        class={bad ? 'quiet badge-button bad' : 'quiet badge-button'}
        aria-expanded={open}
        aria-controls="provenance"
        onClick={click}
      >
        {bad || 'Signed'}
      </button>
      <section id="provenance" class="provenance" aria-label="Where this video comes from" hidden={!open}>
        <p id="verdict" role="status">
          {verdict}
        </p>
        {manifest && (
          <dl id="says" class="facts">
            {facts(manifest).map(([key, label, value]) => (
              <div key={key}>
                <dt>{label}</dt>
                <dd id={key}>{value}</dd>
              </div>
            ))}
          </dl>
        )}
      </section>
    </>
  )
}
