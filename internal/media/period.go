package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// StoredPeriod reads the uploaded part of a period's track, which another node recorded and may
// still upload. It is not safe for concurrent use.
type StoredPeriod struct {
	store          blob.Store
	prefix         string
	period         int
	name           string
	journal, index []byte
}

// NewStoredPeriod returns a period that was not loaded yet. prefix is that of the asset that the
// broadcast becomes, name that of the track.
func NewStoredPeriod(store blob.Store, prefix string, period int, name string) *StoredPeriod {
	return &StoredPeriod{store: store, prefix: prefix, period: period, name: name}
}

// Load reads what was uploaded since the last call.
func (p *StoredPeriod) Load(ctx context.Context) (err error) {
	// The index first: the journal has the notes on its segments then.
	if p.index, err = readRanges(ctx, p.store, logPrefix(p.prefix, p.period, p.name, indexName), p.index); err != nil {
		return err
	}
	p.journal, err = readRanges(ctx, p.store, logPrefix(p.prefix, p.period, p.name, journalName), p.journal)
	return err
}

// Tracks returns the track as each of its init segments describes it.
func (p *StoredPeriod) Tracks() []cmaf.Track { return readJournal(p.journal).tracks }

// Segments returns the uploaded segments from 0 on, and the number of the init segment that each of
// them needs.
func (p *StoredPeriod) Segments() (segments []cmaf.Segment, inits []int) {
	_, entries, _ := bytes.Cut(p.index, []byte("\n"))
	// A range may break off anywhere; only complete entries count.
	segments, _, _ = cmaf.ReadIndex(entries)
	notes := readJournal(p.journal).segments
	for n := range segments {
		note, ok := notes[int64(n)]
		if !ok {
			return segments[:n], inits
		}
		inits = append(inits, note.Init)
	}
	return segments, inits
}

// A growing file is put into a store in ranges that are named by their offset. The last range is
// replaced by a longer one until it is large. So there are few ranges, and few bytes are put twice.

// largeRange is the size from which on a range is not replaced any more.
const largeRange = 16 << 10

// uploadedFile tells how much of a growing file is in a store.
type uploadedFile struct {
	last int64 // offset of the last range
	size int64 // bytes in the store
}

// putRange puts the new bytes of a file, up to a size.
func (r *Recorder) putRange(ctx context.Context, store blob.Store, prefix, name string, is *uploadedFile, size int64) error {
	f, err := os.Open(filepath.Join(r.dir, name))
	if err != nil {
		return diskError(err, "open the "+name+" of a recording")
	}
	data, err := io.ReadAll(io.NewSectionReader(f, is.last, size-is.last))
	if err := errors.Join(err, f.Close()); err != nil {
		return diskError(err, "read the "+name+" of a recording")
	}
	end := is.last + int64(len(data))
	if end <= is.size {
		return nil
	}
	if is.size == 0 { // an earlier process may have written other ranges
		if err := store.DeletePrefix(ctx, prefix); err != nil {
			return err
		}
	}
	if err := store.Put(ctx, rangeKey(prefix, is.last), bytes.NewReader(data), int64(len(data)), indexOptions); err != nil {
		return err
	}
	is.size = end
	if len(data) >= largeRange {
		is.last = end
	}
	return nil
}

func rangeKey(prefix string, from int64) string { return path.Join(prefix, fmt.Sprintf("%016d", from)) }

// readRanges returns a growing file as far as it is in a store; file is the result of the last
// call.
func readRanges(ctx context.Context, store blob.Store, prefix string, file []byte) ([]byte, error) {
	ranges := map[int64][]byte{} // by their offset
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return file, err
		}
		from, err := strconv.ParseInt(path.Base(info.Key), 10, 64)
		if err == nil && info.Size <= maxIndex && from+info.Size > int64(len(file)) {
			ranges[from] = make([]byte, info.Size)
		}
	}
	g, fetching := errgroup.WithContext(ctx)
	g.SetLimit(restoresAtOnce)
	for from, data := range ranges {
		g.Go(func() error { return readObject(fetching, store, rangeKey(prefix, from), data) })
	}
	if err := g.Wait(); err != nil {
		return file, err
	}
	for _, from := range slices.Sorted(maps.Keys(ranges)) {
		if from > int64(len(file)) {
			break // ranges between are missing
		}
		file = append(slices.Clip(file[:from]), ranges[from]...)
	}
	return file, nil
}

func readObject(ctx context.Context, store blob.Store, key string, data []byte) error {
	body, _, err := store.Get(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(body, data)
	if err := errors.Join(err, body.Close()); err != nil {
		return weir.Wrap(weir.Upstream, err, "the storage ended the connection early")
	}
	return nil
}
