package media

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"weir/internal/cmaf"
)

// forgetAfter is how many trimmed segments an index has before it is written again without them.
const forgetAfter = 256

// Forgotten describes trimmed segments that are no longer in the index and the journal: those from First
// up to but without End. A stream that is not recorded may be live for months, and its files must not
// grow all the time. The zero value has no segments.
type Forgotten struct {
	First int64 `json:"first"` // segments before it are spared
	End   int64 `json:"end"`

	// The sums of the segments, and the longest duration.
	Parts           uint32        `json:"parts"`
	Discontinuities int64         `json:"discontinuities"`
	Total           time.Duration `json:"total"`
	Max             time.Duration `json:"longest"`
}

// Number returns the segment of entry i of the index.
func (f Forgotten) Number(i int) int64 {
	if n := int64(i); n < f.First {
		return n
	}
	return int64(i) + f.End - f.First
}

// possible reports whether the values are valid: a file may be damaged.
func (f Forgotten) possible() bool { return f.First >= 0 && f.First < f.End }

func (f Forgotten) has(n int64) bool { return n >= f.First && n < f.End }

// note returns their line in the journal, nothing if there are none.
func (f Forgotten) note() ([]byte, error) {
	if f.End == 0 {
		return nil, nil
	}
	return appendNote(nil, note{Forgotten: &f})
}

func (f *Forgotten) add(s cmaf.Segment, track cmaf.Track) {
	length := track.Time(s.Duration())
	f.Parts += uint32(len(s.Parts))
	f.Total, f.Max = f.Total+length, max(f.Max, length)
	if s.Discontinuity {
		f.Discontinuities++
	}
}

// forget removes trimmed segments from the index and the journal, if there are at least that many. The
// caller holds syncing.
func (r *Recorder) forget(atLeast int64) error {
	r.files.Lock()
	known := r.forgotten.End
	r.files.Unlock()
	r.mu.Lock()
	first, spared := r.first, r.spared
	r.mu.Unlock()
	if first-max(known, spared) < atLeast {
		return nil
	}
	return r.shorten(first, spared, nil)
}

// Skip continues with segment number to, and removes those before it. Players count that many
// discontinuities before it. No segment may be open, and none may be spared.
func (r *Recorder) Skip(to, discontinuities int64) error {
	if err := r.writable(false); err != nil {
		return err
	}
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.trimming.Lock()
	defer r.trimming.Unlock()
	r.mu.Lock()
	next, spared := r.next, r.spared
	r.mu.Unlock()
	if to < next || spared > 0 {
		return fmt.Errorf("segment %d can't be the next one after %d, with %d spared", to, next-1, spared)
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

// shorten writes the index and the journal again, without the segments from spared up to end; if
// discontinuities is not nil, it replaces their number. It waits for the disk, but does not block
// writers: if they write meanwhile, the files stay as they are until the next call. The caller holds
// syncing.
func (r *Recorder) shorten(end, spared int64, discontinuities *int64) error {
	r.files.Lock()
	indexed, noted := r.index, r.journal
	r.files.Unlock()
	index, forgotten, err := r.Index()
	if err != nil {
		return err
	}
	var left []cmaf.Segment
	sum := forgotten
	for i, s := range index.Segments {
		n := forgotten.Number(i)
		if n < spared || n >= end {
			left = append(left, s)
			continue
		}
		track, err := r.Track(r.InitOf(n))
		if err != nil {
			return err
		}
		sum.add(s, track)
	}
	sum.First, sum.End = spared, end
	if discontinuities != nil {
		sum.Discontinuities = *discontinuities
	}
	entries, err := writeIndex(indexHead{Track: index.Track, Forgotten: sum}, left)
	if err != nil {
		return err
	}
	notes, err := r.notesWithout(sum, noted)
	if err != nil {
		return err
	}
	return r.replace(indexed, noted, sum, entries, notes)
}

// notesWithout returns the first size bytes of the journal without forgotten segments.
func (r *Recorder) notesWithout(f Forgotten, size int64) ([]byte, error) {
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
		if n.Forgotten == nil && (n.Track != nil || !f.has(n.Segment)) {
			notes = append(notes, line...)
		}
	}
	return notes, nil
}

// replace replaces the index and the journal, unless they have grown.
func (r *Recorder) replace(indexed, noted int64, f Forgotten, index, notes []byte) error {
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
	r.index, r.forgotten = int64(len(index)), f
	if err := useTemp(r.dir, journalName); err != nil {
		return err
	}
	r.journal = int64(len(notes))
	return nil
}
