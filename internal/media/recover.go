package media

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// note is a line of the journal: the CRC-32C of its JSON in hexadecimal, a space, the JSON. There is one
// for each init segment, written before it is needed, and one for each segment, written before its first
// byte. Of two notes on one segment the later counts: the first attempt to begin it failed. The first
// line may be on compacted segments, and another one says where the recording has ended.
type note struct {
	Compacted *Compacted `json:"forgotten,omitempty"`
	Kept      *int64     `json:"kept,omitempty"` // the recording has the segments before it

	Init  int         `json:"init"`
	Track *cmaf.Track `json:"track,omitempty"` // set = the note is on the init segment

	Segment       int64     `json:"segment"`
	Wall          time.Time `json:"wall,omitzero"`
	Discontinuity bool      `json:"discontinuity,omitempty"`
}

func appendNote(dst []byte, n note) ([]byte, error) {
	data, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	dst = fmt.Appendf(dst, "%08x ", noteSum(data))
	return append(append(dst, data...), '\n'), nil
}

func noteSum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

type journal struct {
	compacted Compacted
	kept      *int64       // the recording has the segments before it; nil = all
	tracks    []cmaf.Track // of the init segments
	segments  map[int64]note
}

// readJournal parses notes up to the first incomplete one.
func readJournal(data []byte) journal {
	j := journal{segments: map[int64]note{}}
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		n, ok := parseNote(line)
		if !whole || !ok {
			return j
		}
		switch {
		case n.Compacted != nil && n.Compacted.possible():
			j.compacted = *n.Compacted
		case n.Kept != nil && *n.Kept >= 0:
			j.kept = n.Kept
		case n.Track != nil && n.Init == len(j.tracks):
			j.tracks = append(j.tracks, *n.Track)
		case n.Track == nil && n.Init >= 0 && n.Init < len(j.tracks):
			j.segments[n.Segment] = n
		default:
			return j
		}
		data = rest
	}
}

// parseNote parses a line of the journal; ok is false if it is damaged.
func parseNote(line []byte) (n note, ok bool) {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	ok = string(sum) == fmt.Sprintf("%08x", noteSum(text)) && json.Unmarshal(text, &n) == nil
	return n, ok
}

// Recover returns a recorder for a folder with a recording, even after a crash. It finishes an open
// segment with its complete parts, and removes bytes after them. An error of kind weir.NotFound means
// that there is no recording.
//
// The index may be cut off anywhere: it is written again from the journal and the segments. The journal
// may be cut off too: as long as there is one init segment, the index has everything but the wall-clock
// time of an open segment.
func Recover(dir string) (*Recorder, error) {
	found, err := findRecording(dir)
	if err != nil {
		return nil, openError(err, "recover a recording")
	}
	if len(found.journal.tracks) == 0 {
		return nil, weir.Errorf(weir.NotFound, "nothing was recorded")
	}
	segments, inits, err := found.collect()
	if err != nil {
		return nil, diskError(err, "recover a recording")
	}
	if int64(len(segments)) < found.compacted.First {
		// Segments before it are lost, and so are those after it.
		found.compacted, found.first = Compacted{}, 0
	}
	next := found.compacted.Number(len(segments))
	first, protected := min(found.first, next), found.compacted.First
	if found.hole.end > 0 {
		first, protected = found.hole.end, found.hole.first
	}
	ended := protected > 0
	if kept := found.journal.kept; kept != nil {
		protected, ended = min(*kept, next), true
	}
	r := &Recorder{
		dir: dir, compacted: found.compacted, first: first, protected: protected, ended: ended, removed: first, next: next, inits: found.firsts(inits),
	}
	if err := r.restore(found, segments, inits); err != nil {
		return nil, diskError(err, "recover a recording")
	}
	newest := segments[max(0, len(segments)-maxRecent):]
	for _, segment := range newest {
		r.recent = append(r.recent, partEnds(segment))
	}
	for k := range r.inits {
		r.unsynced.inits = append(r.unsynced.inits, initName(k))
	}
	r.unsynced.from = r.compacted.Number(len(segments) - len(newest))
	r.unsynced.notes = true
	return r, nil
}

