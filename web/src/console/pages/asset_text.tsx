// The captions, subtitles and chapters of an asset.
import { useState } from 'preact/hooks'
import { api, ask, type Schemas } from '../../lib/api'
import { languageName, tagOf } from '../../lib/language'
import { plural } from '../../lib/format'
import { useLoad } from '../../lib/load'
import { Action, Form, TextField } from '../../ui/form'
import { Card } from '../../ui/page'
import { Empty, Show } from '../../ui/states'
import { toast } from '../../ui/toast'
import { Badge, type Tone } from '../../ui/values'
import { useDrop } from '../drop'
import { about, type Asset, hlsFolder, isPrivate, withToken } from './asset_parts'
import { FileFields, LanguageField, noLanguage, TextChecks, useFile } from './asset_text_fields'
import { NewText } from './asset_text_new'

type Text = Schemas['AssetTrack']

export function Texts({ asset, jwt }: { asset: Asset; jwt: string }) {
  const { id } = asset
  const texts = useLoad(
    async (signal) => {
      const tracks = await ask(api.GET('/api/asset/{id}/track', { params: { path: { id } }, signal }))
      return tracks.filter((track) => track.type === 'text')
    },
    [id],
    { follows: (e) => about(e, id) },
  )
  // adding are the files to add, one dialog after the other; undefined = it is chosen there.
  const [adding, add] = useState<(File | undefined)[]>([])
  const dropping = useDrop(add)
  const button = (
    <button type="button" class={texts.data?.length ? 'small quiet' : ''} onClick={() => add([undefined])}>
      Add a text
    </button>
  )
  return (
    <Card title="Captions and subtitles" actions={Boolean(texts.data?.length) && button}>
      <Show
        of={texts}
        empty={
          <Empty title="There are none yet">
            <p>Drop a file of subtitles, captions or chapters on this page, or choose one: .vtt, .srt or TTML.</p>
            {button}
          </Empty>
        }
      >
        {(items) => (
          <>
            {isPrivate(asset) && !jwt && (
              <p class="hint">The files need the token of a viewer: add ?jwt= to their addresses.</p>
            )}
            <ul class="rows" aria-label="Texts">
              {items.map((text) => (
                <Row key={text.id} asset={asset} text={text} jwt={jwt} changed={texts.reload} />
              ))}
            </ul>
          </>
        )}
      </Show>
      {adding.length > 0 && (
        <NewText
          key={adding.length}
          asset={asset}
          file={adding[0]}
          more={adding.length - 1}
          close={() => add(adding.slice(1))}
          changed={texts.reload}
        />
      )}
      {dropping && (
        <div class="dropzone" aria-hidden="true">
          <p>
            <strong>Drop to add it to “{asset.name}”.</strong>
            <br />
            Subtitles, captions or chapters: .vtt, .srt or TTML.
          </p>
        </div>
      )}
    </Card>
  )
}

const states: Record<Text['status']['phase'], [Tone, string]> = {
  uploading: ['warn', 'has no file'],
  processing: ['warn', 'in progress'],
  ready: ['good', 'ready'],
  failed: ['bad', 'failed'],
}

interface RowProps {
  asset: Asset
  text: Text
  jwt: string
  changed: () => void
}

