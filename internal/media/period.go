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

// StoredPeriod is what a store has of a track of a period of a broadcast, which another node
// recorded and may still upload. Not for use by several goroutines at once.
type StoredPeriod struct {
	store          blob.Store
	prefix         string
	period         int
	name           string
	journal, index []byte
}

// NewStoredPeriod returns a period of which nothing is known yet. prefix is that of the asset
// that the broadcast becomes, name that of the track.
func NewStoredPeriod(store blob.Store, prefix string, period int, name string) *StoredPeriod {
	return &StoredPeriod{store: store, prefix: prefix, period: period, name: name}
}

// Load reads what has come since it was done last.
func (l *StoredPeriod) Load(ctx context.Context) (err error) {
	// The index first: what it tells of is in the journal then.
	if l.index, err = readPieces(ctx, l.store, indexPrefix(l.prefix, l.period, l.name), l.index); err != nil {
		return err
	}
	l.journal, err = readPieces(ctx, l.store, journalPrefix(l.prefix, l.period, l.name), l.journal)
	return err
}

// Tracks returns the track as each of its init segments describes it.
func (l *StoredPeriod) Tracks() []cmaf.Track { return readJournal(l.journal).tracks }

// Segments returns the segments from 0 on that are in the store, and which init segment
// each of them needs.
func (l *StoredPeriod) Segments() (segments []cmaf.Segment, inits []int) {
	_, entries, _ := bytes.Cut(l.index, []byte("\n"))
	// A piece may break off anywhere; what is whole counts.
	segments, _, _ = cmaf.ReadIndex(entries)
	notes := readJournal(l.journal).segments
	for n := range segments {
		note, ok := notes[int64(n)]
		if !ok {
			return segments[:n], inits
		}
		inits = append(inits, note.Init)
	}
	return segments, inits
}

// A file that grows is put into a store in pieces that are named by where in it they
// begin. The last one is put again with what has come, until it is large: so there are
// neither many of them, nor is much put twice.

// largePiece is from which size on a piece is followed by another.
const largePiece = 16 << 10

// uploadedFile is how much of a file that grows is in a store.
type uploadedFile struct {
	piece int64 // where the last one begins
	there int64 // bytes
}

// putPiece puts what has come to a file, up to a size.
func (r *Recorder) putPiece(ctx context.Context, store blob.Store, prefix, name string, is *uploadedFile, size int64) error {
	f, err := os.Open(filepath.Join(r.dir, name))
	if err != nil {
		return diskError(err, "open the "+name+" of a recording")
	}
	piece, err := io.ReadAll(io.NewSectionReader(f, is.piece, size-is.piece))
	if err := errors.Join(err, f.Close()); err != nil {
		return diskError(err, "read the "+name+" of a recording")
	}
	end := is.piece + int64(len(piece))
	if end <= is.there {
		return nil
	}
	if is.there == 0 { // another life may have written another one
		if err := store.DeletePrefix(ctx, prefix); err != nil {
			return err
		}
	}
	if err := store.Put(ctx, pieceKey(prefix, is.piece), bytes.NewReader(piece), int64(len(piece)), indexOptions); err != nil {
		return err
	}
	is.there = end
	if len(piece) >= largePiece {
		is.piece = end
	}
	return nil
}

func pieceKey(prefix string, from int64) string { return path.Join(prefix, fmt.Sprintf("%016d", from)) }

// readPieces returns a file that grows as far as it is in a store, given what it was before.
func readPieces(ctx context.Context, store blob.Store, prefix string, file []byte) ([]byte, error) {
	pieces := map[int64][]byte{} // by where they begin
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return file, err
		}
		from, err := strconv.ParseInt(path.Base(info.Key), 10, 64)
		if err == nil && info.Size <= largestIndex && from+info.Size > int64(len(file)) {
			pieces[from] = make([]byte, info.Size)
		}
	}
	g, fetching := errgroup.WithContext(ctx)
	g.SetLimit(restoresAtOnce)
	for from, piece := range pieces {
		g.Go(func() error { return readObject(fetching, store, pieceKey(prefix, from), piece) })
	}
	if err := g.Wait(); err != nil {
		return file, err
	}
	for _, from := range slices.Sorted(maps.Keys(pieces)) {
		if from > int64(len(file)) {
			break // those between are gone
		}
		file = append(slices.Clip(file[:from]), pieces[from]...)
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
		return weir.Wrap(weir.Upstream, err, "the storage broke off")
	}
	return nil
}
