package media

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// snapshot holds the files of a folder.
type snapshot map[string][]byte

func take(t testing.TB, dir string) snapshot {
	t.Helper()
	files := snapshot{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name()))
		must(t, err)
	}
	return files
}

// put makes a folder of exactly these files.
func (s snapshot) put(t testing.TB, dir string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o700))
	for name, data := range s {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// with returns the files with another one in place of one.
func (s snapshot) with(name string, data []byte) snapshot {
	changed := snapshot{name: data}
	for other, data := range s {
		if other != name {
			changed[other] = data
		}
	}
	return changed
}

// killed returns a recording of two finished segments and an open one, with or without a change of
// the coding before the last finished one.
func killed(t testing.TB, dir string, changes bool) (recorded, snapshot) {
	t.Helper()
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	want.write(t, r, 3, true)
	if changes {
		want.change(t, r, recordedTrack(1))
	}
	want.write(t, r, 2, true)
	want.write(t, r, 2, false)
	kill(r)
	return want, take(t, dir)
}

// afterCut returns the expected content of a recording after one of its files was cut.
func afterCut(want recorded, files snapshot, name string, length int) recorded {
	segments := slices.Clone(want.segments)
	if length == len(files[name]) {
		return want
	}
	switch n, isSegment := numbered(name, "", ".m4s"); {
	case isSegment:
		whole := 0
		for _, end := range partEnds(segments[n].Segment) {
			if end <= int64(length) {
				whole++
			}
		}
		segments = segments[:n+1]
		segments[n] = segments[n].first(whole)
		if whole == 0 {
			segments = segments[:n]
		}
	case name == journalName:
		notes := bytes.Count(files[journalName][:length], []byte("\n"))
		if len(want.tracks) == 2 && notes < 3 { // that of init 1 is the third
			segments = segments[:max(0, notes-1)]
			return recorded{tracks: want.tracks[:1], segments: segments}
		}
		if notes < len(want.tracks)+len(segments) {
			last := &segments[len(segments)-1]
			last.Segment = cmaf.Segment{Parts: last.Parts}
		}
	}
	return recorded{tracks: want.tracks, segments: segments}
}

// Wherever a file of a recording is cut off: recovery keeps all complete parts, and recording
// continues.
func TestRecoverCutFiles(t *testing.T) {
	for _, changes := range []bool{false, true} {
		t.Run(fmt.Sprintf("changes=%v", changes), func(t *testing.T) {
			dir := filepath.Join(scratch(t), "track")
			recording, files := killed(t, dir, changes)
			for name, data := range files {
				if !changes && name != indexName && name != journalName {
					continue // there is no difference
				}
				step := 1
				if strings.HasPrefix(name, "init-") {
					step = 7 // they are compared as a whole, so all offsets are alike
				}
				for length := 0; length <= len(data); length += step {
					files.with(name, data[:length]).put(t, dir)
					r, err := Recover(dir)
					if err != nil {
						t.Fatalf("%s cut at %d of %d: %v", name, length, len(data), err)
					}
					want := afterCut(recording, files, name, length)
					want.check(t, r, fmt.Sprintf("%s cut at %d of %d", name, length, len(data)))
					if length%8 == 0 {
						want.checkContinues(t, dir)
					}
				}
				files.with(name, append(bytes.Clone(data), make([]byte, 100)...)).put(t, dir)
				r, err := Recover(dir)
				must(t, err)
				recording.check(t, r, name+" with zeros behind it")
			}
		})
	}
}

// checkContinues checks that a recovered folder needs no more recovery and can be recorded to.
func (want recorded) checkContinues(t *testing.T, dir string) {
	t.Helper()
	files := take(t, dir)
	if _, err := parseIndex(files[indexName]); err != nil {
		t.Fatalf("index: %v", err)
	}
	r, err := Recover(dir)
	must(t, err)
	if after := take(t, dir); !maps.EqualFunc(files, after, bytes.Equal) {
		t.Fatalf("a second recovery finds something to do (-before +after):\n%s", cmp.Diff(files, after))
	}
	want.segments = slices.Clone(want.segments)
	want.write(t, r, 1, true)
	want.write(t, r, 1, false)
	kill(r)
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovery of what went on after a recovery")
}

// Any single wrong byte in the index is noticed, and its entry is made again from the segment.
func TestRecoverDamagedIndex(t *testing.T) {
	dir := filepath.Join(scratch(t), "track")
	want, files := killed(t, dir, true)
	head := bytes.IndexByte(files[indexName], '\n') + 1
	for at := head; at < len(files[indexName]); at++ {
		data := bytes.Clone(files[indexName])
		data[at] ^= 0x55
		files.with(indexName, data).put(t, dir)
		r, err := Recover(dir)
		must(t, err)
		want.check(t, r, fmt.Sprintf("byte %d of the index changed", at))
	}
}

func TestRecoverNothing(t *testing.T) {
	dir := filepath.Join(scratch(t), "track")
	missing := func() {
		t.Helper()
		if _, err := Recover(dir); weir.KindOf(err) != weir.NotFound {
			t.Errorf("error %v, want one of kind not-found", err)
		}
	}
	missing()
	must(t, os.Mkdir(dir, 0o700))
	missing()
	// Without the track, the segments can't be used.
	_, files := killed(t, dir, true)
	damaged := bytes.Clone(files[journalName])
	damaged[0] ^= 1
	files.with(indexName, nil).with(journalName, damaged).put(t, dir)
	missing()
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	want.check(t, r, "recovered")
	kill(r)
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered without a segment")
	want.write(t, r, 1, true)
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered")
}

// After a power failure the index may be lost and a segment may be cut: the segments after it are
// lost too.
func TestRecoverCutSegmentWithoutIndex(t *testing.T) {
	dir := filepath.Join(scratch(t), "track")
	want, files := killed(t, dir, true)
	for parts := range 3 {
		first := want.segments[0].first(parts)
		files.without(indexName).with(segmentName(0), append(bytes.Clone(first.data), "torn"...)).put(t, dir)
		r, err := Recover(dir)
		must(t, err)
		left := recorded{tracks: want.tracks, segments: []recordedSegment{first}}
		if parts == 0 {
			left.segments = nil
		}
		left.check(t, r, fmt.Sprintf("%d parts of the first segment", parts))
	}
}

// If a segment was begun again after an error, its last note counts.
func TestRecoverSegmentBegunTwice(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(t.TempDir(), want.tracks[0])
	must(t, err)
	must(t, os.Mkdir(r.path(0), 0o700))
	if err := r.Begin(wallOf(7), true); err == nil {
		t.Error("a folder was taken for a segment")
	}
	must(t, os.Remove(r.path(0)))
	want.write(t, r, 1, false)
	kill(r)
	r, err = Recover(r.dir)
	must(t, err)
	want.check(t, r, "recovered")
}

// An encoder that reconnects after weir was killed may send another coding.
func TestRecordAfterKill(t *testing.T) {
	for k := range 2 {
		dir := filepath.Join(scratch(t), "track")
		want, _ := killed(t, dir, false)
		r, err := Record(dir, recordedTrack(k))
		must(t, err)
		if k > 0 {
			want.tracks = append(want.tracks, recordedTrack(k))
		}
		want.check(t, r, "recovered")
		want.write(t, r, 1, true)
		want.check(t, r, "recovered")
		for n, s := range want.segments {
			for p := range s.Parts {
				body, size, err := r.Part(int64(n), p)
				if got := readAll(t, body, size, err); !bytes.Equal(got, s.data[partStart(s, p):][:size]) {
					t.Errorf("part %d of segment %d is another", p, n)
				}
			}
		}
	}
}

func partStart(s recordedSegment, p int) int64 { return lastOf(partEnds(s.Segment)[:p]) }

func (s snapshot) without(name string) snapshot {
	s = s.with(name, nil)
	delete(s, name)
	return s
}

// player makes random calls to a recorder and knows the expected result.
type player struct {
	*rand.Rand
	t    *testing.T
	dir  string
	r    *Recorder
	want recorded         // what is finished
	open *recordedSegment // nil = none is
	log  []string
}

func TestRecorderModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := &player{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, dir: filepath.Join(scratch(t), "track")}
			p.want.tracks = []cmaf.Track{recordedTrack(0)}
			var err error
			p.r, err = Record(p.dir, p.want.tracks[0])
			must(t, err)
			defer func() {
				kill(p.r)
				if t.Failed() {
					t.Logf("steps: %s", strings.Join(p.log, ", "))
				}
			}()
			for range 60 {
				p.step()
				p.read()
			}
			p.restart(0)
		})
	}
}

