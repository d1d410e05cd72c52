// How to send to a stream, with the lines to copy. The key is hidden until asked for.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { api, ask, root } from '../../lib/api'
import { useLoad } from '../../lib/load'
import { Code } from '../../ui/code'
import { Copyable, Secret } from '../../ui/copy'
import { Action } from '../../ui/form'
import { Card, Facts } from '../../ui/page'
import { Loading } from '../../ui/states'
import { useQuery } from '../location'
import { startPull, type Stream } from '../stream'

type Way = 'obs' | 'ffmpeg' | 'gstreamer' | 'srt' | 'whip'

export function Send({ stream }: { stream: Stream }) {
  const [way, setWay] = useQuery('with', 'obs')
  const [shown, show] = useState(false)
  const ingest = useLoad(
    () =>
      ask(api.GET('/api/ingest')).catch((e) => {
        if ((e as { status?: number }).status === 501) return []
        throw e
      }),
    [],
  )
  if (!ingest.data)
    return <Card title="Send to it">{ingest.error ? <p class="error">{ingest.error.message}</p> : <Loading />}</Card>
  const key = stream.streamKey
  const first = ingest.data[0]
  const rtmp = first?.ingest
  const { rtmps, srt } = first?.ingests ?? {}
  const offered: [Way, string, boolean][] = [
    ['obs', 'OBS', rtmp !== undefined],
    ['ffmpeg', 'ffmpeg', rtmp !== undefined],
    ['gstreamer', 'GStreamer', rtmp !== undefined],
    ['srt', 'SRT', srt !== undefined],
    ['whip', 'WHIP', true],
  ]
  const ways = offered.filter(([, , here]) => here)
  const chosen = ways.find(([name]) => name === way)?.[0] ?? ways[0]![0]
  const secret = shown ? undefined : key
  return (
    <Card title="Send to it">
      <div class="tabs" role="group" aria-label="Send with">
        {ways.map(([name, label]) => (
          <button key={name} type="button" class="tab" aria-pressed={name === chosen} onClick={() => setWay(name)}>
            {label}
          </button>
        ))}
      </div>
      {chosen === 'obs' && <Obs server={rtmp!} overTLS={rtmps?.replace(/\/$/, '')} streamKey={key} />}
      {chosen === 'ffmpeg' && <Ffmpeg to={`${rtmp}/${key}`} secret={secret} />}
      {chosen === 'gstreamer' && <GStreamer to={`${rtmp}/${key}`} secret={secret} />}
      {chosen === 'srt' && <Srt to={srt + key} secret={secret} />}
      {chosen === 'whip' && <Whip to={`${root}/webrtc/${key}`} secret={secret} />}
      {chosen !== 'obs' && (
        <p>
          <button type="button" class="small quiet" onClick={() => show(!shown)}>
            {shown ? 'Hide the stream key' : 'Show the stream key'}
          </button>
        </p>
      )}
      <p class="hint">The stream key is as good as a password: who has it can send to this stream.</p>
    </Card>
  )
}

function Obs({ server, overTLS, streamKey }: { server: string; overTLS?: string; streamKey: string }) {
  return (
    <>
      <p>In OBS, open Settings → Stream, choose “Custom” and enter:</p>
      <Facts
        of={[
          ['Server', <Copyable key="server" text={server} />],
          ['or over TLS', overTLS && overTLS !== server && <Copyable key="tls" text={overTLS} />],
          ['Stream key', <Secret key="key" text={streamKey} name="stream key" />],
        ]}
      />
      <p class="hint">In Settings → Output → Streaming, set Keyframe Interval to 2 s.</p>
    </>
  )
}

interface Line {
  to: string
  secret?: string // hidden in the lines
}

const encode = '-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 60 -c:a aac'

function Ffmpeg({ to, secret }: Line) {
  return (
    <>
      <Code label="A file" secret={secret} text={`ffmpeg -re -i film.mp4 ${encode} -f flv ${to}`} />
      <Code
        label="A test pattern"
        secret={secret}
        text={`ffmpeg -re -f lavfi -i testsrc2=size=1280x720:rate=30 -f lavfi -i sine=frequency=440 \\\n  ${encode} -f flv ${to}`}
      />
    </>
  )
}

function GStreamer({ to, secret }: Line) {
  const text = `gst-launch-1.0 -e videotestsrc is-live=true ! video/x-raw,width=1280,height=720,framerate=30/1 \\
  ! x264enc tune=zerolatency bitrate=2500 key-int-max=60 ! h264parse ! mux. \\
  audiotestsrc is-live=true ! audioconvert ! avenc_aac ! aacparse ! mux. \\
  flvmux name=mux streamable=true ! rtmp2sink location=${to}`
  return <Code label="A test pattern" secret={secret} text={text} />
}

function Srt({ to, secret }: Line) {
  return (
    <>
      <Code label="Address, for OBS and hardware encoders" secret={secret} text={to} />
      <Code label="ffmpeg" secret={secret} text={`ffmpeg -re -i film.mp4 ${encode} -f mpegts '${to}'`} />
      <p class="hint">
        SRT retransmits lost packets, so it is the better choice for unstable networks. Set the key-frame interval of
        the encoder to 2 seconds.
      </p>
    </>
  )
}

function Whip({ to, secret }: Line) {
  return (
    <>
      <Code label="Address, for OBS and other WHIP encoders" secret={secret} text={to} />
      <Code
        label="GStreamer"
        secret={secret}
        text={`gst-launch-1.0 videotestsrc is-live=true ! video/x-raw,width=1280,height=720,framerate=30/1 \\\n  ! whipclientsink signaller::whip-endpoint=${to} video-caps=video/x-h264`}
      />
      <p class="hint">Send H.264 and Opus. The page “Go live from here” does the same from this browser.</p>
    </>
  )
}

// Pull is where weir fetches a stream from. The address and the headers may have secrets in them.
export function Pull({ stream }: { stream: Stream }) {
  const { source, headers = {} } = stream.pull!
  const idle = !stream.isActive && !stream.suspended
  return (
    <Card title="Pulled from a URL">
      <p>
        weir fetches this stream from its source, from when you start it until you terminate it. An encoder that sends
        to the stream takes over.
      </p>
      {!stream.isActive &&
        stream.issues?.map((issue) => (
          <p key={issue} class="warning">
            {issue}
          </p>
        ))}
      <Facts
        of={[
          ['Source', <Secret text={source} name="source" />],
          ...Object.entries(headers).map(([name, value]): [string, ComponentChildren] => [
            name,
            <Secret text={value} name={`header ${name}`} />,
          ]),
        ]}
      />
      {idle && (
        <Action act={() => startPull(stream.id)} done="The source plays.">
          Pull from the source
        </Action>
      )}
    </Card>
  )
}
