package media

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// Recorder writes the segments of one track into a local folder while the track grows. Every part
// is written at once, so that a killed process loses only the current part; [Recorder.Sync] makes
// finished segments survive a power failure too.
//
//	<dir>/index         the line of JSON, the track of init 0, then an entry for each finished segment
//	<dir>/<n>.m4s       the segments from 0; the last one may be open
//	<dir>/init-<k>.mp4  the init segments from 0; a change of the coding makes the next one
//	<dir>/journal       which init segment each segment needs, and its time and discontinuity (see note)
//
// The index and the journal do not have segments that were trimmed long ago (see Compacted).
//
// [KeepRecording] makes a sealed track in a blob.Store from it. [Recorder.Reading] is the track so far.
//
// One goroutine writes (Begin, Append, Finish, Change, Close). Other goroutines may read, Sync and
// Trim at any time. A recorder keeps no media in memory, and not more than one file open.
type Recorder struct {
	dir string

	// Of the goroutine that writes.
	file   *os.File // the open segment; nil = none is
	torn   bool     // its file may have bytes after the last complete part
	closed bool

	files     sync.Mutex // held while the index or the journal is written
	index     int64      // bytes
	journal   int64      // bytes
	compacted Compacted

	syncing sync.Mutex // held by the Sync that runs

	trimming sync.Mutex // held by the Trim that runs
	removed  int64      // the files of segments before it are removed

	mu        sync.Mutex
	inits     []initSegment
	first     int64        // the first segment that is not trimmed
	protected int64        // segments before it are never trimmed
	ended     bool         // the recording has ended: the protected segments are all of it
	next      int64        // number of the open segment, or of the next one
	open      bool         // segment next is open
	ends      []int64      // offsets of the ends of the open segment's parts
	begun     cmaf.Segment // the open segment so far
	recent    [][]int64    // the same of the newest finished segments
	unsynced  unsynced     // work for Sync

	reading map[int64]int // number of readers of a segment
	spare   bool          // there is a file for the next segment (see recycle)
}

type initSegment struct {
	track cmaf.Track
	first int64
}

// unsynced lists what a power failure could lose.
type unsynced struct {
	folders []string // new ones, and their parents
	inits   []string // names of new init segments
	notes   bool     // the journal has new notes on init segments
	from    int64    // the first new finished segment
}

// maxRecent is the number of finished segments whose parts can be read one by one. That is a minute
// of segments of 2 seconds, much more than playlists need.
const maxRecent = 32

const (
	indexName   = "index"
	journalName = "journal"
	spareName   = "spare" + tempSuffix
)

func segmentName(n int64) string { return strconv.FormatInt(n, 10) + ".m4s" }

func initName(k int) string { return "init-" + strconv.Itoa(k) + ".mp4" }

// Record returns a recorder for a folder. It recovers an existing recording like [Recover], and
// calls Change if the coding of the track is a different one.
func Record(dir string, track cmaf.Track) (*Recorder, error) {
	r, err := Recover(dir)
	if err != nil && weir.KindOf(err) == weir.NotFound {
		r, err = create(dir, track)
	}
	if err != nil {
		return nil, err
	}
	return r, r.Change(track)
}

// create returns a recorder for a folder without a recording.
func create(dir string, track cmaf.Track) (*Recorder, error) {
	folders, err := makeFolder(dir)
	if err != nil {
		return nil, diskError(err, "create the folder of a recording")
	}
	r := &Recorder{dir: dir, unsynced: unsynced{folders: folders}}
	if err := errors.Join(remove(dir, indexName), remove(dir, journalName), r.removeBeyond()); err != nil {
		return nil, diskError(err, "create the folder of a recording")
	}
	head, err := writeIndex(indexHead{Track: track}, nil)
	if err != nil {
		return nil, err
	}
	// The journal comes before the index and the segments, which need its notes.
	if err := r.Change(track); err != nil {
		return nil, err
	}
	if err := r.write(indexName, 0, head); err != nil {
		return nil, err
	}
	r.index = int64(len(head))
	return r, nil
}