func (p *player) step() {
	p.t.Helper()
	switch do := p.IntN(21); {
	case do == 0:
		p.restart(p.IntN(5))
	case do == 1:
		p.log = append(p.log, "sync")
		must(p.t, p.r.Sync())
	case do == 2:
		before := p.IntN(len(p.want.segments) + 3)
		p.log = append(p.log, fmt.Sprint("trim ", before))
		must(p.t, p.r.Trim(int64(before)))
		p.want.first = max(p.want.first, min(before, len(p.want.segments)-1))
	case do == 20:
		p.log = append(p.log, "compact")
		must(p.t, compact(p.r))
	case p.open == nil && do == 3:
		p.change(recordedTrack(p.IntN(3)))
	case p.open == nil:
		p.log = append(p.log, "begin")
		p.open = p.begin()
		must(p.t, p.r.Begin(p.open.Wall, p.open.Discontinuity))
	case do < 6 && len(p.open.Parts) > 0:
		p.log = append(p.log, "finish")
		must(p.t, p.r.Finish(p.open.Segment))
		p.finished()
	default:
		p.log = append(p.log, "append")
		part, data := p.nextPart()
		must(p.t, p.r.Append(part, data))
		p.open.add(part, data)
	}
}

func (p *player) begin() *recordedSegment {
	s := &recordedSegment{init: len(p.want.tracks) - 1}
	s.Discontinuity = p.IntN(3) == 0
	if p.IntN(8) > 0 {
		s.Wall = wallOf(p.Int64N(1000))
	}
	return s
}

