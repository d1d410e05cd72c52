import { expect, test } from 'vitest'
import { variants } from './playlist'

test('renditions of a master playlist, the largest first', () => {
  const text = `#EXTM3U
#EXT-X-VERSION:7
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="one, and = another",URI="audio/index.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=900000,AVERAGE-BANDWIDTH=800000,RESOLUTION=640x360,CODECS="avc1.64001e,mp4a.40.2",FRAME-RATE=29.970
360p0/index.m3u8?token=a/b
#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=100000,URI="frames.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=5000000,CODECS="avc1.64001f",RESOLUTION=1920x1080
https://cdn.example.com/hls/my%20source/index.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS="mp4a.40.2"
audio/index.m3u8
`
  const want = [
    { name: 'my source', width: 1920, height: 1080, fps: undefined, bitrate: 5_000_000, codecs: 'avc1.64001f' },
    { name: '360p0', width: 640, height: 360, fps: 29.97, bitrate: 800_000, codecs: 'avc1.64001e,mp4a.40.2' },
    { name: 'audio', width: undefined, height: undefined, fps: undefined, bitrate: 64_000, codecs: 'mp4a.40.2' },
  ]
  expect(variants(text)).toEqual(want)
  expect(variants(text.replaceAll('\n', '\r\n'))).toEqual(want)
})

test.each(['', '#EXTM3U\n#EXTINF:2,\nsegment.ts\n', '#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1'])(
  'no renditions in %j',
  (text) => expect(variants(text)).toEqual([]),
)
