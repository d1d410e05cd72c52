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

// note is a line of the journal: the CRC-32C of its JSON in hexadecimal, a space, the
// JSON. There is one for each init segment, written before it is needed, and one for each
// segment, written before its first byte. Of two notes on one segment the later counts:
// it could not be begun, and was begun again. The first one may be on segments that are
// forgotten.
type note struct {
	Forgotten *Forgotten `json:"forgotten,omitempty"`

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

// journal is what notes say together.
type journal struct {
	forgotten Forgotten
	tracks    []cmaf.Track // of the init segments
	segments  map[int64]note
}

// readJournal reads notes up to the first that is not whole.
func readJournal(data []byte) journal {
	j := journal{segments: map[int64]note{}}
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		n, ok := parseNote(line)
		if !whole || !ok {
			return j
		}
		switch {
		case n.Forgotten != nil && n.Forgotten.possible():
			j.forgotten = *n.Forgotten
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

// parseNote parses a line of the journal, and reports whether it is whole.
func parseNote(line []byte) (n note, ok bool) {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	ok = string(sum) == fmt.Sprintf("%08x", noteSum(text)) && json.Unmarshal(text, &n) == nil
	return n, ok
}

// Recover makes a recorder of a folder that was recorded to, however that ended. A
// segment that was not finished is finished with the whole parts that it has; what lies
// behind is removed. An error of kind weir.NotFound means that there is nothing to
// recover.
//
// The index may be cut off anywhere: it is made again from the journal and the segments.
// The journal may be cut off too: as long as there is one init segment, the index is
// enough but for the wall-clock time of a segment that was not finished.
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
	if int64(len(segments)) < found.forgotten.First {
		// Something before it is lost, and so is what comes after that.
		found.forgotten, found.first = Forgotten{}, 0
	}
	next := found.forgotten.Number(len(segments))
	first, spared := min(found.first, next), found.forgotten.First
	if found.hole.end > 0 {
		first, spared = found.hole.end, found.hole.first
	}
	r := &Recorder{dir: dir, forgotten: found.forgotten, first: first, spared: spared, removed: first, next: next, inits: found.firsts(inits)}
	if err := r.restore(found, segments, inits); err != nil {
		return nil, diskError(err, "recover a recording")
	}
	newest := segments[max(0, len(segments)-partsOf):]
	for _, segment := range newest {
		r.recent = append(r.recent, partEnds(segment))
	}
	for k := range r.inits {
		r.undone.inits = append(r.undone.inits, initName(k))
	}
	r.undone.from = r.forgotten.Number(len(segments) - len(newest))
	r.undone.notes = true
	return r, nil
}

// recording is what is found in a folder before anything is made of it.
type recording struct {
	dir      string
	index    []byte
	notes    []byte
	journal  journal
	segments []cmaf.Segment // of the index
	inits    int            // init segments
	first    int64          // segment whose file is there, after those that are forgotten; those before it were trimmed
	hole     hole           // segments behind it that were trimmed

	forgotten Forgotten
}

// hole are segments that were trimmed behind others that were spared.
type hole struct{ first, end int64 }

// findHole looks for a hole, given the numbers of the segments whose files are there. What
// the index does not know of is no segment.
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
		if n, ok := numbered(entry.Name(), "", ".m4s"); ok && n >= r.forgotten.End {
			r.first, numbers = min(r.first, n), append(numbers, n)
		}
	}
	if r.forgotten.End == 0 {
		r.findHole(numbers)
	}
	return r, nil
}

// readLogs reads the journal and the index. What is damaged counts as lost: the segments
// themselves tell the same.
func (r *recording) readLogs() {
	r.journal = readJournal(r.notes)
	r.forgotten = r.journal.forgotten
	line, entries, found := bytes.Cut(r.index, []byte("\n"))
	var head indexHead
	if !found || json.Unmarshal(line, &head) != nil {
		return
	}
	if len(r.journal.tracks) == 0 {
		r.journal.tracks = []cmaf.Track{head.Track}
	}
	// The index forgets first, but after a power failure either may be the older one.
	if head.Forgotten.End > r.forgotten.End && head.Forgotten.possible() {
		r.forgotten = head.Forgotten
	}
	all, _, _ := cmaf.ReadIndex(entries)
	for i, segment := range all {
		if !r.forgotten.has(head.Forgotten.Number(i)) {
			r.segments = append(r.segments, segment)
		}
	}
}

