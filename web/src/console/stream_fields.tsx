// The fields of a stream, for a new one and for one that is changed.
import type { Schemas } from '../lib/api'
import { choiceOf, policyOf, type PolicyChoice } from '../lib/policy'
import { Check, Field, SelectField, TextField } from '../ui/form'
import { PolicyField } from './policy'
import type { Stream } from './stream'

type Profile = Schemas['LiveProfile']

// Choices is what a person chose in the form.
export interface Choices {
  name: string
  record: boolean
  signed: boolean
  ladder: 'default' | 'none' | 'own'
  profiles: Profile[]
  policy: PolicyChoice
  pull?: { source: string; headers: string } // headers as lines of text
}

// defaultLadder is what weir makes when a stream names no profiles.
const defaultLadder = [240, 360, 480, 720]

const rung = (height: number, bitrate: number): Profile => ({
  name: `${height}p`,
  height,
  width: 2 * Math.round((height * 8) / 9),
  bitrate,
  fps: 0,
})

export const noChoices: Choices = {
  name: '',
  record: false,
  signed: false,
  ladder: 'default',
  profiles: [rung(720, 3_000_000), rung(360, 800_000)],
  policy: 'public',
}

// choicesOf returns what the form shows of a stream.
export function choicesOf(stream: Stream): Choices {
  const isDefault =
    stream.profiles.length === defaultLadder.length &&
    stream.profiles.every((p, i) => p.name === `${defaultLadder[i]}p0`)
  return {
    name: stream.name,
    record: stream.record,
    signed: stream.c2pa ?? false,
    ladder: isDefault ? 'default' : stream.profiles.length === 0 ? 'none' : 'own',
    profiles: isDefault || stream.profiles.length === 0 ? noChoices.profiles : stream.profiles,
    policy: choiceOf(stream.playbackPolicy),
  }
}

export function asNewStream({ name, record, signed, ladder, profiles, policy, pull }: Choices): Schemas['NewStream'] {
  return {
    name,
    ...(record && { record }),
    ...(record && signed && { c2pa: true }),
    ...(ladder === 'none' && { profiles: [] }),
    ...(ladder === 'own' && { profiles }),
    ...(policy !== 'public' && { playbackPolicy: policyOf(policy) }),
    ...(pull && {
      pull: { source: pull.source.trim(), ...(pull.headers.trim() && { headers: headersOf(pull.headers) }) },
    }),
  }
}

// headersOf reads headers from lines of text.
function headersOf(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^\s*([^\s:]+)\s*:\s*(.*?)\s*$/.exec(line) ?? []
      if (!name || !value) throw new Error('Write each header on a line of its own, as Name: value.')
      return [name, value]
    }),
  )
}

// asPatch returns what has to be sent to make a stream what the form says. On air, the API refuses
// other renditions, and to start or stop recording.
export function asPatch(
  { name, record, signed, ladder, profiles, policy }: Choices,
  was: Stream,
): Schemas['StreamPatch'] {
  return {
    name,
    ...(!was.isActive && {
      record,
      c2pa: signed,
      profiles: ladder === 'default' ? null : ladder === 'none' ? [] : profiles,
    }),
    ...(policy !== choiceOf(was.playbackPolicy) && { playbackPolicy: policyOf(policy, was.playbackPolicy) ?? null }),
  }
}

