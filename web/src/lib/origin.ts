// Where a task reads from.
import type { Schemas } from './api'

type Task = Pick<Schemas['Task'], 'type' | 'inputAssetId' | 'params'>
type Source = Schemas['Asset']['source']

export type Origin =
  | { what: 'asset'; id: string }
  | { what: 'url'; url: string }
  | { what: 'broadcast' }
  | { what: 'upload' }

// originOf returns it. made is the source of the asset that the task makes, if that is known: renditions
// of recordings and clips are made by tasks of the type upload.
export function originOf(task: Task, made?: Source): Origin {
  if (task.inputAssetId) return { what: 'asset', id: task.inputAssetId }
  const url = task.params['transcode-file']?.input?.url ?? task.params.upload?.url
  if (url) return { what: 'url', url }
  if (made?.type === 'clip' && made.assetId) return { what: 'asset', id: made.assetId }
  return { what: task.type === 'clip' || made?.type === 'clip' || made?.type === 'recording' ? 'broadcast' : 'upload' }
}