// makeFolder makes a folder and those above it, and returns the parents of new folders.
func makeFolder(dir string) (changed []string, err error) {
	for at := dir; ; {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(at) == at {
			return nil, err
		}
		at = filepath.Dir(at)
		changed = append(changed, at)
	}
	return changed, os.MkdirAll(dir, 0o700)
}

// Change writes an init segment for all segments from the next one on. If the track is the same as
// before, it does nothing. No segment may be open.
func (r *Recorder) Change(track cmaf.Track) error {
	if err := r.writable(false); err != nil {
		return err
	}
	k := len(r.inits)
	if k > 0 && sameTrack(r.inits[k-1].track, track) {
		return nil
	}
	if k > 0 {
		// If an init segment has no note, recovery concludes that all notes from there on are
		// missing. So earlier notes must be synced.
		if err := syncFile(filepath.Join(r.dir, journalName)); err != nil {
			return diskError(err, "sync the journal of a recording")
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, initName(k)), cmaf.Init(track), 0o600); err != nil {
		return diskError(err, "write an init segment")
	}
	if err := r.note(note{Init: k, Track: &track}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inits = append(r.inits, initSegment{track, r.next})
	r.unsynced.inits = append(r.unsynced.inits, initName(k))
	r.unsynced.notes = true
	return nil
}

// Begin opens the next segment. The arguments are written to the journal at once, in case that weir
// is killed before it finishes the segment.
func (r *Recorder) Begin(wall time.Time, discontinuity bool) error {
	if err := r.writable(false); err != nil {
		return err
	}
	if err := r.note(note{Segment: r.next, Init: len(r.inits) - 1, Wall: wall.UTC(), Discontinuity: discontinuity}); err != nil {
		return err
	}
	f, err := r.newFile()
	if err != nil {
		return diskError(err, "open a segment of a recording")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, r.torn, r.open, r.ends = f, false, true, nil
	r.begun = cmaf.Segment{Wall: wall, Discontinuity: discontinuity}
	return nil
}

// newFile makes the file of the next segment.
func (r *Recorder) newFile() (*os.File, error) {
	r.mu.Lock()
	spare := r.spare
	r.mu.Unlock()
	if !spare {
		return os.OpenFile(r.path(r.next), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spare = false // not earlier: a Trim would replace the file
	}()
	f, err := os.OpenFile(filepath.Join(r.dir, spareName), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), r.path(r.next)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// recycle keeps the file of a trimmed segment for the next one, without its content, if it is not
// being read and there is no other yet. A file system may need long to make a new file where many
// have been removed: ext4 skips each one that was removed in the last minutes.
func (r *Recorder) recycle(n int64) bool {
	r.mu.Lock()
	wanted := !r.spare && r.reading[n] == 0 // a trimmed segment gets no new readers
	r.mu.Unlock()
	spare := filepath.Join(r.dir, spareName)
	if !wanted || os.Rename(r.path(n), spare) != nil {
		return false
	}
	_ = os.Truncate(spare, 0) // otherwise newFile does it
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = true
	return true
}

// Abandon gives up the open segment if it has no part, because the first one could not be written.
// The next segment has its number.
func (r *Recorder) Abandon() error {
	if r.file == nil || len(r.ends) > 0 {
		return nil
	}
	err := r.file.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, r.open = nil, false
	return err
}

// Append writes the next part of the open segment, which is in buffers. After an error the segment
// is unchanged, and the same part can be appended again.
func (r *Recorder) Append(part cmaf.Part, data ...[]byte) error {
	if err := r.writable(true); err != nil {
		return err
	}
	var length int64
	for _, buffer := range data {
		length += int64(len(buffer))
	}
	if size := part.Size(); size != length || size == 0 {
		return fmt.Errorf("a part of segment %d has %d bytes, its description says %d", r.next, length, size)
	}
	if err := r.truncateTorn(); err != nil {
		return err
	}
	size := lastOf(r.ends)
	if err := writeAt(r.file, data, size); err != nil {
		r.torn = true
		return diskError(err, "write a part of a recording")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, size+length)
	r.begun = r.begun.EndAt(part.Start)
	r.begun.Parts = append(r.begun.Parts, part)
	return nil
}

// Finish ends the open segment, which must have the appended parts.
func (r *Recorder) Finish(segment cmaf.Segment) error {
	if err := r.writable(true); err != nil {
		return err
	}
	if len(r.ends) == 0 || !slices.Equal(partEnds(segment), r.ends) {
		return fmt.Errorf("segment %d can't end with %d parts of %d bytes: %d parts of %d bytes were written", r.next, len(segment.Parts), segment.Size(), len(r.ends), lastOf(r.ends))
	}
	if err := r.truncateTorn(); err != nil {
		return err
	}
	entry := cmaf.AppendEntry(nil, segment)
	r.files.Lock()
	defer r.files.Unlock()
	if err := r.write(indexName, r.index, entry); err != nil {
		return err
	}
	err := r.file.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index += int64(len(entry))
	r.recent = append(r.recent, r.ends)
	if len(r.recent) > maxRecent {
		r.recent = slices.Delete(r.recent, 0, 1)
	}
	r.next++
	r.file, r.open, r.ends, r.begun = nil, false, nil, cmaf.Segment{}
	if err != nil {
		return diskError(err, "close a segment of a recording")
	}
	return nil
}

// writable returns an error if a segment is open and must not be, or the other way round.
func (r *Recorder) writable(open bool) error {
	switch {
	case r.closed:
		return errors.New("the recording is closed")
	case open && r.file == nil:
		return fmt.Errorf("segment %d of the recording is not open", r.next)
	case !open && r.file != nil:
		return fmt.Errorf("segment %d of the recording is still open", r.next)
	}
	return nil
}

// truncateTorn removes the bytes of a failed write.
func (r *Recorder) truncateTorn() error {
	if !r.torn {
		return nil
	}
	if err := r.file.Truncate(lastOf(r.ends)); err != nil {
		return diskError(err, "truncate a segment of a recording")
	}
	r.torn = false
	return nil
}

func (r *Recorder) note(n note) error {
	line, err := appendNote(nil, n)
	if err != nil {
		return err
	}
	r.files.Lock()
	defer r.files.Unlock()
	if err := r.write(journalName, r.journal, line); err != nil {
		return err
	}
	r.journal += int64(len(line))
	return nil
}

// write writes data to the end of a file, which is at size: bytes after it are those of a failed
// write.
func (r *Recorder) write(name string, size int64, data []byte) error {
	f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return diskError(err, "open the "+name+" of a recording")
	}
	_, err = f.WriteAt(data, size)
	if err != nil {
		err = errors.Join(err, f.Truncate(size))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return diskError(err, "write the "+name+" of a recording")
	}
	return nil
}

// Sync makes finished segments survive a power failure, and removes old trimmed segments from the
// index. It waits some milliseconds for the disk, but does not block others. After an error, the
// next call does everything again.
func (r *Recorder) Sync() error {
	err := r.Tidy()
	r.syncing.Lock()
	defer r.syncing.Unlock()
	return errors.Join(err, r.syncPending())
}

// Tidy only removes old trimmed segments from the index. New segments may not survive a power
// failure until the next Sync. On a full disk the index stays as it is.
func (r *Recorder) Tidy() error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	if err := r.compact(compactAfter); err != nil {
		if err := diskError(err, "compact the index of a recording"); weir.KindOf(err) != weir.Full {
			return err
		}
	}
	return nil
}

func (r *Recorder) syncPending() error {
	r.mu.Lock()
	todo, next := r.unsynced, r.next
	r.unsynced = unsynced{from: next}
	r.mu.Unlock()
	if len(todo.inits) == 0 && todo.from == next {
		return nil
	}
	if err := r.sync(todo, next); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unsynced.folders = append(todo.folders, r.unsynced.folders...)
		r.unsynced.inits = append(todo.inits, r.unsynced.inits...)
		r.unsynced.notes = r.unsynced.notes || todo.notes
		r.unsynced.from = todo.from
		return diskError(err, "sync a recording")
	}
	return nil
}

// sync syncs todo and the segments before next. The index comes last, because it refers to the
// rest. The notes of segments need no sync: the index has the same information.
func (r *Recorder) sync(todo unsynced, next int64) error {
	for n := todo.from; n < next; n++ {
		if r.Trimmed(n) {
			continue
		}
		if err := syncFile(r.path(n)); err != nil && !(errors.Is(err, fs.ErrNotExist) && r.Trimmed(n)) {
			return err
		}
	}
	var paths []string
	for _, name := range todo.inits {
		paths = append(paths, filepath.Join(r.dir, name))
	}
	if todo.notes {
		paths = append(paths, filepath.Join(r.dir, journalName))
	}
	paths = append(append(paths, r.dir), todo.folders...)
	for _, path := range append(paths, filepath.Join(r.dir, indexName)) {
		if err := syncFile(path); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Trim removes the segments before a number, except for the newest finished one, which shows the
// length of the recording. The index keeps their entries for a while.
func (r *Recorder) Trim(before int64) error {
	r.trimming.Lock()
	defer r.trimming.Unlock()
	r.mu.Lock()
	r.first = max(r.first, min(before, r.next-1))
	first := r.first
	r.removed = max(r.removed, r.protected)
	r.mu.Unlock()
	// Oldest first: for recovery, the first file is the first segment.
	for ; r.removed < first; r.removed++ {
		if r.recycle(r.removed) {
			continue
		}
		if err := remove(r.dir, segmentName(r.removed)); err != nil {
			return diskError(err, "remove a segment of a recording")
		}
	}
	return nil
}

// Protect ends the recording: it has all finished segments and the open one, which are never trimmed.
// What is written after them is for players only. If it has ended already, or a segment is trimmed,
// it does nothing. If the journal can't be written, the recording ends until the next recovery only.
func (r *Recorder) Protect() error {
	r.mu.Lock()
	if r.first > 0 || r.ended {
		r.mu.Unlock()
		return nil
	}
	r.protected, r.ended = r.next, true
	if r.open {
		r.protected++
	}
	r.unsynced.notes = true
	kept := r.protected
	r.mu.Unlock()
	return r.note(note{Kept: &kept})
}

// Ended reports whether the recording has ended.
func (r *Recorder) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// Protected returns the number of the first segment that is not protected; 0 = none is.
func (r *Recorder) Protected() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protected
}

// HasTrimmed reports whether segments were trimmed.
func (r *Recorder) HasTrimmed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first > 0
}

// Trimmed reports whether a segment was trimmed.
func (r *Recorder) Trimmed(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trimmed(n)
}

func (r *Recorder) trimmed(n int64) bool { return n < r.first && n >= r.protected }

// Close ends writing and syncs. An open segment stays open; recovery will finish it. Reading still
// works.
func (r *Recorder) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.Sync()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
		r.file = nil
	}
	return err
}

