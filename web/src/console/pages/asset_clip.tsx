// Clips of an asset: the editor, and the list.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, ask, askPage, type Schemas } from '../../lib/api'
import { precise, seconds } from '../../lib/format'
import { useList } from '../../lib/load'
import { Frames } from '../../player/frames'
import { AsCode } from '../../ui/code'
import { Check, Form, TextField } from '../../ui/form'
import { Card } from '../../ui/page'
import type { PlayerHandle } from '../../ui/player'
import { ShowList } from '../../ui/states'
import { toast } from '../../ui/toast'
import { type Asset, ClipTable } from './asset_parts'

// ClipEditor marks the start and the end of a clip in the video of the player.
export function ClipEditor({ asset, player }: { asset: Asset; player: PlayerHandle }) {
  const { video } = player
  const length = asset.videoSpec?.duration ?? 0
  const frames = useRef<Frames | undefined>(undefined)
  const [at, setAt] = useState(video.currentTime)
  const [from, setFrom] = useState(precise(0))
  const [to, setTo] = useState(precise(length))
  const [name, setName] = useState('')
  const [sign, setSign] = useState(false)
  const [start, end] = [seconds(from), seconds(to)]
  const valid = start !== undefined && end !== undefined && start < end

  useEffect(() => {
    const moved = () => setAt(video.currentTime)
    const events = ['timeupdate', 'seeking', 'seeked']
    for (const event of events) video.addEventListener(event, moved)
    return () => {
      for (const event of events) video.removeEventListener(event, moved)
    }
  }, [video])

  useEffect(() => {
    const made = new Frames(player)
    frames.current = made
    return () => made.destroy()
  }, [player])

  const seek = (time: number) => {
    if (player.waiting.value) player.start()
    video.currentTime = Math.min(Math.max(time, 0), length)
    setAt(video.currentTime)
  }
  const step = (count: number) => {
    if (player.waiting.value) player.start()
    frames.current?.step(count)
  }
  const mark = (set: (text: string) => void, end: 'first' | 'last') => {
    const time = frames.current?.mark(end)
    if (time === undefined) toast('Play the video first: there is no frame to mark.', 'bad')
    else set(precise(Math.min(time / 1000, length)))
  }
  const markIn = () => mark(setFrom, 'first')
  const markOut = () => mark(setTo, 'last') // the frame that is seen is in the clip
  useKeys({ ',': () => step(-1), '.': () => step(1), i: markIn, o: markOut })

  const preview = () => {
    if (!valid) return
    const stop = () => {
      if (video.currentTime < end && !video.paused) return
      video.removeEventListener('timeupdate', stop)
      video.pause()
    }
    seek(start)
    void video.play().then(() => video.addEventListener('timeupdate', stop))
  }
  const body: Schemas['NewClip'] = {
    playbackId: asset.playbackId,
    startTime: Math.round((start ?? 0) * 1000),
    endTime: Math.round((end ?? length) * 1000),
    ...(name ? { name } : {}),
    ...(sign ? { c2pa: true } : {}),
  }
  const submit = async () => {
    if (!valid) throw new Error('The end must be after the start. Write times as 1:02.500 or as seconds.')
    await ask(api.POST('/api/clip', { body }))
    setName('')
    toast('The clip is being made.')
  }
  const percent = (time: number) => `${length > 0 ? (Math.min(Math.max(time, 0), length) / length) * 100 : 0}%`
  return (
    <Card title="Make a clip" class="clip">
      <div class="scrub">
        {valid && <div class="scrub-range" style={{ left: percent(start), width: percent(end - start) }} />}
        <input
          type="range"
          aria-label="Position in the video"
          aria-valuetext={precise(at)}
          min={0}
          max={length}
          step="any"
          value={at}
          onInput={(e) => seek(e.currentTarget.valueAsNumber)}
        />
      </div>
      <div class="actions">
        <output class="clip-at">{precise(at)}</output>
        <button
          type="button"
          class="small quiet"
          aria-label="Back by one frame"
          aria-keyshortcuts=","
          onClick={() => step(-1)}
        >
          ‹ frame <kbd aria-hidden="true">,</kbd>
        </button>
        <button
          type="button"
          class="small quiet"
          aria-label="Forward by one frame"
          aria-keyshortcuts="."
          onClick={() => step(1)}
        >
          frame › <kbd aria-hidden="true">.</kbd>
        </button>
        <button type="button" class="small quiet" aria-keyshortcuts="i" onClick={markIn}>
          Start here <kbd aria-hidden="true">i</kbd>
        </button>
        <button type="button" class="small quiet" aria-keyshortcuts="o" onClick={markOut}>
          End here <kbd aria-hidden="true">o</kbd>
        </button>
        <button type="button" class="small quiet" onClick={preview} disabled={!valid}>
          Play the clip
        </button>
      </div>
      <Form submit={submit} label="Make the clip">
        <div class="fields">
          <TextField label="Start" value={from} onValue={setFrom} required hint="1:02.500, or seconds" />
          <TextField
            label="End"
            value={to}
            onValue={setTo}
            required
            hint={valid ? `${precise(end - start)} long` : 'after the start'}
          />
          <TextField label="Name of the clip" value={name} onValue={setName} placeholder="clip-…" />
        </div>
        {!asset.c2pa && <Check label="Sign it" hint="Adds C2PA manifests." checked={sign} onChecked={setSign} />}
      </Form>
      <AsCode calls={[{ method: 'POST', path: '/api/clip', body }]} />
    </Card>
  )
}

// useKeys calls a function when its key is pressed outside a field.
function useKeys(keys: Record<string, () => void>) {
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return
      const field = e.target instanceof Element ? e.target.closest('input, textarea, select') : null
      if (field && !(field instanceof HTMLInputElement && field.type === 'range')) return
      const act = keys[e.key]
      if (!act) return
      e.preventDefault()
      act()
    }
    document.addEventListener('keydown', pressed)
    return () => document.removeEventListener('keydown', pressed)
  })
}

export function Clips({ asset }: { asset: Asset }) {
  const clips = useList(
    (cursor, limit, signal) =>
      askPage(
        api.GET('/api/asset/{id}/clips', {
          params: { path: { id: asset.id }, query: { cursor, limit, order: 'createdAt-true' } },
          signal,
        }),
      ),
    [asset.id],
    {
      size: 10,
      follows: (e) => e.event.startsWith('asset.'),
    },
  )
  if (clips.data?.length === 0) return null
  return (
    <Card title="Clips of this asset">
      <ShowList of={clips} empty={null}>
        {(items) => <ClipTable clips={items} />}
      </ShowList>
    </Card>
  )
}
