// The picture, the controls over it, and what the player has to say.
import { signal, useSignal, type Signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { duration } from '../lib/format'
import { actionOf, keyHelp, within, type KeyAction } from '../lib/keys'
import { lineAt } from '../lib/lines'
import { recall, remember, textContrasts, textSizes, type Viewer } from '../lib/viewer'
import { Icon } from './icons'
import { Playback, type Message, type PlaybackOptions } from './playback'
import { loadStoryboard, sceneAt, type Scene } from './storyboard'
import './stage.css'

interface StageProps extends PlaybackOptions {
  title: string
  loop?: boolean
  startAt?: number // seconds, of what is stored
  onReady?: (playback: Playback) => void
}

// textStyle is how captions look, in every player of the page.
const textStyle = signal<Pick<Viewer, 'textSize' | 'textContrast'>>(recall())

function setTextStyle(patch: Partial<Viewer>) {
  remember(patch)
  textStyle.value = recall()
}

export function Stage({ title, loop, startAt, onReady, ...options }: StageProps) {
  const video = useRef<HTMLVideoElement>(null)
  const stage = useRef<HTMLDivElement>(null)
  const [playback, setPlayback] = useState<Playback>()
  const [helping, help] = useState(false)
  useEffect(() => {
    const made = new Playback(video.current!, options)
    if (startAt)
      video.current!.addEventListener('loadedmetadata', () => (video.current!.currentTime = startAt), { once: true })
    setPlayback(made)
    onReady?.(made)
    return () => made.destroy()
  }, [options.id, String(options.credentials ?? '')])
  const { textSize, textContrast } = textStyle.value
  const above = playback?.choices.above.value ? ' text-above' : ''
  return (
    <>
      <div class={`stage text-${textSize} text-${textContrast}${above}`} ref={stage}>
        <video id="video" ref={video} playsInline loop={loop} tabIndex={0} aria-label={title} />
        {playback ? (
          <Overlay playback={playback} stage={stage.current!} help={() => help(true)} />
        ) : (
          <State message={{ headline: 'Loading …' }} />
        )}
      </div>
      {helping && <Help close={() => help(false)} />}
    </>
  )
}

// Overlay is everything over the picture.
function Overlay({ playback, stage, help }: { playback: Playback; stage: HTMLElement; help: () => void }) {
  const shown = useIdle(stage, playback.video)
  useKeys(stage, playback, help)
  const message = playback.message.value
  return (
    <>
      <State message={message} again={() => playback.again()} />
      {playback.waiting.value && (
        <button type="button" class="big-play" aria-label="Play" onClick={() => playback.start()}>
          <Icon name="play" />
        </button>
      )}
      {playback.silenced.value && (
        <button id="unmute" type="button" onClick={() => (playback.video.muted = false)}>
          Unmute
        </button>
      )}
      {(!message || message.over) && !playback.waiting.value && (
        <Controls playback={playback} stage={stage} shown={shown} help={help} />
      )}
    </>
  )
}

// State says how it goes, while the picture does not.
function State({ message, again }: { message: Message | null; again?: () => void }) {
  return (
    <div id="state" class={message?.over ? 'state over' : 'state'} role="status" hidden={!message}>
      <p id="headline">{message?.headline}</p>
      <p id="detail">{message?.detail}</p>
      {message?.again && (
        <button id="again" type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  )
}

// useMedia renders again whenever the element tells of a change. Each component that shows something
// of the element needs it: one that reads signals is rendered only when these or its properties change.
function useMedia(video: HTMLVideoElement, events: string[]) {
  const [, tick] = useState(0)
  useEffect(() => {
    const ended = new AbortController()
    for (const event of events) video.addEventListener(event, () => tick((n) => n + 1), { signal: ended.signal })
    return () => ended.abort()
  }, [video])
}

// useIdle reports whether the controls are shown: while somebody moves, and while nothing plays.
function useIdle(stage: HTMLElement, video: HTMLVideoElement): Signal<boolean> {
  const shown = useSignal(true)
  useEffect(() => {
    const ended = new AbortController()
    let timer = 0
    const move = () => {
      shown.value = true
      clearTimeout(timer)
      timer = window.setTimeout(() => {
        if (!video.paused && !stage.querySelector('.controls:focus-within .menu, .controls select:focus'))
          shown.value = false
      }, 3000)
    }
    for (const event of ['pointermove', 'pointerdown', 'keydown', 'focusin'])
      stage.addEventListener(event, move, { signal: ended.signal })
    for (const event of ['pause', 'play', 'seeking', 'volumechange'])
      video.addEventListener(event, move, { signal: ended.signal })
    move()
    return () => {
      ended.abort()
      clearTimeout(timer)
    }
  }, [video])
  return shown
}

const toggle = (video: HTMLVideoElement) => (video.paused ? void video.play() : video.pause())

function fullscreen(stage: HTMLElement, video: HTMLVideoElement) {
  if (document.fullscreenElement) void document.exitFullscreen()
  else if (stage.requestFullscreen) void stage.requestFullscreen()
  else (video as { webkitEnterFullscreen?: () => void }).webkitEnterFullscreen?.() // phones of Apple
}

// range returns from when to when one can seek.
function range({ video, options }: Playback): [start: number, end: number] {
  if (!options.live) return [0, video.duration || 0]
  const { seekable } = video
  return seekable.length ? [seekable.start(0), seekable.end(seekable.length - 1)] : [0, 0]
}

// usesKey reports whether an element of the page does something with a key itself.
function usesKey(element: Element, key: string, stage: HTMLElement): boolean {
  if (element.matches('textarea, select, [contenteditable], input:not([type=range])')) return true
  const arrow = key.startsWith('Arrow')
  if (element.matches('.seek input')) return false
  if (element.matches('input, pre')) return arrow
  if (element.matches('button, a, summary')) return key === ' '
  // The page scrolls, unless the player has the focus or the whole screen.
  const scrolls = key === 'ArrowUp' || key === 'ArrowDown'
  return scrolls && !stage.contains(element) && !document.fullscreenElement
}

// useKeys lets the player have its keys wherever the focus is, unless something there wants them.
function useKeys(stage: HTMLElement, playback: Playback, help: () => void) {
  useEffect(() => {
    const ended = new AbortController()
    const { video } = playback
    const seek = (time: number) => {
      const [start, end] = range(playback)
      if (end > start) video.currentTime = within(time, start, end)
    }
    const act = (action: KeyAction) => {
      const [start, end] = range(playback)
      switch (action.act) {
        case 'toggle':
          return playback.waiting.value ? playback.start() : toggle(video)
        case 'seek':
          return seek(video.currentTime + action.by)
        case 'jump':
          return seek(start + action.part * (end - start))
        case 'volume':
          video.volume = within(Math.round((video.volume + action.by) * 20) / 20, 0, 1)
          video.muted = video.volume === 0
          return
        case 'mute':
          video.muted = !video.muted
          return
        case 'fullscreen':
          return fullscreen(stage, video)
        case 'captions':
          return playback.choices.toggleText()
        case 'help':
          return help()
      }
    }
    document.addEventListener(
      'keydown',
      (e) => {
        const action = actionOf(e.key)
        if (!action || e.defaultPrevented || e.ctrlKey || e.altKey || e.metaKey) return
        if (!playback.playing() && !playback.waiting.value && action.act !== 'help') return
        if (document.querySelector('dialog[open]') || usesKey(e.target as Element, e.key, stage)) return
        e.preventDefault()
        act(action)
      },
      { signal: ended.signal },
    )
    video.addEventListener('click', () => playback.playing() && toggle(video), { signal: ended.signal })
    return () => ended.abort()
  }, [playback])
}

// Help lists the keys.
function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog
      ref={dialog}
      aria-label="Keys of the player"
      onClose={close}
      onClick={(e) => e.target === dialog.current && close()}
    >
      <div class="dialog">
        <div class="head">
          <h2>Keys of the player</h2>
          <button type="button" class="plain" aria-label="Close" onClick={close}>
            ✕
          </button>
        </div>
        <dl class="keys">
          {keyHelp.map(([keys, what]) => (
            <div key={what}>
              <dt>{keys.map((key) => (key === '…' ? ' … ' : <kbd key={key}>{key}</kbd>))}</dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </div>
    </dialog>
  )
}

function Controls({
  playback,
  stage,
  shown,
  help,
}: {
  playback: Playback
  stage: HTMLElement
  shown: Signal<boolean>
  help: () => void
}) {
  const { video, options } = playback
  useMedia(video, ['play', 'pause', 'volumechange', 'timeupdate', 'durationchange', 'progress', 'seeked'])
  const [start, end] = range(playback)
  return (
    <div class={shown.value ? 'controls' : 'controls idle'}>
      {end > start && <Seek playback={playback} start={start} end={end} />}
      <div class="row">
        <button
          type="button"
          aria-label={video.paused ? 'Play' : 'Pause'}
          aria-keyshortcuts="k"
          onClick={() => toggle(video)}
        >
          <Icon name={video.paused ? 'play' : 'pause'} />
        </button>
        <button
          type="button"
          aria-label={video.muted ? 'Unmute' : 'Mute'}
          aria-keyshortcuts="m"
          onClick={() => (video.muted = !video.muted)}
        >
          <Icon name={video.muted ? 'muted' : 'sound'} />
        </button>
        <input
          class="volume"
          type="range"
          min={0}
          max={1}
          step={0.05}
          value={video.muted ? 0 : video.volume}
          aria-label="Volume"
          onInput={(e) => {
            video.volume = Number(e.currentTarget.value)
            video.muted = video.volume === 0
          }}
        />
        {options.live ? (
          <button
            type="button"
            id="live"
            class="live"
            hidden={!playback.onAir.value}
            title="Go to the live edge"
            onClick={() => playback.toLive()}
          >
            Live
          </button>
        ) : (
          <span class="time">
            {duration(video.currentTime)} / {duration(end)}
          </span>
        )}
        <span id="latency" class="time" hidden={playback.latency.value === undefined}>
          {playback.latency.value?.toFixed(1)} s behind
        </span>
        <span class="space" />
        {playback.choices.texts.value.length > 0 && (
          <button
            type="button"
            aria-label="Captions"
            aria-pressed={playback.choices.text.value >= 0}
            aria-keyshortcuts="c"
            onClick={() => playback.choices.toggleText()}
          >
            <Icon name="captions" />
          </button>
        )}
        <Settings playback={playback} help={help} />
        {document.pictureInPictureEnabled && (
          <button
            type="button"
            aria-label="Picture in picture"
            onClick={() =>
              document.pictureInPictureElement ? document.exitPictureInPicture() : video.requestPictureInPicture()
            }
          >
            <Icon name="pip" />
          </button>
        )}
        <button type="button" aria-label="Full screen" aria-keyshortcuts="f" onClick={() => fullscreen(stage, video)}>
          <Icon name="full" />
        </button>
      </div>
    </div>
  )
}

const speeds = [0.5, 0.75, 1, 1.25, 1.5, 2]

// Settings are those of quality, speed, audio and captions that there are, and the list of the keys.
function Settings({ playback, help }: { playback: Playback; help: () => void }) {
  const { video, options, choices } = playback
  useMedia(video, ['ratechange'])
  const levels = playback.levels.value
  const texts = choices.texts.value
  const audios = choices.audios.value
  return (
    <details class="menu">
      <summary aria-label="Settings" title="Settings">
        <Icon name="settings" />
      </summary>
      <div class="panel">
        {levels.length > 1 && (
          <label>
            <span>Quality</span>
            <select
              id="quality"
              value={playback.level.value}
              onChange={(e) => playback.setLevel(Number(e.currentTarget.value))}
            >
              <option value={-1}>Auto</option>
              {levels.map(({ index, label }) => (
                <option key={index} value={index}>
                  {label}
                </option>
              ))}
            </select>
          </label>
        )}
        {!options.live && (
          <label>
            <span>Speed</span>
            <select value={video.playbackRate} onChange={(e) => (video.playbackRate = Number(e.currentTarget.value))}>
              {speeds.map((speed) => (
                <option key={speed} value={speed}>
                  {speed} ×
                </option>
              ))}
            </select>
          </label>
        )}
        {audios.length > 1 && (
          <label>
            <span>Audio</span>
            <select value={choices.audio.value} onChange={(e) => choices.setAudio(Number(e.currentTarget.value))}>
              {audios.map(({ name }, i) => (
                <option key={i} value={i}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        {texts.length > 0 && (
          <>
            <label>
              <span>Captions</span>
              <select value={choices.text.value} onChange={(e) => choices.setText(Number(e.currentTarget.value))}>
                <option value={-1}>Off</option>
                {texts.map(({ name }, i) => (
                  <option key={i} value={i}>
                    {name}
                  </option>
                ))}
              </select>
            </label>
            <label>
              <span>Text size</span>
              <select
                value={textStyle.value.textSize}
                onChange={(e) => setTextStyle({ textSize: textSizes[e.currentTarget.selectedIndex] })}
              >
                {textSizes.map((size) => (
                  <option key={size}>{size}</option>
                ))}
              </select>
            </label>
            <label>
              <span>Contrast</span>
              <select
                value={textStyle.value.textContrast}
                onChange={(e) => setTextStyle({ textContrast: textContrasts[e.currentTarget.selectedIndex] })}
              >
                {textContrasts.map((contrast) => (
                  <option key={contrast}>{contrast}</option>
                ))}
              </select>
            </label>
          </>
        )}
        {levels.length < 2 && options.live && texts.length === 0 && audios.length < 2 && (
          <span>There is one rendition.</span>
        )}
        <button type="button" class="keys-button" aria-keyshortcuts="?" onClick={help}>
          Keys <kbd>?</kbd>
        </button>
      </div>
    </details>
  )
}

// Seek is the timeline, with a picture of the place that the pointer is over.
function Seek({ playback, start, end }: { playback: Playback; start: number; end: number }) {
  const { video, options } = playback
  useMedia(video, ['timeupdate', 'seeked'])
  const [scenes, setScenes] = useState<Scene[]>([])
  const [over, setOver] = useState<number>()
  const loaded = useRef(false)
  const load = () => {
    if (loaded.current || options.live) return
    loaded.current = true
    void loadStoryboard(playback.folder, playback.query).then(setScenes)
  }
  const chapters = playback.chapters.value
  const said = options.live
    ? `${duration(end - video.currentTime)} behind live`
    : `${duration(video.currentTime)} of ${duration(end)}`
  return (
    <div
      class="seek"
      onPointerEnter={load}
      onPointerMove={(e) => {
        const box = e.currentTarget.getBoundingClientRect()
        setOver(start + ((e.clientX - box.left) / box.width) * (end - start))
      }}
      onPointerLeave={() => setOver(undefined)}
    >
      {over !== undefined && (
        <Preview scene={sceneAt(scenes, over)} part={(over - start) / (end - start)} label={previewLabel(over)} />
      )}
      <div class="chapters" aria-hidden="true">
        {chapters
          .filter((chapter) => chapter.start > start && chapter.start < end)
          .map((chapter) => (
            <span key={chapter.start} style={{ left: `${((chapter.start - start) / (end - start)) * 100}%` }} />
          ))}
      </div>
      <input
        type="range"
        min={start}
        max={end}
        step={0.1}
        value={video.currentTime}
        aria-label="Position"
        aria-valuetext={said}
        onFocus={load}
        onInput={(e) => (video.currentTime = Number(e.currentTarget.value))}
      />
    </div>
  )

  function previewLabel(time: number) {
    if (options.live) return `-${duration(end - time)}`
    const chapter = chapters[lineAt(chapters, time)]
    return duration(time) + (chapter ? ` · ${chapter.text}` : '')
  }
}

function Preview({ scene, part, label }: { scene?: Scene; part: number; label: string }) {
  return (
    <div class="preview" style={{ left: `${Math.min(Math.max(part, 0.06), 0.94) * 100}%` }}>
      {scene && (
        <div
          class="scene"
          style={{
            width: `${scene.width}px`,
            height: `${scene.height}px`,
            backgroundImage: `url("${scene.image}")`,
            backgroundPosition: `-${scene.x}px -${scene.y}px`,
          }}
        />
      )}
      <span>{label}</span>
    </div>
  )
}