// Next returns the number of the open segment, or of the next one.
func (r *Recorder) Next() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Inits returns the number of init segments. New segments need the last one.
func (r *Recorder) Inits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.inits)
}

// Track returns the track as init segment k describes it.
func (r *Recorder) Track(k int) (cmaf.Track, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k < 0 || k >= len(r.inits) {
		return cmaf.Track{}, weir.Errorf(weir.NotFound, "there is no init segment %d", k)
	}
	return r.inits[k].track, nil
}

// Init returns init segment k.
func (r *Recorder) Init(k int) ([]byte, error) {
	track, err := r.Track(k)
	if err != nil {
		return nil, err
	}
	return cmaf.Init(track), nil
}

// InitOf returns the number of the init segment that segment n needs.
func (r *Recorder) InitOf(n int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := len(r.inits) - 1
	for k > 0 && r.inits[k].first > n {
		k--
	}
	return k
}

// Index reads the index: all finished segments without the compacted ones. Its track is that of
// init 0; times of segments with another init are in the ticks of that one.
func (r *Recorder) Index() (cmaf.TrackIndex, Compacted, error) {
	// The lock keeps the index from being replaced: the size must be that of this file.
	r.files.Lock()
	size, compacted := r.index, r.compacted
	f, err := os.Open(filepath.Join(r.dir, indexName))
	r.files.Unlock()
	if err != nil {
		return cmaf.TrackIndex{}, compacted, diskError(err, "read the index of a recording")
	}
	data, err := io.ReadAll(io.LimitReader(f, min(size, maxIndex)))
	if err == nil && int64(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return cmaf.TrackIndex{}, compacted, diskError(err, "read the index of a recording")
	}
	index, err := parseIndex(data)
	if err != nil {
		return cmaf.TrackIndex{}, compacted, fmt.Errorf("index of a recording: %w", err)
	}
	index.Track, err = r.Track(0)
	return index, compacted, err
}

