package media

import (
	"context"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// Keep makes a track in a store of what was recorded. No segment may be open; those that
// were trimmed are left out. The folder stays as it is. On the same file system nothing is
// copied, the segments are in both places. What an earlier Keep has done that was
// interrupted is not done again. An error of kind weir.NotFound means that nothing was
// recorded.
func (r *Recorder) Keep(ctx context.Context, store blob.Store, prefix string) (*Track, error) {
	index, err := r.share(ctx, store, prefix, prefix, 0)
	if err != nil {
		return nil, err
	}
	if err := Seal(ctx, store, prefix, index); err != nil {
		return nil, err
	}
	return NewTrack(store, prefix, index), nil
}

// kept returns the index of the segments that are there, and their numbers here.
func (r *Recorder) kept() (kept cmaf.TrackIndex, files []int64, err error) {
	all, forgotten, err := r.Index()
	if err != nil {
		return kept, nil, err
	}
	r.mu.Lock()
	open, inits := r.open, r.inits
	r.mu.Unlock()
	if open {
		return kept, nil, weir.Errorf(weir.Busy, "a segment is still being recorded")
	}
	last := -1 // init segment
	for i, segment := range all.Segments {
		n := forgotten.Number(i)
		if r.Trimmed(n) {
			continue
		}
		if count := len(files); count > 0 && files[count-1] != n-1 {
			segment.Discontinuity = true
		}
		if k := r.InitOf(n); k != last {
			if last < 0 {
				kept.Track = inits[k].track
			} else {
				kept.Changes = append(kept.Changes, cmaf.Change{First: len(files), Track: inits[k].track})
			}
			last = k
		}
		kept.Segments, files = append(kept.Segments, segment), append(files, n)
	}
	if len(files) == 0 {
		return kept, nil, weir.Errorf(weir.NotFound, "nothing was recorded")
	}
	return kept, files, nil
}
