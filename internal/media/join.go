package media

import (
	"context"
	"path"
	"path/filepath"
	"strconv"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// A broadcast may have been recorded in several periods, each on a node of its own: what the
// next one recorded comes after what the one before did. An asset has one track of all.

// keepTrack makes one track in a store of what was recorded of it below several folders.
// An error of kind weir.NotFound means that nothing was.
func keepTrack(ctx context.Context, store blob.Store, prefix, name string, dirs []string) (*Track, error) {
	var joined cmaf.TrackIndex
	for period, dir := range dirs {
		if dir == "" {
			continue // its files can't be had
		}
		recorder, err := Recover(filepath.Join(dir, name))
		var index cmaf.TrackIndex
		if err == nil {
			index, err = recorder.share(ctx, store, PeriodFolder(prefix, period, name), prefix+"/"+name, len(joined.Segments))
		}
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		join(&joined, index)
	}
	if len(joined.Segments) == 0 {
		return nil, weir.Errorf(weir.NotFound, "nothing was recorded")
	}
	if err := Seal(ctx, store, prefix+"/"+name, joined); err != nil {
		return nil, err
	}
	return NewTrack(store, prefix+"/"+name, joined), nil
}

// share puts the segments of a recording into a track, from one of its numbers on. What
// is there already is not put again, and what is in the store at the place of the period is
// copied there.
func (r *Recorder) share(ctx context.Context, store blob.Store, from, to string, first int) (cmaf.TrackIndex, error) {
	index, files, err := r.kept()
	if err != nil {
		return index, err
	}
	if err := r.Sync(); err != nil {
		return index, err
	}
	is := func(key string, size int64) bool {
		info, err := store.Stat(ctx, key)
		return err == nil && info.Size == size
	}
	for n, segment := range index.Segments {
		key, uploaded := SegmentKey(to, first+n), SegmentKey(from, int(files[n]))
		switch {
		case is(key, segment.Size()):
		case from != to && is(uploaded, segment.Size()):
			err = store.Copy(ctx, uploaded, key)
		default:
			err = blob.Share(ctx, store, key, r.path(files[n]), segmentOptions)
		}
		if err != nil {
			return index, err
		}
	}
	return index, nil
}

// join appends a recording to those before it.
func join(all *cmaf.TrackIndex, next cmaf.TrackIndex) {
	at := len(all.Segments)
	if at == 0 {
		*all = next
		return
	}
	next.Segments[0].Discontinuity = true
	if !sameTrack(all.TrackOf(at-1), next.Track) {
		all.Changes = append(all.Changes, cmaf.Change{First: at, Track: next.Track})
	}
	for _, change := range next.Changes {
		change.First += at
		all.Changes = append(all.Changes, change)
	}
	all.Segments = append(all.Segments, next.Segments...)
}

// periodsFolder has what is needed of a broadcast until it is an asset, below its prefix.
const periodsFolder = "legs"

// PeriodFolder is where the segments of a track of a period are put as they are finished, for
// [SegmentKey]. prefix is that of the asset that the broadcast becomes; the segments of the
// first period are where it will have them.
func PeriodFolder(prefix string, period int, name string) string {
	if period == 0 {
		return path.Join(prefix, name)
	}
	return path.Join(prefix, periodsFolder, strconv.Itoa(period), name)
}

// journalPrefix is where the journal of a track of a period is.
func journalPrefix(prefix string, period int, name string) string {
	return path.Join(prefix, periodsFolder, strconv.Itoa(period), name, journalName)
}

// indexPrefix is where the index of a track of a period is.
func indexPrefix(prefix string, period int, name string) string {
	return path.Join(prefix, periodsFolder, strconv.Itoa(period), name, indexName)
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
