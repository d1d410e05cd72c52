// Lets the viewer cut a clip.
import { useEffect, useRef, useState } from 'preact/hooks'
import { Frames } from '../player/frames'
import type { Playback } from '../player/playback'

interface Made {
  playbackId: string
  name: string
  playbackPolicy?: { type: string }
}

const hint = 'Mark where the clip begins and ends: keys i and o; the keys , and . step by a frame.'

export function Clip({ playback, root }: { playback: Playback; root: string }) {
  const { live, id } = playback.options
  const frames = useRef<Frames | undefined>(undefined)
  const name = useRef<HTMLInputElement>(null)
  const [marks, setMarks] = useState<{ in?: number; out?: number }>({})
  const [busy, setBusy] = useState(false)
  const [said, say] = useState(hint)
  const [made, setMade] = useState<Made>()

  const mark = (which: 'in' | 'out') => {
    const time = frames.current?.mark(which === 'in' ? 'first' : 'last')
    if (time === undefined) return say('There is no frame to mark yet.')
    setMade(undefined)
    setMarks((before) => {
      const now = { ...before, [which]: time }
      if (now.in !== undefined && now.out !== undefined) {
        say(
          now.out <= now.in
            ? 'The clip must end after it begins.'
            : `The clip has ${((now.out - now.in) / 1000).toFixed(3)} s.`,
        )
      }
      return now
    })
  }

  useEffect(() => {
    const f = new Frames(playback)
    frames.current = f
    const keys: Record<string, () => void> = {
      i: () => mark('in'),
      o: () => mark('out'),
      ',': () => f.step(-1),
      '.': () => f.step(1),
    }
    const press = (e: KeyboardEvent) => {
      const act = keys[e.key]
      if (!act || e.ctrlKey || e.altKey || e.metaKey || (e.target as Element).matches('input, select, textarea')) return
      e.preventDefault()
      act()
    }
    document.addEventListener('keydown', press)
    return () => {
      document.removeEventListener('keydown', press)
      f.destroy()
    }
  }, [playback])

  const write = (time?: number) => {
    if (time === undefined) return 'not marked'
    if (!live) return `${Math.floor(time / 60000)}:${((time % 60000) / 1000).toFixed(3).padStart(6, '0')}`
    const date = new Date(time)
    return `${date.toLocaleTimeString()}.${String(date.getMilliseconds()).padStart(3, '0')}`
  }

  const make = async () => {
    setBusy(true)
    setMade(undefined)
    say('Asking for the clip …')
    try {
      const answer = await fetch(`${root}api/clip${playback.query}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({
          playbackId: id,
          startTime: marks.in,
          endTime: marks.out,
          name: name.current!.value || undefined,
          playbackToken: playback.token(),
        }),
      })
      const body = await answer.json()
      if (answer.ok) await follow(body.asset)
      else say(`No clip was made: ${body.errors.join('; ')}.`)
    } catch {
      say('No clip was made: the server does not answer. Try again.')
    }
    setBusy(false)
  }

  // follow waits until the clip can be played.
  const follow = async (clip: Made) => {
    const began = Date.now()
    for (let lost = 0; lost < 10; ) {
      say(`The clip is being cut: ${Math.round((Date.now() - began) / 1000)} s.`)
      await new Promise((done) => setTimeout(done, 1000))
      try {
        const answer = await fetch(`${root}api/playback/${encodeURIComponent(clip.playbackId)}`, { cache: 'no-store' })
        lost = 0
        if (answer.ok) {
          const gated = clip.playbackPolicy && clip.playbackPolicy.type !== 'public'
          say('The clip is ready.' + (gated ? ' Like this video, it is not open to everybody.' : ''))
          return setMade(clip)
        }
        const failed = (await answer.json()).errors[1]
        if (answer.status === 422 && !failed) continue // not yet
        return say(`There is no clip: ${failed || 'it was deleted'}.`)
      } catch {
        lost++
      }
    }
    say('The server does not answer. The clip may be there later.')
  }

  const complete = marks.in !== undefined && marks.out !== undefined && marks.out > marks.in
  return (
    <section id="clip" class="clip" aria-label="Clip">
      <div class="bar">
        <h2>Clip</h2>
        <button id="back" type="button" class="quiet" title="Key: ," onClick={() => frames.current?.step(-1)}>
          Previous frame
        </button>
        <button id="next" type="button" class="quiet" title="Key: ." onClick={() => frames.current?.step(1)}>
          Next frame
        </button>
        <button id="in" type="button" class="quiet" title="Key: i" onClick={() => mark('in')}>
          Mark in
        </button>
        <output id="inAt" class="hint">
          {write(marks.in)}
        </output>
        <button id="out" type="button" class="quiet" title="Key: o" onClick={() => mark('out')}>
          Mark out
        </button>
        <output id="outAt" class="hint">
          {write(marks.out)}
        </output>
        <label class="name">
          Name <input id="clipName" ref={name} type="text" maxLength={200} autocomplete="off" />
        </label>
        <button id="make" type="button" disabled={busy || !complete} onClick={make}>
          Create clip
        </button>
      </div>
      <p id="clipState" class="hint" role="status">
        {said}
      </p>
      <p id="clipDone" hidden={!made}>
        <a id="clipLink" href={made ? `play/${encodeURIComponent(made.playbackId)}` : undefined}>
          Watch {made?.name}
        </a>
      </p>
    </section>
  )
}
