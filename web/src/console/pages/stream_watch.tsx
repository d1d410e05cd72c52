// The player of a stream, clips of what it shows, how to send to it and where to watch it.
import { useRef, useState } from 'preact/hooks'
import { api, ask, root, type Schemas } from '../../lib/api'
import { embedCode } from '../../lib/embed'
import { useLoad } from '../../lib/load'
import { AsCode, Code } from '../../ui/code'
import { Copyable } from '../../ui/copy'
import { Action, Form, TextField } from '../../ui/form'
import { Card, Facts } from '../../ui/page'
import { Player, type PlayerHandle } from '../../ui/player'
import { Empty } from '../../ui/states'
import { concerns, isPublic, type Stream } from '../stream'
import { ClipState } from './asset_parts'
import { Pull, Send } from './stream_send'

export function Watch({ stream }: { stream: Stream }) {
  const player = useRef<PlayerHandle | undefined>(undefined)
  return (
    <div class="columns">
      <div>
        <Card title="Player">
          <Screen stream={stream} onReady={(handle) => (player.current = handle)} />
        </Card>
        {stream.isActive && <ClipMaker stream={stream} player={() => player.current} />}
      </div>
      <div>
        {stream.pull && <Pull stream={stream} />}
        <Send stream={stream} />
        <Embed stream={stream} />
      </div>
    </div>
  )
}

// Screen plays a stream, or says why it does not.
export function Screen({ stream, onReady }: { stream: Stream; onReady?: (handle: PlayerHandle) => void }) {
  const gated = !isPublic(stream)
  const [jwt, setJwt] = useState('')
  const [typed, setTyped] = useState('')
  if (stream.suspended) {
    return (
      <Empty title="Suspended">
        <p>Nobody can send to this stream or watch it. Resume it with the button above.</p>
      </Empty>
    )
  }
  if (!stream.isActive) {
    return (
      <Empty title="Not on air">
        <p>It plays here by itself as soon as {stream.pull ? 'its source plays' : 'an encoder sends to it'}.</p>
        <a class="button" href={`streams/${stream.id}/live`}>
          Go live from this browser
        </a>
      </Empty>
    )
  }
  if (gated && !jwt) {
    return (
      <Empty title="Viewers need a permission">
        {stream.playbackPolicy?.type === 'jwt' ? (
          <form
            class="narrow"
            onSubmit={(e) => {
              e.preventDefault()
              setJwt(typed.trim())
            }}
          >
            <p>
              Make a token on the page <a href="access">Access</a> and try it here.
            </p>
            <TextField label="Token of a viewer (JWT)" value={typed} onValue={setTyped} required />
            <button type="submit">Play with this token</button>
          </form>
        ) : (
          <p>A webhook decides about each viewer, by the access key that your page gives to the player.</p>
        )}
      </Empty>
    )
  }
  return (
    <>
      <Player
        playbackID={stream.playbackId}
        title={`Player of ${stream.name}`}
        live
        jwt={jwt || undefined}
        onReady={onReady}
      />
      {jwt && (
        <p class="under-player">
          <button type="button" class="small quiet" onClick={() => setJwt('')}>
            Another token
          </button>
        </p>
      )}
    </>
  )
}

const lastSeconds = 30

// asInput writes a time for an input of type datetime-local, ofInput reads one.
const asInput = (ms: number) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 23)
const ofInput = (text: string) => new Date(text).getTime()

// ClipMaker cuts clips out of a stream on air. Times are those of the frames that the player shows,
// not of this machine's clock.
function ClipMaker({ stream, player }: { stream: Stream; player: () => PlayerHandle | undefined }) {
  const [start, setStart] = useState('')
  const [end, setEnd] = useState('')
  const [name, setName] = useState('')
  const [made, setMade] = useState<string>()
  const shown = () => player()?.wallClock() ?? Date.now()
  const body = (startTime: number, endTime: number): Schemas['NewClip'] => ({
    playbackId: stream.playbackId,
    startTime,
    endTime,
    ...(name && { name }),
  })
  const cut = async (startTime: number, endTime: number) => {
    const answer = await ask(api.POST('/api/clip', { body: body(startTime, endTime) }))
    setMade(answer.asset.id)
  }
  const last = () => {
    const until = shown()
    return cut(Math.max(until - lastSeconds * 1000, earliest(player(), until)), until)
  }
  return (
    <Card title="Clip">
      <div class="actions">
        <Action act={last}>{`Clip the last ${lastSeconds} s`}</Action>
        <button type="button" class="quiet" onClick={() => setStart(asInput(shown()))}>
          Start here
        </button>
        <button type="button" class="quiet" onClick={() => setEnd(asInput(shown()))}>
          End here
        </button>
      </div>
      {(start || end) && (
        <Form
          submit={() => cut(ofInput(start), ofInput(end))}
          label="Make the clip"
          cancel={() => {
            setStart('')
            setEnd('')
          }}
        >
          <div class="fields">
            <TextField label="Start" type="datetime-local" step="0.001" value={start} onValue={setStart} required />
            <TextField label="End" type="datetime-local" step="0.001" value={end} onValue={setEnd} required />
          </div>
          <TextField label="Name of the clip" value={name} onValue={setName} />
        </Form>
      )}
      {made && <MadeClip key={made} id={made} stream={stream} />}
      <AsCode
        title="A clip as code"
        calls={[
          {
            method: 'POST',
            path: '/api/clip',
            body: start && end ? body(ofInput(start), ofInput(end)) : body(Date.now() - lastSeconds * 1000, Date.now()),
          },
        ]}
      />
    </Card>
  )
}

const margin = 100 // ms: the player knows only about when a segment begins

// earliest returns when the first frame was sent that the player could still show.
function earliest(player: PlayerHandle | undefined, now: number): number {
  const range = player?.video.seekable
  if (!player || !range || range.length === 0) return 0
  return now - (player.video.currentTime - range.start(0)) * 1000 + margin
}

function MadeClip({ id, stream }: { id: string; stream: Stream }) {
  const clip = useLoad((signal) => ask(api.GET('/api/asset/{id}', { params: { path: { id } }, signal })), [id], {
    follows: (event) => concerns(event, stream),
    every: 2,
  })
  if (!clip.data) return null
  return (
    <p class="actions" role="status">
      <span>
        The clip <a href={'assets/' + id}>{clip.data.name}</a>
      </span>
      <ClipState clip={clip.data} />
    </p>
  )
}

function Embed({ stream }: { stream: Stream }) {
  const watch = `${root}/play/${stream.playbackId}`
  const frame = embedCode(watch, stream.name)
  return (
    <Card title="Watch and embed">
      {!isPublic(stream) && (
        <p class="warning">
          Viewers need a permission: add <code>?jwt=TOKEN</code> to these addresses.
        </p>
      )}
      <Facts
        of={[
          [
            'Watch page',
            <a key="watch" href={watch} target="_blank" rel="noopener">
              {watch}
            </a>,
          ],
          ['HLS', <Copyable key="hls" text={`${root}/hls/${stream.playbackId}/index.m3u8`} />],
          ['WebRTC (WHEP)', <Copyable key="whep" text={`${root}/webrtc/${stream.playbackId}`} />],
          ['Playback id', <Copyable key="id" text={stream.playbackId} />],
        ]}
      />
      <Code label="On your page" text={frame} />
    </Card>
  )
}
