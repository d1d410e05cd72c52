// Fields of the forms for captions, subtitles and chapters.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { api, ask } from '../../lib/api'
import type { ApiError } from '../../lib/error'
import { languageName, ownName, tagOf, usual } from '../../lib/language'
import { Check, Field, TextField } from '../../ui/form'

// noLanguage says what is wrong if a language is none.
export const noLanguage = 'Choose a language from the list, or write its tag, such as de or pt-BR.'

export function LanguageField({
  value,
  onValue,
  optional = false,
}: {
  value: string
  onValue: (value: string) => void
  optional?: boolean
}) {
  const list = useId()
  const tag = tagOf(value)
  return (
    <>
      <TextField
        label="Language"
        value={value}
        onValue={onValue}
        list={list}
        required={!optional}
        autoComplete="off"
        placeholder="de, German, Deutsch"
        hint={tag ? languageName(tag) || 'This tag has no name.' : 'A name of the list, or a tag, such as pt-BR.'}
      />
      <datalist id={list}>
        {usual.map((tag) => (
          <option key={tag} value={tag}>
            {languageName(tag)} · {ownName(tag)}
          </option>
        ))}
      </datalist>
    </>
  )
}

export interface Checks {
  default: boolean
  closedCaptions: boolean
  forced: boolean
}

export function TextChecks({
  value,
  onValue,
  chapters,
}: {
  value: Checks
  onValue: (patch: Partial<Checks>) => void
  chapters: boolean
}) {
  return (
    <>
      <Check
        label="Default"
        hint="Shown unless the viewer chooses otherwise. Only one text can be."
        checked={value.default}
        onChecked={(on) => onValue({ default: on })}
      />
      {!chapters && (
        <>
          <Check
            label="Closed captions"
            hint="For viewers who do not hear: noises, and who speaks, are in it."
            checked={value.closedCaptions}
            onChecked={(on) => onValue({ closedCaptions: on })}
          />
          <Check
            label="Forced"
            hint="Only what viewers need who understand the audio: foreign speech, signs."
            checked={value.forced}
            onChecked={(on) => onValue({ forced: on })}
          />
        </>
      )}
    </>
  )
}

// FileToSend is the file of a text, and what the server said of it.
interface FileToSend {
  file?: File
  setFile: (file?: File) => void
  problem: string
  charset: string
  setCharset: (charset: string) => void
  asksCharset: boolean
  // send returns whether the server took the file as the text of a track.
  send: (id: string, trackId: string) => Promise<boolean>
}

export function useFile(given?: File): FileToSend {
  const [file, setFile] = useState(given)
  const [problem, setProblem] = useState('')
  const [charset, setCharset] = useState('')
  const [asksCharset, askCharset] = useState(false)
  const send = async (id: string, trackId: string) => {
    setProblem('')
    const query = charset ? { charset } : {}
    // A file that was changed since it was chosen can't be read.
    const content = await file?.arrayBuffer().catch(() => undefined)
    if (!content) {
      setProblem('The file can’t be read any more. Choose it again.')
      return false
    }
    try {
      await ask(
        api.PUT('/api/asset/{id}/track/{trackId}/file', {
          params: { path: { id, trackId }, query },
          bodySerializer: () => content,
          body: content as never,
          headers: { 'Content-Type': 'application/octet-stream' },
        }),
      )
      return true
    } catch (e) {
      const { status, message } = e as ApiError
      setProblem(message)
      if (status === 422 && message.includes('UTF-8')) askCharset(true)
      return false
    }
  }
  const choose = (chosen?: File) => {
    setFile(chosen)
    setProblem('')
  }
  return { file, setFile: choose, problem, charset, setCharset, asksCharset, send }
}

const charsets =
  'windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 iso-8859-2 iso-8859-15 koi8-r shift_jis gbk big5 euc-kr'

export function FileFields({ of, onFile }: { of: FileToSend; onFile?: (file: File) => void }) {
  const input = useRef<HTMLInputElement>(null)
  const list = useId()
  // A file that was dropped on the page is shown as if it was chosen here.
  useEffect(() => {
    if (of.file && input.current) show(input.current, of.file)
  }, [])
  const take = (file?: File) => {
    of.setFile(file)
    if (file) onFile?.(file)
  }
  return (
    <>
      <Field label="File" hint="WebVTT (.vtt), SubRip (.srt) or TTML, at most 10 MiB.">
        {(id, hintID) => (
          <>
            <input
              ref={input}
              id={id}
              aria-describedby={of.problem ? `${hintID} ${id}p` : hintID}
              aria-invalid={of.problem !== ''}
              type="file"
              accept=".vtt,.srt,.ttml,.dfxp,.xml,text/vtt,application/x-subrip,application/ttml+xml"
              onClick={(e) => {
                e.currentTarget.value = '' // so that the same file can be chosen again, after it was corrected
                take()
              }}
              onChange={(e) => take(e.currentTarget.files?.[0])}
              onDrop={(e) => {
                const file = e.dataTransfer?.files[0]
                if (!file) return
                e.preventDefault()
                show(e.currentTarget, file)
                take(file)
              }}
            />
            {of.problem && (
              <p id={id + 'p'} class="error" role="alert">
                {of.problem}
              </p>
            )}
          </>
        )}
      </Field>
      {of.asksCharset && (
        <>
          <TextField
            label="Character set of the file"
            value={of.charset}
            onValue={of.setCharset}
            list={list}
            autoComplete="off"
            placeholder="windows-1252"
            hint="Or save the file as UTF-8 and choose it again."
          />
          <datalist id={list}>
            {charsets.split(' ').map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </>
      )}
    </>
  )
}

function show(input: HTMLInputElement, file: File) {
  const files = new DataTransfer()
  files.items.add(file)
  input.files = files.files
}