func (p *player) nextPart() (cmaf.Part, []byte) {
	return recordedPart(p.want.tracks[p.open.init], int64(len(p.want.segments)), len(p.open.Parts))
}

func (p *player) finished() {
	p.want.segments, p.open = append(p.want.segments, *p.open), nil
}

func (p *player) change(track cmaf.Track) {
	p.log = append(p.log, fmt.Sprint("change to ", track.Width))
	must(p.t, p.r.Change(track))
	p.changed(track)
}

func (p *player) changed(track cmaf.Track) {
	if track.Width != p.want.tracks[len(p.want.tracks)-1].Width {
		p.want.tracks = append(p.want.tracks, track)
	}
}

// restart kills the recorder while it does something, and recovers.
func (p *player) restart(during int) {
	p.t.Helper()
	p.log = append(p.log, fmt.Sprint("kill during ", during))
	kill(p.r)
	next := segmentName(int64(len(p.want.segments)))
	switch {
	case during == 1 && p.open != nil: // Append
		_, data := p.nextPart()
		p.tear(next, data)
	case during == 2 && p.open != nil && len(p.open.Parts) > 0: // Finish
		p.tear(indexName, cmaf.AppendEntry(nil, p.open.Segment))
	case during == 3 && p.open == nil: // Begin
		s := p.begin()
		line, err := appendNote(nil, note{Segment: int64(len(p.want.segments)), Init: s.init, Wall: s.Wall, Discontinuity: s.Discontinuity})
		must(p.t, err)
		if p.tear(journalName, line) && p.IntN(2) == 0 {
			p.tear(next, nil)
		}
	case during == 4 && p.open == nil: // Change
		track := recordedTrack(7)
		k := len(p.want.tracks)
		line, err := appendNote(nil, note{Init: k, Track: &track})
		must(p.t, err)
		if p.tear(initName(k), cmaf.Init(track)) && p.tear(journalName, line) {
			p.changed(track)
		}
	}
	if p.open != nil && len(p.open.Parts) > 0 {
		p.finished()
	}
	p.open = nil
	var err error
	if p.IntN(2) == 0 {
		track := recordedTrack(p.IntN(3))
		p.r, err = Record(p.dir, track)
		p.changed(track)
	} else {
		p.r, err = Recover(p.dir)
	}
	must(p.t, err)
	p.want.check(p.t, p.r, "recovered")
}

// tear appends some of the bytes to a file, or all, and reports whether it was all.
func (p *player) tear(name string, data []byte) (all bool) {
	p.t.Helper()
	n := p.IntN(len(data) + 1)
	if p.IntN(3) == 0 {
		n = len(data)
	}
	f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(p.t, err)
	_, err = f.Write(data[:n])
	must(p.t, errors.Join(err, f.Close()))
	if n == len(data) && p.open != nil && name == segmentName(int64(len(p.want.segments))) {
		p.open.add(p.nextPart())
	}
	return n == len(data)
}

// read compares a random segment and part with what they must be.
func (p *player) read() {
	p.t.Helper()
	all := p.want.segments
	if p.open != nil {
		all = append(slices.Clone(all), *p.open)
	}
	if p.r.Next() != int64(len(p.want.segments)) {
		p.t.Fatalf("the next segment is %d, want %d", p.r.Next(), len(p.want.segments))
	}
	if len(all) == 0 {
		return
	}
	if p.want.first > 0 {
		if _, _, err := p.r.Open(int64(p.IntN(p.want.first))); weir.KindOf(err) != weir.NotFound {
			p.t.Fatalf("a segment before %d: error %v, want one of kind not-found", p.want.first, err)
		}
	}
	n := p.want.first + p.IntN(len(all)-p.want.first)
	body, size, err := p.r.Open(int64(n))
	if got := readAll(p.t, body, size, err); !bytes.Equal(got, all[n].data) {
		p.t.Fatalf("segment %d is another", n)
	}
	if got := p.r.InitOf(int64(n)); got != all[n].init {
		p.t.Fatalf("segment %d needs init %d, want %d", n, got, all[n].init)
	}
	if parts := len(all[n].Parts); parts > 0 && n >= len(p.want.segments)-maxRecent {
		part := p.IntN(parts)
		body, size, err := p.r.Part(int64(n), part)
		if got := readAll(p.t, body, size, err); !bytes.Equal(got, all[n].data[partStart(all[n], part):][:all[n].Parts[part].Size()]) {
			p.t.Fatalf("part %d of segment %d is another", part, n)
		}
	}
}

func FuzzReadJournal(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "track")
	_, files := killed(f, dir, true)
	f.Add(files[journalName])
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j := readJournal(data)
		if lines := bytes.Count(data, []byte("\n")); len(j.tracks)+len(j.segments) > lines {
			t.Errorf("%d init segments and %d segments in %d lines", len(j.tracks), len(j.segments), lines)
		}
		for n, note := range j.segments {
			if note.Init < 0 || note.Init >= len(j.tracks) {
				t.Errorf("segment %d needs init %d of %d", n, note.Init, len(j.tracks))
			}
		}
	})
}
