package live

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
)

const (
	// uploadEvery is how often finished segments are looked for.
	uploadEvery = 500 * time.Millisecond
	// maxUploads is how many sessions upload at the same time.
	maxUploads = 8
	// maxUploadTime is how long one session uploads before others have their turn.
	maxUploadTime = time.Minute
)

// uploadAll puts finished segments of recorded sessions into the storage. A session that ends does
// not wait for it: its remaining files stay until they are uploaded with the asset.
func (h *Hub) uploadAll(ctx context.Context) {
	atOnce(h.uploadable(ctx), maxUploads, func(s *session) { s.uploads.uploadNew(ctx, &s.renditions) })
}

// uploadable returns the sessions that are recorded here, or were until another node took over.
//
// The asset has its segments where the first node of a session uploads them. So a node that could not
// reach the store for a while, as in a paused virtual machine, must ask first: the session may have
// ended on another node, and uploads would overwrite segments of the asset.
func (h *Hub) uploadable(ctx context.Context) []*session {
	all := slices.DeleteFunc(h.all(), func(s *session) bool { return !s.reported(time.Now()) })
	h.mu.Lock()
	moved := slices.DeleteFunc(slices.Collect(maps.Keys(h.ended)), func(s *session) bool { return !s.handedOver.Load() })
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, returnTimeout) // the uploads of all others wait for it
	defer cancel()
	for _, s := range moved {
		if air, err := h.o.Store.OnAirOf(ctx, s.stream.PlaybackID); err == nil && air.SessionID == s.info.ID {
			all = append(all, s)
		}
	}
	return slices.DeleteFunc(all, func(s *session) bool { return !s.info.Recorded() })
}

// uploads is how far the recording of a session is in the storage.
type uploads struct {
	to     blob.Store
	prefix string // of the session in the storage
	period int    // of the session on this node
	log    *slog.Logger
	tracks map[string]*media.Uploaded // by name
	failed atomic.Bool                // the last upload
	limit  time.Duration              // maxUploadTime
}

// waiting is the issue of a recording that can't be uploaded.
const waiting = "the storage of the server does not answer; the recording waits on its disk, and is stored when the storage is back"

// uploadNew uploads the new segments of the source.
func (u *uploads) uploadNew(ctx context.Context, of *renditions) {
	of.mu.RLock()
	tracks := of.source()
	of.mu.RUnlock()
	uploading, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	for _, r := range tracks {
		if !r.record.Load() {
			continue // its recording so far is uploaded with the asset
		}
		if u.tracks[r.name] == nil {
			u.tracks[r.name] = &media.Uploaded{}
		}
		err := r.recorder.Upload(uploading, u.to, u.prefix, u.period, r.name, u.tracks[r.name])
		if err != nil && ctx.Err() == nil && !u.failed.Load() {
			u.log.Warn("recorded segments could not be uploaded; they stay on disk and will be retried", "err", err)
		}
		if u.failed.Store(err != nil); err != nil {
			return
		}
	}
}
