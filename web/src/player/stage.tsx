// The picture, the controls over it, and what the player has to say.
import { useSignal, type Signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { duration } from '../lib/format'
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

export function Stage({ title, loop, startAt, onReady, ...options }: StageProps) {
  const video = useRef<HTMLVideoElement>(null)
  const stage = useRef<HTMLDivElement>(null)
  const [playback, setPlayback] = useState<Playback>()
  useEffect(() => {
    const made = new Playback(video.current!, options)
    if (startAt)
      video.current!.addEventListener('loadedmetadata', () => (video.current!.currentTime = startAt), { once: true })
    setPlayback(made)
    onReady?.(made)
    return () => made.destroy()
  }, [options.id, String(options.credentials ?? '')])
  return (
    <div class="stage" ref={stage}>
      <video id="video" ref={video} playsInline loop={loop} tabIndex={0} aria-label={title} />
      {playback ? (
        <Overlay playback={playback} stage={stage.current!} />
      ) : (
        <State message={{ headline: 'Loading …' }} />
      )}
    </div>
  )
}

// Overlay is everything over the picture.
function Overlay({ playback, stage }: { playback: Playback; stage: HTMLElement }) {
  const shown = useIdle(stage, playback.video)
  useKeys(stage, playback)
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
        <Controls playback={playback} stage={stage} shown={shown} />
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
    for (const event of ['pause', 'play']) video.addEventListener(event, move, { signal: ended.signal })
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

// useKeys are the keys that players have everywhere.
function useKeys(stage: HTMLElement, playback: Playback) {
  useEffect(() => {
    const ended = new AbortController()
    const { video } = playback
    const keys: Record<string, () => void> = {
      ' ': () => toggle(video),
      k: () => toggle(video),
      m: () => {
        video.muted = !video.muted
      },
      f: () => fullscreen(stage, video),
      ArrowLeft: () => {
        video.currentTime -= 5
      },
      ArrowRight: () => {
        video.currentTime += 5
      },
    }
    stage.addEventListener(
      'keydown',
      (e) => {
        const target = e.target as Element
        if (e.ctrlKey || e.altKey || e.metaKey || target.matches('input, select, button') || !playback.playing()) return
        const act = keys[e.key]
        if (!act) return
        e.preventDefault()
        act()
      },
      { signal: ended.signal },
    )
    video.addEventListener('click', () => playback.playing() && toggle(video), { signal: ended.signal })
    return () => ended.abort()
  }, [playback])
}

function Controls({ playback, stage, shown }: { playback: Playback; stage: HTMLElement; shown: Signal<boolean> }) {
  const { video, options } = playback
  useMedia(video, ['play', 'pause', 'volumechange', 'timeupdate', 'durationchange', 'progress', 'seeked'])
  const start = options.live && video.seekable.length ? video.seekable.start(0) : 0
  const end = options.live
    ? video.seekable.length
      ? video.seekable.end(video.seekable.length - 1)
      : 0
    : video.duration || 0
  return (
    <div class={shown.value ? 'controls' : 'controls idle'}>
      {end > start && <Seek playback={playback} start={start} end={end} />}
      <div class="row">
        <button type="button" aria-label={video.paused ? 'Play' : 'Pause'} onClick={() => toggle(video)}>
          <Icon name={video.paused ? 'play' : 'pause'} />
        </button>
        <button type="button" aria-label={video.muted ? 'Unmute' : 'Mute'} onClick={() => (video.muted = !video.muted)}>
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
        <Settings playback={playback} />
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
        <button type="button" aria-label="Full screen" onClick={() => fullscreen(stage, video)}>
          <Icon name="full" />
        </button>
      </div>
    </div>
  )
}

const speeds = [0.5, 0.75, 1, 1.25, 1.5, 2]

// Settings are quality, speed and captions, those that there are.
function Settings({ playback }: { playback: Playback }) {
  const { video, options } = playback
  useMedia(video, ['ratechange'])
  const levels = playback.levels.value
  const captions = playback.captions.value
  return (
    <details class="menu">
      <summary aria-label="Settings" title="Settings">
        <Icon name="settings" />
      </summary>
      <div class="panel">
        {levels.length > 1 && (
          <label>
            Quality
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
            Speed
            <select value={video.playbackRate} onChange={(e) => (video.playbackRate = Number(e.currentTarget.value))}>
              {speeds.map((speed) => (
                <option key={speed} value={speed}>
                  {speed} ×
                </option>
              ))}
            </select>
          </label>
        )}
        {captions.length > 0 && (
          <label>
            Captions
            <select value={playback.caption.value} onChange={(e) => playback.setCaption(Number(e.currentTarget.value))}>
              <option value={-1}>Off</option>
              {captions.map((name, i) => (
                <option key={i} value={i}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        {levels.length < 2 && options.live && captions.length === 0 && <span>There is one rendition.</span>}
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
  const chapterAt = (time: number) => chapters.findLast((chapter) => chapter.start <= time + 0.01)
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
        {chapters.slice(1).map((chapter) => (
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
    const chapter = chapterAt(time)
    return duration(time) + (chapter ? ` · ${chapter.label}` : '')
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
