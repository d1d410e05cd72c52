// A new text of an asset: from a file of this computer, or from a URL that weir fetches.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../../lib/api'
import { guess, ownName, tagOf } from '../../lib/language'
import { AsCode } from '../../ui/code'
import { Dialog, Form, SelectField, TextField } from '../../ui/form'
import { toast } from '../../ui/toast'
import type { Asset } from './asset_parts'
import { type Checks, FileFields, LanguageField, noLanguage, TextChecks, useFile } from './asset_text_fields'

type Kind = NonNullable<Schemas['NewAssetTrack']['kind']>

interface Fields extends Checks {
  kind: Kind
  language: string
  name?: string // undefined = it follows from the others
}

// guessed returns what the name of a file says.
function guessed(name: string): Partial<Fields> {
  const { language, closedCaptions, forced, chapters } = guess(name)
  return { ...(language ? { language } : {}), closedCaptions, forced, kind: chapters ? 'chapters' : 'subtitles' }
}

// nameOf returns the name of a text for the menu of players: its language, as those who read it call it.
function nameOf({ kind, language, closedCaptions, forced }: Fields): string {
  const tag = tagOf(language)
  const name = tag && ownName(tag)
  if (!name) return ''
  return name + (kind === 'chapters' ? '' : forced ? ' (forced)' : closedCaptions ? ' (CC)' : '')
}

export function NewText({
  asset,
  file: given,
  more,
  close,
  changed,
}: {
  asset: Asset
  file?: File
  more: number // files that come afterwards
  close: () => void
  changed: () => void
}) {
  const { id } = asset
  const [source, setSource] = useState<'file' | 'url'>('file')
  const [url, setURL] = useState('')
  const [charset, setCharset] = useState('') // of what the URL leads to
  const file = useFile(given)
  const [fields, setFields] = useState<Fields>({
    kind: 'subtitles',
    language: '',
    default: false,
    closedCaptions: false,
    forced: false,
    ...(given ? guessed(given.name) : {}),
  })
  const change = (patch: Partial<Fields>) => setFields((before) => ({ ...before, ...patch }))
  const chapters = fields.kind === 'chapters'
  const name = fields.name ?? nameOf(fields)
  const language = tagOf(fields.language)
  const body: Schemas['NewAssetTrack'] = {
    type: 'text',
    ...(chapters ? { kind: 'chapters' } : {}),
    ...(language ? { language } : {}),
    ...(name ? { name } : {}),
    ...(fields.default ? { default: true } : {}),
    ...(fields.closedCaptions && !chapters ? { closedCaptions: true } : {}),
    ...(fields.forced && !chapters ? { forced: true } : {}),
    ...(source === 'url' ? { url, ...(charset ? { charset } : {}) } : {}),
  }
  const submit = async () => {
    if (!language && (fields.language || !chapters)) throw new Error(noLanguage)
    const { id: trackId } = await ask(api.POST('/api/asset/{id}/track', { params: { path: { id } }, body }))
    if (source === 'file' && !(await file.send(id, trackId))) {
      // Nothing is left of a text that has no file. If that fails too, the list shows it.
      await ask(api.DELETE('/api/asset/{id}/track/{trackId}', { params: { path: { id, trackId } } })).catch(changed)
      return
    }
    toast(source === 'file' ? 'The text is added.' : 'The text is being fetched.')
    changed()
    close()
  }
  return (
    <Dialog
      title={more > 0 ? `Add a text: ${more} more ${more === 1 ? 'follows' : 'follow'}` : 'Add a text'}
      close={close}
    >
      <div class="tabs" role="group" aria-label="Source">
        {(['file', 'url'] as const).map((kind) => (
          <button key={kind} type="button" class="tab" aria-pressed={kind === source} onClick={() => setSource(kind)}>
            {kind === 'file' ? 'From this computer' : 'From a URL'}
          </button>
        ))}
      </div>
      <Form submit={submit} label="Add the text" cancel={close} disabled={source === 'file' && !file.file}>
        {source === 'file' ? (
          <FileFields of={file} onFile={({ name }) => change(guessed(name))} />
        ) : (
          <TextField
            label="URL of the file"
            type="url"
            value={url}
            onValue={(value) => {
              setURL(value)
              if (!fields.language) change(guessed(value.split(/[?#]/)[0]!.split('/').pop()!))
            }}
            required
            placeholder="https://example.com/film.de.srt"
            hint="weir fetches it once."
          />
        )}
        <SelectField
          label="What it is"
          value={fields.kind}
          onValue={(kind) => change({ kind })}
          options={[
            ['subtitles', 'subtitles or captions'],
            ['chapters', 'chapters'],
          ]}
        />
        <div class="fields">
          <LanguageField value={fields.language} onValue={(value) => change({ language: value })} optional={chapters} />
          <TextField
            label="Name"
            value={name}
            onValue={(value) => change({ name: value })}
            maxLength={100}
            hint="In the menu of players."
          />
        </div>
        <TextChecks value={fields} onValue={change} chapters={chapters} />
        {source === 'url' && (
          <details class="options">
            <summary>More options</summary>
            <TextField
              label="Character set of the file"
              value={charset}
              onValue={setCharset}
              placeholder="UTF-8"
              hint="Such as windows-1252, of an old file."
            />
          </details>
        )}
      </Form>
      <AsCode calls={[{ method: 'POST', path: `/api/asset/${id}/track`, body }]} />
    </Dialog>
  )
}
