package media

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"weir/internal/cmaf"
)

// compactAfter is how many trimmed segments an index has before it is written again without them.
const compactAfter = 256

// Compacted describes trimmed segments that are no longer in the index and the journal: those from First
// up to but without End. A stream that is not recorded may be live for months, and its files must not
// grow all the time. The zero value has no segments.
type Compacted struct {
	First int64 `json:"first"` // segments before it are protected
	End   int64 `json:"end"`

	// The sums of the segments, and the longest duration.
	Parts           uint32        `json:"parts"`
	Discontinuities int64         `json:"discontinuities"`
	Total           time.Duration `json:"total"`
	Max             time.Duration `json:"longest"`
}

// Number returns the segment of entry i of the index.
func (f Compacted) Number(i int) int64 {
	if n := int64(i); n < f.First {
		return n
	}
	return int64(i) + f.End - f.First
}

// possible reports whether the values are valid: a file may be damaged.
func (f Compacted) possible() bool { return f.First >= 0 && f.First < f.End }

func (f Compacted) has(n int64) bool { return n >= f.First && n < f.End }

// note returns their line in the journal, nothing if there are none.
func (f Compacted) note() ([]byte, error) {
	if f.End == 0 {
		return nil, nil
	}
	return appendNote(nil, note{Compacted: &f})
}

func (f *Compacted) add(s cmaf.Segment, track cmaf.Track) {
	length := track.Time(s.Duration())
	f.Parts += uint32(len(s.Parts))
	f.Total, f.Max = f.Total+length, max(f.Max, length)
	if s.Discontinuity {
		f.Discontinuities++
	}
}

// compact removes trimmed segments from the index and the journal, if there are at least that many. The
// caller holds syncing.
func (r *Recorder) compact(atLeast int64) error {
	r.files.Lock()
	known := r.compacted.End
	r.files.Unlock()
	r.mu.Lock()
	first, protected := r.first, r.protected
	r.mu.Unlock()
	if first-max(known, protected) < atLeast {
		return nil
	}
	return r.shorten(first, protected, nil)
}

// Skip continues with segment number to, and removes those before it. Players count that many
// discontinuities before it. No segment may be open, and none may be protected.
func (r *Recorder) Skip(to, discontinuities int64) error {
	if err := r.writable(false); err != nil {
		return err
	}
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.trimming.Lock()
	defer r.trimming.Unlock()
	r.mu.Lock()
	next, protected := r.next, r.protected
	r.mu.Unlock()
	if to < next || protected > 0 {
		return fmt.Errorf("segments can't be skipped up to %d: the last one is %d, and %d are protected", to, next-1, protected)
	}
	if err := r.shorten(to, 0, &discontinuities); err != nil {
		return diskError(err, "skip segments of a recording")
	}
	r.mu.Lock()
	r.first, r.next, r.recent = to, to, nil
	r.mu.Unlock()
	for ; r.removed < next; r.removed++ {
		if err := remove(r.dir, segmentName(r.removed)); err != nil {
			return diskError(err, "remove a segment of a recording")
		}
	}
	r.removed = to
	return nil
}

// shorten writes the index and the journal again, without the segments from protected up to end; if
// discontinuities is not nil, it replaces their number. It waits for the disk, but does not block
// writers: if they write meanwhile, the files stay as they are until the next call. The caller holds
// syncing.
func (r *Recorder) shorten(end, protected int64, discontinuities *int64) error {
	r.files.Lock()
	indexed, noted := r.index, r.journal
	r.files.Unlock()
	index, compacted, err := r.Index()
	if err != nil {
		return err
	}
	var left []cmaf.Segment
	sum := compacted
	for i, s := range index.Segments {
		n := compacted.Number(i)
		if n < protected || n >= end {
			left = append(left, s)
			continue
		}
		track, err := r.Track(r.InitOf(n))
		if err != nil {
			return err
		}
		sum.add(s, track)
	}
	sum.First, sum.End = protected, end
	if discontinuities != nil {
		sum.Discontinuities = *discontinuities
	}
	entries, err := writeIndex(indexHead{Track: index.Track, Compacted: sum}, left)
	if err != nil {
		return err
	}
	notes, err := r.notesWithout(sum, noted)
	if err != nil {
		return err
	}
	return r.replace(indexed, noted, sum, entries, notes)
}

// notesWithout returns the first size bytes of the journal without compacted segments.
func (r *Recorder) notesWithout(f Compacted, size int64) ([]byte, error) {
	all, err := readFile(filepath.Join(r.dir, journalName))
	if err != nil {
		return nil, err
	}
	notes, err := f.note()
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(all[:min(size, int64(len(all)))]) {
		n, ok := parseNote(bytes.TrimSuffix(line, []byte("\n")))
		if !ok {
			return nil, fmt.Errorf("the journal of a recording is damaged")
		}
		if n.Compacted == nil && (n.Track != nil || n.Kept != nil || !f.has(n.Segment)) {
			notes = append(notes, line...)
		}
	}
	return notes, nil
}

// replace replaces the index and the journal, unless they have grown.
func (r *Recorder) replace(indexed, noted int64, f Compacted, index, notes []byte) error {
	if err := errors.Join(writeTemp(r.dir, indexName, index), writeTemp(r.dir, journalName, notes)); err != nil {
		return errors.Join(err, remove(r.dir, indexName+tempSuffix), remove(r.dir, journalName+tempSuffix))
	}
	r.files.Lock()
	defer r.files.Unlock()
	if r.index != indexed || r.journal != noted {
		return errors.Join(remove(r.dir, indexName+tempSuffix), remove(r.dir, journalName+tempSuffix))
	}
	// The index first: its segments need their notes.
	if err := useTemp(r.dir, indexName); err != nil {
		return err
	}
	r.index, r.compacted = int64(len(index)), f
	if err := useTemp(r.dir, journalName); err != nil {
		return err
	}
	r.journal = int64(len(notes))
	return nil
}
