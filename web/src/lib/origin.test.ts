import { expect, test } from 'vitest'
import { originOf } from './origin'

test('a clip of a stream is made from a broadcast', () => {
  const params = { clip: { clipStrategy: { playbackId: 'p1' }, sessionId: 's1' } }
  expect(originOf({ type: 'clip', params })).toEqual({ what: 'broadcast' })
  expect(originOf({ type: 'clip', inputAssetId: 'a1', params })).toEqual({ what: 'asset', id: 'a1' })
})

test('renditions are made from what their asset is', () => {
  const task = { type: 'upload', params: { upload: {} } } as const
  expect(originOf(task)).toEqual({ what: 'upload' })
  expect(originOf(task, { type: 'directUpload' })).toEqual({ what: 'upload' })
  expect(originOf(task, { type: 'recording', sessionId: 's1' })).toEqual({ what: 'broadcast' })
  expect(originOf(task, { type: 'clip', sessionId: 's1' })).toEqual({ what: 'broadcast' })
  expect(originOf(task, { type: 'clip', assetId: 'a1' })).toEqual({ what: 'asset', id: 'a1' })
})

test('an import and a transcode have a URL', () => {
  const url = 'https://example.com/film.mp4'
  expect(originOf({ type: 'upload', params: { upload: { url } } })).toEqual({ what: 'url', url })
  const input = { url }
  expect(originOf({ type: 'transcode-file', params: { 'transcode-file': { input } } as never })).toEqual({
    what: 'url',
    url,
  })
})
