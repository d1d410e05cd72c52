// The fields of a multistream target. Its address has the key of another platform in it, so weir
// never shows it again.
import { TextField } from '../ui/form'

export interface TargetChoices {
  name: string
  server: string
  key: string
}

export const noTarget: TargetChoices = { name: '', server: '', key: '' }

// targetURL joins server and key as the protocol wants it.
export function targetURL({ server, key }: TargetChoices): string {
  const url = server.trim()
  if (!key) return url
  if (url.startsWith('srt:')) return url + (url.includes('?') ? '&' : '?') + 'streamid=' + encodeURIComponent(key)
  return url.replace(/\/+$/, '') + '/' + key.trim()
}

export function TargetFields({
  of,
  onChange,
  known = false,
}: {
  of: TargetChoices
  onChange: (of: TargetChoices) => void
  known?: boolean
}) {
  const set = (part: Partial<TargetChoices>) => onChange({ ...of, ...part })
  return (
    <>
      <TextField
        label="Name"
        value={of.name}
        onValue={(name) => set({ name })}
        autoFocus
        placeholder="YouTube"
        required={known}
      />
      <TextField
        label="Server"
        value={of.server}
        onValue={(server) => set({ server })}
        required={!known || of.key !== ''}
        pattern="(rtmps?|srt)://.+"
        placeholder="rtmp://a.rtmp.youtube.com/live2"
        hint={
          known
            ? 'Leave it empty to keep the present address, which weir does not show.'
            : 'As the platform shows it: rtmp://, rtmps:// or srt://'
        }
      />
      <TextField
        label="Stream key of the platform"
        type="password"
        autoComplete="off"
        value={of.key}
        onValue={(key) => set({ key })}
        hint="weir never shows it again. Leave it empty if the server address has it."
      />
    </>
  )
}
