package live

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/media"
)

const (
	// uploadEvery is how often it is looked for segments that are finished.
	uploadEvery = 500 * time.Millisecond
	// uploadsAtOnce is of how many sessions something is put into the storage at the same
	// time.
	uploadsAtOnce = 8
	// maxUpload is what the storage gets before others have their turn.
	maxUpload = time.Minute
)

// keepUploaded puts what is recorded into the storage as it is finished, until ctx ends.
// Nothing waits for it: what it has not done when a session ends is done when the session
// becomes an asset, of the files, which stay until then.
func (h *Hub) keepUploaded(ctx context.Context) {
	if h.o.Upload == nil {
		return
	}
	tick := time.NewTicker(uploadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var g errgroup.Group
		g.SetLimit(uploadsAtOnce)
		for _, s := range h.uploadable() {
			g.Go(func() error {
				h.upload(ctx, s)
				return nil
			})
		}
		_ = g.Wait()
	}
}

// uploadable returns the sessions that are recorded here, or were until another node went
// on with them.
func (h *Hub) uploadable() []*session {
	all := h.all()
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.ended {
		if s.moved.Load() {
			all = append(all, s)
		}
	}
	return slices.DeleteFunc(all, func(s *session) bool { return !s.info.Record })
}

// upload puts what is new of a session into the storage.
func (h *Hub) upload(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, maxUpload)
	defer cancel()
	s.looking.RLock()
	tracks := s.renditions()
	s.looking.RUnlock()
	if s.uploaded == nil {
		s.uploaded = map[string]*media.Uploaded{}
	}
	for _, r := range tracks {
		if !r.record.Load() {
			continue // what was recorded before is uploaded at the end
		}
		is := s.uploaded[r.name]
		if is == nil {
			is = &media.Uploaded{}
			s.uploaded[r.name] = is
		}
		err := r.recorder.Upload(ctx, h.o.Upload, "asset/"+s.info.ID, len(s.info.Earlier), r.name, is)
		if err != nil && ctx.Err() == nil && !s.uploadFailed {
			s.log.Warn("what is recorded can't be put into the storage yet; it is on disk, and tried again", "err", err)
		}
		s.uploadFailed = err != nil
		if err != nil {
			return
		}
	}
}
