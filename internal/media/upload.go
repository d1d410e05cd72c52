package media

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/weir"
)

// A recording is uploaded to shared storage while it is made, so that it is not lost with the machine:
// the journal, in ranges, the finished segments, then the index, in ranges. Restore writes the files of a
// recording again from the segments and the journal; a node that continues the broadcast reads the
// earlier periods from the index (period.go).

// restoresAtOnce is how many objects are read at the same time.
const restoresAtOnce = 8

// Uploaded tells how much of a recording is in the storage.
type Uploaded struct {
	known   bool
	segment int64 // the first one that is missing
	journal uploadedFile
	index   uploadedFile
}

// Upload puts the segments that were finished since the last call into a store, and updates is. Only one
// goroutine may call it at a time; it can be interrupted. prefix is that of the asset that the broadcast
// becomes, name that of the track.
func (r *Recorder) Upload(ctx context.Context, store blob.Store, prefix string, period int, name string, is *Uploaded) error {
	segments := PeriodFolder(prefix, period, name)
	r.files.Lock() // so that the index has exactly these segments
	next, size := r.Next(), r.index
	r.files.Unlock()
	if !is.known { // an earlier process may have uploaded some
		n, err := firstMissing(ctx, store, segments, next)
		if err != nil {
			return err
		}
		is.segment, is.known = n, true
	}
	if next == 0 || is.segment >= next && is.index.size >= size {
		return nil
	}
	// The journal comes first: whatever segments are in the store when the machine is lost, or arrive
	// there later, can be used.
	if err := r.putRange(ctx, store, logPrefix(prefix, period, name, journalName), journalName, &is.journal, maxIndex); err != nil {
		return err
	}
	for is.segment < next {
		if err := blob.Share(ctx, store, SegmentKey(segments, int(is.segment)), r.path(is.segment), segmentOptions); err != nil {
			return err
		}
		is.segment++
	}
	return r.putRange(ctx, store, logPrefix(prefix, period, name, indexName), indexName, &is.index, size)
}

// firstMissing returns the first of count segments that is not in a store, where they were put in their
// order.
func firstMissing(ctx context.Context, store blob.Store, prefix string, count int64) (int64, error) {
	var failed error
	n := sort.Search(int(count), func(n int) bool {
		if failed != nil {
			return true
		}
		_, err := store.Stat(ctx, SegmentKey(prefix, n))
		if err != nil && weir.KindOf(err) != weir.NotFound {
			failed = err
		}
		return err != nil
	})
	return int64(n), failed
}

// Restore writes the files of a period into a folder, from a store, and returns how many segments its
// longest track has there. Existing files are not fetched again. An error of kind weir.NotFound means
// that the store has none.
func Restore(ctx context.Context, store blob.Store, prefix string, period int, dir string) (segments int64, err error) {
	found := false
	for _, name := range []string{RecordedVideo, RecordedAudio} {
		n, err := restoreTrack(ctx, store, prefix, period, name, filepath.Join(dir, name))
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return 0, err
		}
		found, segments = found || err == nil, max(segments, n)
	}
	if !found {
		return 0, weir.Errorf(weir.NotFound, "nothing of the recording is in the storage")
	}
	return segments, nil
}

func restoreTrack(ctx context.Context, store blob.Store, prefix string, period int, name, dir string) (segments int64, err error) {
	journal, err := readRanges(ctx, store, logPrefix(prefix, period, name, journalName), nil)
	if err == nil && len(journal) == 0 {
		err = weir.Errorf(weir.NotFound, "nothing of the recording is in the storage")
	}
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, diskError(err, "create the folder of a recording")
	}
	g, fetching := errgroup.WithContext(ctx)
	g.SetLimit(restoresAtOnce)
	for info, err := range store.List(ctx, PeriodFolder(prefix, period, name)) {
		if err != nil {
			return 0, errors.Join(err, g.Wait())
		}
		if _, ok := numbered(path.Base(info.Key), "", ".m4s"); !ok {
			continue
		}
		segments++
		g.Go(func() error { return restoreFile(fetching, store, info, filepath.Join(dir, path.Base(info.Key))) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	// It comes last: without it there is nothing to recover.
	return segments, replaceFile(dir, journalName, nil, journal)
}

func restoreFile(ctx context.Context, store blob.Store, info blob.Info, file string) error {
	if is, err := os.Stat(file); err == nil && is.Size() == info.Size {
		return nil
	}
	body, _, err := store.Get(ctx, info.Key, 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.Create(file)
	if err != nil {
		return diskError(err, "create a segment of a recording")
	}
	_, err = io.Copy(f, body)
	if err := errors.Join(err, f.Close()); err != nil {
		return weir.Wrap(weir.Upstream, err, "the storage ended the connection early")
	}
	return nil
}