function Row({ asset, text, jwt, changed }: RowProps) {
  const [open, setOpen] = useState<'edit' | 'file'>()
  const toggle = (what: 'edit' | 'file') => setOpen(open === what ? undefined : what)
  const path = { id: asset.id, trackId: text.id }
  const remove = async () => {
    await ask(api.DELETE('/api/asset/{id}/track/{trackId}', { params: { path } }))
    changed()
  }
  const close = () => {
    setOpen(undefined)
    changed()
  }
  const [tone, state] = states[text.status.phase]
  const { language = '' } = text
  return (
    <li class="text-row">
      <div class="text-what">
        <span class="text-name">{text.name}</span>
        {language && (
          <span class="hint">
            {languageName(language)} <code>{language}</code>
          </span>
        )}
        <Badge tone={tone}>{state}</Badge>
        {text.kind === 'chapters' && <Badge tone="soft">chapters</Badge>}
        {text.default && <Badge tone="soft">default</Badge>}
        {text.closedCaptions && <Badge tone="soft">CC</Badge>}
        {text.forced && <Badge tone="soft">forced</Badge>}
      </div>
      <div class="actions">
        <button
          type="button"
          class="small quiet"
          aria-label={`Edit ${text.name}`}
          aria-expanded={open === 'edit'}
          onClick={() => toggle('edit')}
        >
          Edit
        </button>
        <button
          type="button"
          class="small quiet"
          aria-label={`${text.url ? 'Replace' : 'Send'} the file of ${text.name}`}
          aria-expanded={open === 'file'}
          onClick={() => toggle('file')}
        >
          {text.url ? 'Replace' : 'Send the file'}
        </button>
        <Action
          class="small red quiet"
          label={`Delete ${text.name}`}
          act={remove}
          done="The text is deleted."
          confirm={`Players do not offer “${text.name}” any more. Its file is deleted, and can’t be restored.`}
        >
          Delete
        </Action>
      </div>
      {text.url && <Files asset={asset} text={text} jwt={jwt} />}
      {text.status.errorMessage && <p class="error">{text.status.errorMessage}</p>}
      {open === 'edit' && <Edit asset={asset} text={text} close={close} />}
      {open === 'file' && <Replace asset={asset} text={text} close={close} />}
    </li>
  )
}

// Files are the text as others may have it. The address of the API may have another host than the page.
function Files({ asset, text, jwt }: Omit<RowProps, 'changed'>) {
  const address = (format: string) =>
    withToken(`${hlsFolder(asset.playbackId)}text/${encodeURIComponent(text.id)}.${format}`, jwt)
  return (
    <p class="text-files hint">
      {text.cues !== undefined && plural(text.cues, text.kind === 'chapters' ? 'chapter' : 'cue')}
      {['vtt', 'srt', 'txt'].map((format) => (
        <a
          key={format}
          href={address(format)}
          download={`${asset.name}${text.language ? '.' + text.language : ''}.${format}`}
          aria-label={`.${format} of ${text.name}`}
        >
          .{format}
        </a>
      ))}
    </p>
  )
}

function Edit({ asset, text, close }: { asset: Asset; text: Text; close: () => void }) {
  const [name, setName] = useState(text.name)
  const [language, setLanguage] = useState(text.language ?? '')
  const [checks, setChecks] = useState(text)
  const chapters = text.kind === 'chapters'
  const submit = async () => {
    const tag = tagOf(language)
    if (!tag && (language || !chapters)) throw new Error(noLanguage)
    const { default: byDefault, closedCaptions, forced } = checks
    await ask(
      api.PATCH('/api/asset/{id}/track/{trackId}', {
        params: { path: { id: asset.id, trackId: text.id } },
        body: {
          name,
          language: tag ?? '',
          default: byDefault,
          ...(chapters ? {} : { closedCaptions, forced }),
        },
      }),
    )
    close()
  }
  return (
    <div class="text-form">
      <Form submit={submit} label="Save" cancel={close}>
        <div class="fields">
          <TextField label="Name" value={name} onValue={setName} maxLength={100} autoFocus />
          <LanguageField value={language} onValue={setLanguage} optional={chapters} />
        </div>
        <TextChecks value={checks} onValue={(patch) => setChecks({ ...checks, ...patch })} chapters={chapters} />
      </Form>
    </div>
  )
}

function Replace({ asset, text, close }: { asset: Asset; text: Text; close: () => void }) {
  const file = useFile()
  const submit = async () => {
    if (!(await file.send(asset.id, text.id))) return
    toast('The text is replaced.')
    close()
  }
  return (
    <div class="text-form">
      <Form submit={submit} label="Send the file" cancel={close} disabled={!file.file}>
        <FileFields of={file} />
      </Form>
    </div>
  )
}