// Open opens segment n; of the open segment it returns the current parts. The kernel can send the
// result to a connection without copying it through weir.
func (r *Recorder) Open(n int64) (io.ReadSeekCloser, int64, error) {
	r.mu.Lock()
	open, size := n == r.next && r.open, lastOf(r.ends)
	there := n >= 0 && n < r.next && !r.trimmed(n) || open
	if there {
		r.hold(n)
	}
	r.mu.Unlock()
	if !there {
		return nil, 0, weir.Errorf(weir.NotFound, "there is no segment %d", n)
	}
	s, err := r.section(n)
	if err != nil {
		return nil, 0, openError(err, "open a segment of a recording")
	}
	s.size = size
	if !open {
		info, err := s.file.Stat()
		if err != nil {
			return nil, 0, diskError(errors.Join(err, s.Close()), "open a segment of a recording")
		}
		s.size = info.Size()
	}
	return s, s.size, nil
}

// Part opens part p of segment n like Open. It works for the open segment and the newest finished
// ones.
func (r *Recorder) Part(n int64, p int) (io.ReadSeekCloser, int64, error) {
	start, end, ok := r.partBounds(n, p)
	if !ok {
		return nil, 0, weir.Errorf(weir.NotFound, "there is no part %d of segment %d", p, n)
	}
	s, err := r.section(n)
	if err != nil {
		return nil, 0, openError(err, "open a part of a recording")
	}
	if _, err := s.file.Seek(start, io.SeekStart); err != nil {
		return nil, 0, diskError(errors.Join(err, s.Close()), "open a part of a recording")
	}
	s.start, s.size = start, end-start
	return s, s.size, nil
}