// collect returns the segments that are there or were trimmed, and the init segments that
// they need, and cuts off what is behind the whole parts of the last one. A segment that
// was trimmed and is not in the index any more has no parts, but keeps its number.
func (r recording) collect() (segments []cmaf.Segment, inits []int, err error) {
	for i := 0; ; i++ {
		n := r.forgotten.Number(i)
		note, noted := r.journal.segments[n]
		if !noted {
			note.Init = len(r.journal.tracks) - 1
		}
		indexed := i < len(r.segments)
		segment := cmaf.Segment{Wall: note.Wall, Discontinuity: note.Discontinuity}
		if indexed {
			segment = r.segments[i]
		}
		trimmed := n >= r.forgotten.End && n < r.first && (indexed || noted && r.first < math.MaxInt64)
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
			// Notes are missing from here on, those of init segments among them.
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

// parts returns the whole parts of a segment. Their times are those of the track.
func (r recording) parts(n int64, track cmaf.Track) ([]cmaf.Part, error) {
	data, err := os.ReadFile(filepath.Join(r.dir, segmentName(n)))
	if err != nil {
		return nil, err
	}
	// What is no part is not counted, whatever it is.
	parts, _, _ := cmaf.ReadParts(track, data)
	return parts, nil
}

// firsts returns the init segments, given which of them each segment needs.
func (r recording) firsts(inits []int) []initSegment {
	all := make([]initSegment, len(r.journal.tracks))
	for k, track := range r.journal.tracks {
		first := slices.IndexFunc(inits, func(init int) bool { return init >= k })
		if first < 0 {
			first = len(inits)
		}
		all[k] = initSegment{track, r.forgotten.Number(first)}
	}
	return all
}

// restore makes the files of a folder such as they would be if each segment had been
// finished. It can be interrupted: done again, it comes to the same.
func (r *Recorder) restore(found recording, segments []cmaf.Segment, inits []int) error {
	index, err := recordedIndex(r.inits[0].track, r.forgotten, segments)
	if err != nil {
		return err
	}
	notes, err := notesOf(r.forgotten, r.inits, segments, inits)
	if err != nil {
		return err
	}
	for k, init := range r.inits {
		if err := correctFile(r.dir, initName(k), cmaf.Init(init.track)); err != nil {
			return err
		}
	}
	if !bytes.Equal(notes, found.notes) {
		if err := replaceFile(r.dir, journalName, notes); err != nil {
			return err
		}
	}
	if !bytes.Equal(index, found.index) {
		if err := replaceFile(r.dir, indexName, index); err != nil {
			return err
		}
	}
	r.index, r.journal = int64(len(index)), int64(len(notes))
	return r.removeBeyond()
}

// removeBeyond removes files that the recording does not know of.
func (r *Recorder) removeBeyond() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		n, isSegment := numbered(name, "", ".m4s")
		k, isInit := numbered(name, "init-", ".mp4")
		if isSegment && (n >= r.next || r.forgotten.has(n)) || isInit && k >= int64(len(r.inits)) || strings.HasSuffix(name, tempSuffix) {
			if err := remove(r.dir, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// notesOf returns the journal of a recording without anything in it that is not needed.
func notesOf(f Forgotten, inits []initSegment, segments []cmaf.Segment, needs []int) (data []byte, err error) {
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

// remove removes a file, if there is one.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// numbered returns the number in the name of a file.
func numbered(name, prefix, suffix string) (int64, bool) {
	digits, hasPrefix := strings.CutPrefix(name, prefix)
	digits, hasSuffix := strings.CutSuffix(digits, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, hasPrefix && hasSuffix && err == nil && n >= 0
}

// sameTrack reports whether two tracks are the same in all that they say.
func sameTrack(a, b cmaf.Track) bool {
	entries := bytes.Equal(a.Entry, b.Entry)
	a.Entry, b.Entry = nil, nil
	first, errA := json.Marshal(a)
	second, errB := json.Marshal(b)
	return entries && errA == nil && errB == nil && bytes.Equal(first, second)
}

// readFile reads an index or a journal.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, largestIndex))
}

const tempSuffix = ".tmp"

// correctFile writes a file if it is not what it should be.
func correctFile(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, data) {
		return nil
	}
	return os.WriteFile(path, data, 0o600)
}

// replaceFile makes a file that is the old one or the new one at any time, whatever
// fails.
func replaceFile(dir, name string, data []byte) error {
	if err := writeTemp(dir, name, data); err != nil {
		return err
	}
	return useTemp(dir, name)
}

// writeTemp writes what is to take the place of a file.
func writeTemp(dir, name string, data []byte) error {
	path := filepath.Join(dir, name+tempSuffix)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return syncFile(path)
}

// useTemp puts it there.
func useTemp(dir, name string) error {
	path := filepath.Join(dir, name)
	return os.Rename(path+tempSuffix, path)
}
