// The watch page at /play/<playbackId>. The server writes what it knows of the video into attributes
// of the body.
import { render } from 'preact'
import { useState } from 'preact/hooks'
import type { Playback } from '../player/playback'
import { Stage } from '../player/stage'
import { Chapters } from './chapters'
import { Clip } from './clip'
import { Share } from './share'
import { Signed } from './signed'
import { Transcript } from './transcript'
import './watch.css'

const { id = '', kind, seen, name = '', clips, signed } = document.body.dataset
const root = new URL('.', document.baseURI).href
const given = new URLSearchParams(location.search)
const framed = window.self !== window.top

// Credentials of the viewer, and ll=0, which turns low latency off.
const credentials = new URLSearchParams()
for (const key of ['jwt', 'accessKey', 'll']) {
  const value = given.get(key)
  if (value !== null) credentials.set(key, value)
}

// flag reads a switch of the address: ?muted, ?muted=1, ?muted=true are on.
const flag = (key: string) => given.has(key) && !['0', 'false', 'no'].includes(given.get(key)!)

// In a frame, the page around it decides whether the video plays by itself.
function autoplay(): 'on' | 'muted' | 'off' {
  if (given.has('autoplay') ? !flag('autoplay') : framed) return 'off'
  return flag('muted') || given.get('autoplay') === 'muted' ? 'muted' : 'on'
}

function Watch() {
  const [playback, setPlayback] = useState<Playback>()
  const [reads, read] = useState(false)
  const readable = !framed && Boolean(playback?.transcribed.value)
  return (
    <main class={reads && readable ? 'reading' : undefined}>
      <div class="film">
        <Stage
          id={id}
          live={kind === 'live'}
          seen={seen === 'true'}
          root={root}
          credentials={credentials}
          autoplay={autoplay()}
          loop={flag('loop')}
          startAt={Number(given.get('t')) || undefined}
          title={name}
          onReady={setPlayback}
        />
        {reads && readable && <Transcript playback={playback!} />}
      </div>
      {!framed && (
        <>
          <div class="bar">
            <h1>{name}</h1>
            {signed === 'true' && playback && <Signed playback={playback} root={root} />}
            {readable && (
              <button
                type="button"
                class="quiet"
                aria-expanded={reads}
                aria-controls={reads ? 'transcript' : undefined}
                onClick={() => read(!reads)}
              >
                Transcript
              </button>
            )}
            <Share id={id} name={name} root={root} playback={playback} />
          </div>
          {playback && <Chapters playback={playback} />}
          {clips === 'true' && playback && <Clip playback={playback} root={root} />}
        </>
      )}
    </main>
  )
}

document.documentElement.classList.toggle('framed', framed)
const app = document.getElementById('app')!
app.replaceChildren() // what the page shows until the script runs
render(<Watch />, app)
