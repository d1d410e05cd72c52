package live

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/weir"
)

// quotaUsedUp is why recordings end, or do not begin, when their account has used up its quota.
const quotaUsedUp = "the account has reached its storage quota"

// quotaEvery is how often the quotas of storage are checked.
const quotaEvery = time.Second

// checkQuotas ends the recordings of accounts that have used up their quota of storage. What is
// recorded so far is kept. The store knows how large all recordings are that grow, as of the last
// beats; those of this node may have grown since, while a store that is busy is not written.
func (h *Hub) checkQuotas(ctx context.Context) {
	recordings, grown := map[string][]*session{}, map[string]int64{} // by account
	for _, s := range h.all() {
		if bytes, recording := s.grown(); recording {
			user := s.stream.UserID
			recordings[user], grown[user] = append(recordings[user], s), grown[user]+bytes
		}
	}
	for user, all := range recordings {
		if weir.KindOf(h.o.Store.CheckStorage(ctx, user, grown[user])) != weir.Denied {
			continue
		}
		for _, s := range all {
			s.endRecording(quotaUsedUp)
		}
	}
}

// sweepEvery is how often files that are not needed any more are removed.
const sweepEvery = 10 * time.Second

// Folder returns the path of the folder of a session's period that has ended here; an error of kind
// Busy if it has not.
func (h *Hub) Folder(name string) (string, error) {
	for _, s := range h.all() {
		if filepath.Base(s.renditions.dir) == name && !s.finished() {
			return "", weir.Errorf(weir.Busy, "the session is still being written")
		}
	}
	return filepath.Join(h.o.Dir, name), nil
}

// sweep removes the folders of sessions that have ended, are not played any more and, if recorded,
// are in the storage.
func (h *Hub) sweep(ctx context.Context) {
	folders, err := os.ReadDir(h.o.Dir)
	if err != nil {
		h.o.Log.WarnContext(ctx, "the folder of sessions could not be read", "err", err)
		return
	}
	if err := h.sweepPosters(ctx); err != nil && ctx.Err() == nil {
		h.o.Log.WarnContext(ctx, "old poster images could not be removed", "err", err)
	}
	for _, folder := range folders {
		if folder.Name() == posterFolder {
			continue
		}
		if err := h.sweepOne(ctx, folder.Name()); err != nil && ctx.Err() == nil {
			h.o.Log.WarnContext(ctx, "the files of a session could not be removed", "session", folder.Name(), "err", err)
		}
	}
}

func (h *Hub) sweepOne(ctx context.Context, folder string) error {
	sessionID := weir.SessionOf(folder)
	if h.shows(sessionID) {
		return nil
	}
	if needed, err := h.o.Store.NeedsFiles(ctx, sessionID); err != nil || needed {
		return err
	}
	return os.RemoveAll(filepath.Join(h.o.Dir, folder))
}

// shows reports whether viewers may still request files of a session.
func (h *Hub) shows(sessionID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.withEnded(), func(s *session) bool { return s.info.ID == sessionID })
}

// history is the playlist of a rendition from its first segment on. A request brings it up to date.
type history struct {
	mu            sync.Mutex
	list          hls.Entries
	next          int64 // number on disk of the next segment
	first, breaks int64 // the number of its first segment, and the discontinuities before it
	text          *hls.Text
	ended         bool // what text says
}

// whole returns the playlist of all segments so far.
func (r *rendition) whole() (*hls.Text, error) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	r.mu.Lock()
	end, ended := r.first+int64(len(r.segments)), r.ended
	r.mu.Unlock()
	if kept := r.recorder.Protected(); !r.record.Load() && end >= kept { // the recording has ended before
		end, ended = kept, true
	}
	if text := r.history.text; text != nil && r.history.next == end && r.history.ended == ended {
		return text, nil
	}
	numbers, segments, err := r.past(r.history.next, end)
	if err != nil {
		return nil, err
	}
	for i, segment := range segments {
		n := numbers[i]
		k := r.recorder.InitOf(n)
		track, err := r.recorder.Track(k)
		if err != nil {
			return nil, err
		}
		segment.Discontinuity = segment.Discontinuity || n > r.history.next
		r.history.list.Add(cmaf.LiveEntry(r.base+n, segment, track, int(r.base)+k))
		r.history.next = n + 1
	}
	list := hls.Media{
		Type: hls.Event, Version: 6, Sequence: r.history.first, DiscontinuitySequence: r.history.breaks, Target: r.target.shown(), TargetFixed: true, Ended: ended,
	}
	r.history.text, r.history.ended = hls.NewText(list.TextWith(&r.history.list)), ended
	return r.history.text, nil
}

// past returns whole segments, and their numbers on disk, without those that were deleted because the
// disk was full.
func (r *rendition) past(from, before int64) (numbers []int64, segments []cmaf.Segment, err error) {
	r.mu.Lock()
	first, all := r.first, r.segments
	r.mu.Unlock()
	number := func(i int) int64 { return first + int64(i) }
	if from < first {
		index, compacted, err := r.recorder.Index()
		if err != nil {
			return nil, nil, err
		}
		all, number = index.Segments, compacted.Number
	}
	for i, segment := range all {
		if n := number(i); n >= from && n < before && !r.recorder.Trimmed(n) {
			numbers, segments = append(numbers, n), append(segments, segment)
		}
	}
	return numbers, segments, nil
}

// recorded reports whether it is recorded, or was for a while.
func (r *rendition) recorded() bool { return r.record.Load() || r.recorder.Protected() > 0 }

// Recorded returns the renditions of the broadcast as far as it is recorded, not only of its last
// minute; none if it is not.
func (b *Broadcast) Recorded() cmaf.Master {
	b.session.renditions.mu.RLock()
	defer b.session.renditions.mu.RUnlock()
	var m cmaf.Master
	for _, r := range b.session.renditions.source() {
		if !r.recorded() {
			continue
		}
		choice := r.choice()
		choice.URI = r.name + "/dvr.m3u8"
		if choice.Index.Track.Kind == cmaf.Video {
			m.Video = append(m.Video, choice)
		} else {
			m.Audio = append(m.Audio, choice)
		}
	}
	return m
}

// WholePlaylist returns the media playlist of a recorded rendition from its first segment on.
func (b *Broadcast) WholePlaylist(name string) (*hls.Text, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, err
	}
	if !r.recorded() {
		return nil, weir.Errorf(weir.NotFound, "the stream is not recorded; play index.m3u8")
	}
	return r.whole()
}