// hold counts a reader of a segment, until release. The caller holds mu.
func (r *Recorder) hold(n int64) {
	if r.reading == nil {
		r.reading = map[int64]int{}
	}
	r.reading[n]++
}

func (r *Recorder) release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading[n]--; r.reading[n] == 0 {
		delete(r.reading, n)
	}
}

// section opens the file of a held segment.
func (r *Recorder) section(n int64) (*section, error) {
	f, err := os.Open(r.path(n))
	if err != nil {
		r.release(n)
		return nil, err
	}
	return &section{file: f, closed: func() { r.release(n) }}, nil
}

// partBounds returns the offsets of a part, and holds its segment.
func (r *Recorder) partBounds(n int64, p int) (start, end int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ends []int64
	switch at := n - r.next + int64(len(r.recent)); {
	case n == r.next:
		ends = r.ends
	case at >= 0 && at < int64(len(r.recent)):
		ends = r.recent[at]
	}
	if n < r.first || p < 0 || p >= len(ends) {
		return 0, 0, false
	}
	if p > 0 {
		start = ends[p-1]
	}
	r.hold(n)
	return start, ends[p], true
}

func (r *Recorder) path(n int64) string { return filepath.Join(r.dir, segmentName(n)) }

func partEnds(s cmaf.Segment) []int64 {
	ends := make([]int64, len(s.Parts))
	var at int64
	for i, part := range s.Parts {
		at += part.Size()
		ends[i] = at
	}
	return ends
}

func lastOf(ends []int64) int64 {
	if len(ends) == 0 {
		return 0
	}
	return ends[len(ends)-1]
}

// diskError returns an error of the file system with its kind.
func diskError(err error, doing string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return weir.Wrap(weir.Full, err, "the disk of this server is full")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// openError is diskError for opening, where a missing file is NotFound.
func openError(err error, doing string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return weir.Wrap(weir.NotFound, err, "not found")
	}
	return diskError(err, doing)
}