// StreamFields are the fields. Those that the API refuses to change are left out: on air, what is
// recorded and the renditions; and the source of a stream that exists.
export function StreamFields({
  of,
  onChange,
  isNew = false,
  onAir = false,
}: {
  of: Choices
  onChange: (choices: Choices) => void
  isNew?: boolean
  onAir?: boolean
}) {
  const set = (part: Partial<Choices>) => onChange({ ...of, ...part })
  return (
    <>
      <TextField
        label="Name"
        value={of.name}
        onValue={(name) => set({ name })}
        required
        autoFocus
        placeholder="Friday show"
      />
      {!onAir && (
        <>
          <Check
            label="Record"
            hint="Every broadcast becomes an asset. Without it, only the last minute can be clipped."
            checked={of.record}
            onChecked={(record) => set({ record })}
          />
          {of.record && (
            <Check
              label="Sign recordings"
              hint="C2PA manifests tell viewers where a recording comes from."
              checked={of.signed}
              onChecked={(signed) => set({ signed })}
            />
          )}
          <SelectField
            label="Renditions"
            value={of.ladder}
            onValue={(ladder) => set({ ladder })}
            hint="Lower resolutions for slow connections, besides the source. They cost CPU time of the server."
            options={[
              ['default', 'the default ladder: 240p, 360p, 480p, 720p'],
              ['none', 'none: viewers get the source, as the encoder sends it'],
              ['own', 'my own'],
            ]}
          />
          {of.ladder === 'own' && <Ladder profiles={of.profiles} onChange={(profiles) => set({ profiles })} />}
        </>
      )}
      <PolicyField
        label="Who may watch"
        value={of.policy}
        onValue={(policy) => set({ policy })}
        everybody="everybody who has the address"
      />
      {isNew && (
        <Check
          label="Pull it from a URL"
          hint="weir fetches it from another server. No encoder sends to it."
          checked={of.pull !== undefined}
          onChecked={(on) => set({ pull: on ? { source: '', headers: '' } : undefined })}
        />
      )}
      {of.pull && <Pull of={of.pull} onChange={(pull) => set({ pull })} />}
    </>
  )
}

function Pull({ of, onChange }: { of: NonNullable<Choices['pull']>; onChange: (pull: Choices['pull']) => void }) {
  return (
    <fieldset>
      <legend class="hidden">Pull it from a URL</legend>
      <TextField
        label="URL of the source"
        value={of.source}
        onValue={(source) => onChange({ ...of, source })}
        required
        pattern="\s*(https?|rtmps?|srt)://.+"
        placeholder="https://example.com/live/index.m3u8"
        hint="HLS, an MP4, FLV or MPEG-TS file, RTMP or SRT: it begins with http://, https://, rtmp://, rtmps:// or srt://. It can’t be changed later."
      />
      <Field
        label="Headers"
        hint="For http and https, if the source wants any. One on each line; they are sent to the host of the source only."
      >
        {(id, hintID) => (
          <textarea
            id={id}
            aria-describedby={hintID}
            rows={2}
            spellcheck={false}
            autoComplete="off"
            placeholder="Authorization: Bearer …"
            value={of.headers}
            onInput={(e) => onChange({ ...of, headers: e.currentTarget.value })}
          />
        )}
      </Field>
    </fieldset>
  )
}

// Ladder edits renditions. The width follows from the height, as weir keeps the aspect ratio of the video.
function Ladder({ profiles, onChange }: { profiles: Profile[]; onChange: (profiles: Profile[]) => void }) {
  const change = (i: number, part: Partial<Profile>) =>
    onChange(profiles.map((p, n) => (n === i ? { ...p, ...part } : p)))
  return (
    <fieldset class="ladder">
      <legend>My renditions</legend>
      {profiles.map((p, i) => (
        <div key={i} class="ladder-row">
          <TextField
            label={`Height of rendition ${i + 1}`}
            type="number"
            min={128}
            max={4320}
            required
            value={String(p.height)}
            onValue={(text) => change(i, { ...rung(Number(text), p.bitrate), fps: p.fps })}
          />
          <TextField
            label="Bitrate in kbit/s"
            type="number"
            min={1}
            required
            value={String(Math.round(p.bitrate / 1000))}
            onValue={(text) => change(i, { bitrate: Number(text) * 1000 })}
          />
          <TextField
            label="Frame rate"
            type="number"
            min={0}
            max={240}
            value={String(p.fps)}
            onValue={(text) => change(i, { fps: Number(text) })}
            hint={p.fps === 0 ? 'as the source' : 'fps'}
          />
          <button
            type="button"
            class="small quiet"
            onClick={() => onChange(profiles.filter((_, n) => n !== i))}
            disabled={profiles.length === 1}
            aria-label={`Remove rendition ${i + 1}`}
          >
            Remove
          </button>
        </div>
      ))}
      <button type="button" class="small quiet" onClick={() => onChange([...profiles, rung(480, 1_600_000)])}>
        Add a rendition
      </button>
    </fieldset>
  )
}
