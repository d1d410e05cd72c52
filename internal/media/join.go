package media

import (
	"context"
	"math"
	"path"
	"path/filepath"
	"sort"
	"strconv"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// A broadcast may have been recorded in several periods, each on another node. The asset has one
// track with the segments of all periods in their order.

// keepTrack makes one track in a store from the recordings in several folders. An error of kind
// weir.NotFound means that there are none.
func keepTrack(ctx context.Context, store blob.Store, prefix, name string, dirs []string) (*Track, error) {
	var joined cmaf.TrackIndex
	for period, dir := range dirs {
		if dir == "" {
			continue // its files are lost
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

// share puts the segments of a recording into a track, where they are numbered from first on.
// Segments that exist already are skipped, and those that were uploaded to the folder of the period
// are copied.
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

// periodsFolder holds the files that are needed until a broadcast is an asset, below its prefix.
const periodsFolder = "legs"

// PeriodFolder returns the prefix for [SegmentKey] to which the finished segments of a period are
// uploaded. prefix is that of the asset that the broadcast becomes; the segments of the first
// period are already where the asset will have them.
func PeriodFolder(prefix string, period int, name string) string {
	if period == 0 {
		return path.Join(prefix, name)
	}
	return path.Join(prefix, periodsFolder, strconv.Itoa(period), name)
}

// logPrefix returns the folder with the ranges of the journal or the index of a period.
func logPrefix(prefix string, period int, name, file string) string {
	return path.Join(prefix, periodsFolder, strconv.Itoa(period), name, file)
}

// kept returns the index of the segments of the recording, and their numbers in it.
func (r *Recorder) kept() (kept cmaf.TrackIndex, files []int64, err error) {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	if open {
		return kept, nil, weir.Errorf(weir.Busy, "a segment is still being recorded")
	}
	r.mu.Lock()
	end := int64(math.MaxInt64)
	if r.ended {
		end = r.protected
	}
	r.mu.Unlock()
	return r.soFar(end)
}

// soFar returns the index of the segments before a number that were not trimmed, and their numbers. The
// open segment has the parts that are written.
func (r *Recorder) soFar(before int64) (kept cmaf.TrackIndex, files []int64, err error) {
	r.mu.Lock()
	next, begun, inits := r.next, r.begun, r.inits
	r.mu.Unlock()
	all, compacted, err := r.Index()
	if err != nil {
		return kept, nil, err
	}
	numbers := make([]int64, len(all.Segments))
	for i := range numbers {
		numbers[i] = compacted.Number(i)
	}
	// Segments that were finished since then could need an init segment that is newer too.
	end := sort.Search(len(numbers), func(i int) bool { return numbers[i] >= next })
	segments := all.Segments[:end]
	if len(begun.Parts) > 0 {
		segments, numbers = append(segments, begun), append(numbers[:end], next)
	}
	// The newest first: what is trimmed meanwhile is older than all that is kept.
	trimmed := make([]bool, len(segments))
	for i := len(segments) - 1; i >= 0; i-- {
		trimmed[i] = r.Trimmed(numbers[i])
	}
	last := -1 // init segment
	for i, segment := range segments {
		n := numbers[i]
		if trimmed[i] || n >= before {
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
