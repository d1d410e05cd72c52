// What is said in the video, as text that leads to its places.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { duration, plural } from '../lib/format'
import { type Line, parts } from '../lib/lines'
import type { Playback } from '../player/playback'
import { useLine } from './line'

const untouched = 5000 // ms after which a list that somebody scrolled follows the video again

export function Transcript({ playback }: { playback: Playback }) {
  const file = playback.transcribed.value
  const [lines, setLines] = useState<Line[]>()
  const [failed, setFailed] = useState(false)
  const [attempt, setAttempt] = useState(0)
  const [search, setSearch] = useState('')
  useEffect(() => {
    let left = false
    setFailed(false)
    setLines(undefined)
    if (file)
      playback.lines(file).then(
        (read) => left || setLines(read),
        () => left || setFailed(true),
      )
    return () => {
      left = true
    }
  }, [file?.id, attempt])
  return (
    <section id="transcript" class="transcript" aria-label="Transcript">
      <div class="transcript-head">
        <h2>Transcript</h2>
        <span class="hint">{file?.name}</span>
      </div>
      <label>
        <span class="hidden">Search the transcript</span>
        <input type="search" placeholder="Search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </label>
      {failed ? (
        <p class="hint" role="alert">
          The transcript could not be loaded.{' '}
          <button type="button" class="link" onClick={() => setAttempt(attempt + 1)}>
            Try again
          </button>
        </p>
      ) : lines ? (
        <Lines playback={playback} lines={lines} search={search.trim()} language={file?.language} />
      ) : (
        <p class="hint">Loading …</p>
      )}
    </section>
  )
}

interface LinesProps {
  playback: Playback
  lines: Line[]
  search: string
  language?: string
}

// Lines shows the lines that have what is searched for. A film has thousands, so the one that is said is
// marked in the page, and the list is rendered only when it changes.
function Lines({ playback, lines, search, language }: LinesProps) {
  const list = useRef<HTMLOListElement>(null)
  const touched = useRef(0)
  const at = useLine(playback.video, lines)
  const places = useMemo(() => {
    const all = lines.map((line, i) => ({ line, i, found: parts(line.text, search) }))
    return search ? all.filter(({ found }) => found.length > 1) : all
  }, [lines, search])
  const shown = useMemo(
    () =>
      places.map(({ line, i, found }) => (
        <li key={i}>
          <button type="button" tabIndex={-1} data-line={i} onClick={() => playback.seek(line.start)}>
            <span class="line-time">{duration(line.start)}</span>{' '}
            <span dir="auto">{found.map((part, n) => (n % 2 ? <mark key={n}>{part}</mark> : part))}</span>
          </button>
        </li>
      )),
    [places],
  )

  useEffect(() => {
    const buttons = list.current!
    const current = buttons.querySelector<HTMLButtonElement>(`[data-line='${at}']`)
    buttons.querySelector('[aria-current]')?.removeAttribute('aria-current')
    current?.setAttribute('aria-current', 'true')
    if (!buttons.contains(document.activeElement)) reach(buttons, current ?? buttons.querySelector('button'))
    // Only the list is scrolled: the page stays where the viewer has it.
    if (current && Date.now() - touched.current > untouched)
      buttons.scrollTop = current.offsetTop - (buttons.clientHeight - current.offsetHeight) / 2
  }, [at, shown])

  const touch = () => (touched.current = Date.now())
  const onKeyDown = (e: KeyboardEvent) => {
    const all = [...list.current!.querySelectorAll('button')]
    const here = all.indexOf(document.activeElement as HTMLButtonElement)
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: all.length - 1 }[e.key]
    if (next === undefined || e.ctrlKey || e.altKey || e.metaKey) return
    e.preventDefault() // the player has these keys too
    touch()
    all[next]?.focus()
  }
  return (
    <>
      <p class="hint" role="status" hidden={!search}>
        {search && (places.length > 0 ? plural(places.length, 'line') : 'No line has this.')}
      </p>
      <ol
        ref={list}
        class="text-lines"
        lang={language || undefined}
        onKeyDown={onKeyDown}
        onFocusIn={(e) => reach(list.current!, e.target as HTMLElement)}
        onWheel={touch}
        onTouchMove={touch}
        onPointerDown={touch}
      >
        {shown}
      </ol>
    </>
  )
}

// reach makes a line the one that the key Tab leads to: the arrows lead to the others.
function reach(list: HTMLElement, line: HTMLElement | null) {
  list.querySelector("[tabindex='0']")?.setAttribute('tabindex', '-1')
  line?.setAttribute('tabindex', '0')
}
