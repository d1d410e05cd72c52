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

// A recording goes to a storage for many machines while it is made, so that it is not lost
// with the machine: the segments as they are finished, then the journal and the index, in
// pieces. Restore makes the files of a recording of the segments and the journal again; a
// node that goes on with the broadcast reads from the index what was before (period.go).

// restoresAtOnce is how many segments are fetched at the same time.
const restoresAtOnce = 8

// Uploaded is how much of a recording is in the storage.
type Uploaded struct {
	known   bool
	segment int64 // that is not there
	journal uploadedFile
	index   uploadedFile
}

// Upload puts into a store what was finished since it was done last, up to is. It is done
// by one goroutine at a time, and can be interrupted. prefix is that of the asset that the
// broadcast becomes, name that of the track.
func (r *Recorder) Upload(ctx context.Context, store blob.Store, prefix string, period int, name string, is *Uploaded) error {
	segments := PeriodFolder(prefix, period, name)
	r.files.Lock() // so that the index tells of these segments, and of no others
	next, size := r.Next(), r.index
	r.files.Unlock()
	if !is.known { // this may be a new life of the process
		n, err := firstMissing(ctx, store, segments, next)
		if err != nil {
			return err
		}
		is.segment, is.known = n, true
	}
	if next == 0 || is.segment >= next && is.index.there >= size {
		return nil
	}
	for is.segment < next {
		if err := blob.Share(ctx, store, SegmentKey(segments, int(is.segment)), r.path(is.segment), segmentOptions); err != nil {
			return err
		}
		is.segment++
	}
	if err := r.putPiece(ctx, store, journalPrefix(prefix, period, name), journalName, &is.journal, largestIndex); err != nil {
		return err
	}
	return r.putPiece(ctx, store, indexPrefix(prefix, period, name), indexName, &is.index, size)
}

// firstMissing returns the first of a number of segments that is not in a store, where
// they were put one after the other.
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

// Restore makes the files of a period of a broadcast, below a folder, of what is in a store of
// it. What is there already is not fetched again. An error of kind weir.NotFound means
// that nothing is in the store.
func Restore(ctx context.Context, store blob.Store, prefix string, period int, dir string) error {
	found := false
	for _, name := range []string{RecordedVideo, RecordedAudio} {
		err := restoreTrack(ctx, store, prefix, period, name, filepath.Join(dir, name))
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		found = found || err == nil
	}
	if !found {
		return weir.Errorf(weir.NotFound, "nothing of the recording is in the storage")
	}
	return nil
}

func restoreTrack(ctx context.Context, store blob.Store, prefix string, period int, name, dir string) error {
	journal, err := readPieces(ctx, store, journalPrefix(prefix, period, name), nil)
	if err == nil && len(journal) == 0 {
		err = weir.Errorf(weir.NotFound, "nothing of the recording is in the storage")
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return diskError(err, "make the folder of a recording")
	}
	g, fetching := errgroup.WithContext(ctx)
	g.SetLimit(restoresAtOnce)
	for info, err := range store.List(ctx, PeriodFolder(prefix, period, name)) {
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		if _, ok := numbered(path.Base(info.Key), "", ".m4s"); !ok {
			continue
		}
		g.Go(func() error { return restoreFile(fetching, store, info, filepath.Join(dir, path.Base(info.Key))) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// It comes last: without it there is nothing to recover.
	return replaceFile(dir, journalName, journal)
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
		return diskError(err, "make a segment of a recording")
	}
	_, err = io.Copy(f, body)
	if err := errors.Join(err, f.Close()); err != nil {
		return weir.Wrap(weir.Upstream, err, "the storage broke off")
	}
	return nil
}

// forgetPeriods removes what nobody needs any more when a broadcast is an asset.
func forgetPeriods(ctx context.Context, store blob.Store, prefix string) error {
	return store.DeletePrefix(ctx, path.Join(prefix, periodsFolder))
}