// recording is the content of a folder before recovery.
type recording struct {
	dir      string
	index    []byte
	notes    []byte
	journal  journal
	segments []cmaf.Segment // of the index
	inits    int            // number of init segments
	first    int64          // the first segment with a file, after the compacted ones; those before it were trimmed
	hole     hole           // trimmed segments after it

	compacted Compacted
}

// hole are trimmed segments after protected ones.
type hole struct{ first, end int64 }

// findHole looks for a hole, given the numbers of the segments with files. Files that are not in the
// index don't count.
func (r *recording) findHole(numbers []int64) {
	slices.Sort(numbers)
	for i, n := range numbers {
		if i > 0 && n > numbers[i-1]+1 && n < int64(len(r.segments)) {
			r.hole = hole{numbers[i-1] + 1, n}
			return
		}
	}
}

func findRecording(dir string) (recording, error) {
	r := recording{dir: dir, first: math.MaxInt64}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	if r.index, err = readFile(filepath.Join(dir, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if r.notes, err = readFile(filepath.Join(dir, journalName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	r.readLogs()
	var numbers []int64
	for _, entry := range entries {
		if _, ok := numbered(entry.Name(), "init-", ".mp4"); ok {
			r.inits++
		}
		if n, ok := numbered(entry.Name(), "", ".m4s"); ok && n >= r.compacted.End {
			r.first, numbers = min(r.first, n), append(numbers, n)
		}
	}
	if r.compacted.End == 0 {
		r.findHole(numbers)
	}
	return r, nil
}

// readLogs parses the journal and the index. Damaged lines are ignored: the segments have the same
// information.
func (r *recording) readLogs() {
	r.journal = readJournal(r.notes)
	r.compacted = r.journal.compacted
	line, entries, found := bytes.Cut(r.index, []byte("\n"))
	var head indexHead
	if !found || json.Unmarshal(line, &head) != nil {
		return
	}
	if len(r.journal.tracks) == 0 {
		r.journal.tracks = []cmaf.Track{head.Track}
	}
	// The index is replaced first, but after a power failure either may be the older one.
	if head.Compacted.End > r.compacted.End && head.Compacted.possible() {
		r.compacted = head.Compacted
	}
	all, _, _ := cmaf.ReadIndex(entries)
	for i, segment := range all {
		if !r.compacted.has(head.Compacted.Number(i)) {
			r.segments = append(r.segments, segment)
		}
	}
}

// collect returns the existing and the trimmed segments, and their init segments, and removes the bytes
// after the complete parts of the last one. A trimmed segment that is not in the index any more has no
// parts, but keeps its number.
func (r recording) collect() (segments []cmaf.Segment, inits []int, err error) {
	for i := 0; ; i++ {
		n := r.compacted.Number(i)
		note, noted := r.journal.segments[n]
		if !noted {
			note.Init = len(r.journal.tracks) - 1
		}
		indexed := i < len(r.segments)
		segment := cmaf.Segment{Wall: note.Wall, Discontinuity: note.Discontinuity}
		if indexed {
			segment = r.segments[i]
		}
		trimmed := n >= r.compacted.End && n < r.first && (indexed || noted && r.first < math.MaxInt64)
		if trimmed || n >= r.hole.first && n < r.hole.end {
			segments, inits = append(segments, segment), append(inits, note.Init)
			continue
		}
		info, err := os.Stat(filepath.Join(r.dir, segmentName(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return segments, inits, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if !noted && r.inits > len(r.journal.tracks) {
			// All notes from here on are missing, also those on init segments.
			return segments, inits, nil
		}
		whole := segment.Size() > 0 && info.Size() >= segment.Size()
		if !whole {
			if segment.Parts, err = r.parts(n, r.journal.tracks[note.Init]); err != nil {
				return nil, nil, err
			}
		}
		size := segment.Size()
		if size == 0 {
			return segments, inits, nil
		}
		if size < info.Size() {
			if err := os.Truncate(filepath.Join(r.dir, segmentName(n)), size); err != nil {
				return nil, nil, err
			}
		}
		segments, inits = append(segments, segment), append(inits, note.Init)
		if !whole && (size < info.Size() || indexed) {
			return segments, inits, nil
		}
	}
}

// parts returns the complete parts of a segment. Their times are those of the track.
func (r recording) parts(n int64, track cmaf.Track) ([]cmaf.Part, error) {
	data, err := os.ReadFile(filepath.Join(r.dir, segmentName(n)))
	if err != nil {
		return nil, err
	}
	parts, _, _ := cmaf.ReadParts(track, data) // anything else is ignored
	return parts, nil
}

// firsts returns the init segments; inits has the one of each segment.
func (r recording) firsts(inits []int) []initSegment {
	all := make([]initSegment, len(r.journal.tracks))
	for k, track := range r.journal.tracks {
		first := slices.IndexFunc(inits, func(init int) bool { return init >= k })
		if first < 0 {
			first = len(inits)
		}
		all[k] = initSegment{track, r.compacted.Number(first)}
	}
	return all
}

// restore writes the files of a folder as if each segment had been finished. It can be interrupted and
// repeated.
func (r *Recorder) restore(found recording, segments []cmaf.Segment, inits []int) error {
	index, err := writeIndex(indexHead{Track: r.inits[0].track, Compacted: r.compacted}, segments)
	if err != nil {
		return err
	}
	notes, err := notesOf(r.compacted, r.inits, segments, inits)
	if err == nil && r.ended {
		notes, err = appendNote(notes, note{Kept: &r.protected})
	}
	if err != nil {
		return err
	}
	for k, init := range r.inits {
		if err := correctFile(r.dir, initName(k), cmaf.Init(init.track)); err != nil {
			return err
		}
	}
	if err := replaceFile(r.dir, journalName, found.notes, notes); err != nil {
		return err
	}
	if err := replaceFile(r.dir, indexName, found.index, index); err != nil {
		return err
	}
	r.index, r.journal = int64(len(index)), int64(len(notes))
	return r.removeBeyond()
}

// removeBeyond removes files that are not part of the recording.
func (r *Recorder) removeBeyond() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		n, isSegment := numbered(name, "", ".m4s")
		k, isInit := numbered(name, "init-", ".mp4")
		if isSegment && (n >= r.next || r.compacted.has(n)) || isInit && k >= int64(len(r.inits)) || strings.HasSuffix(name, tempSuffix) {
			if err := remove(r.dir, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// notesOf returns the shortest journal of a recording; needs has the init segment of each segment.
func notesOf(f Compacted, inits []initSegment, segments []cmaf.Segment, needs []int) (data []byte, err error) {
	if data, err = f.note(); err != nil {
		return nil, err
	}
	next := 0
	for k, init := range inits {
		if data, err = appendNote(data, note{Init: k, Track: &init.track}); err != nil {
			return nil, err
		}
		for ; next < len(segments) && needs[next] == k; next++ {
			s := segments[next]
			if data, err = appendNote(data, note{Init: k, Segment: f.Number(next), Wall: s.Wall, Discontinuity: s.Discontinuity}); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func numbered(name, prefix, suffix string) (int64, bool) {
	digits, hasPrefix := strings.CutPrefix(name, prefix)
	digits, hasSuffix := strings.CutSuffix(digits, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, hasPrefix && hasSuffix && err == nil && n >= 0
}

// sameTrack reports whether two tracks have equal fields.
func sameTrack(a, b cmaf.Track) bool {
	entries := bytes.Equal(a.Entry, b.Entry)
	a.Entry, b.Entry = nil, nil
	first, errA := json.Marshal(a)
	second, errB := json.Marshal(b)
	return entries && errA == nil && errB == nil && bytes.Equal(first, second)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxIndex))
}

const tempSuffix = ".tmp"

// correctFile writes a file unless it has that content.
func correctFile(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, data) {
		return nil
	}
	return os.WriteFile(path, data, 0o600)
}

// replaceFile replaces the content of a file atomically, unless it is the same.
func replaceFile(dir, name string, before, data []byte) error {
	if bytes.Equal(before, data) {
		return nil
	}
	if err := writeTemp(dir, name, data); err != nil {
		return err
	}
	return useTemp(dir, name)
}

// writeTemp writes the new content of a file to a temporary one.
func writeTemp(dir, name string, data []byte) error {
	path := filepath.Join(dir, name+tempSuffix)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return syncFile(path)
}

// useTemp replaces a file by the temporary one.
func useTemp(dir, name string) error {
	path := filepath.Join(dir, name)
	return os.Rename(path+tempSuffix, path)
}
