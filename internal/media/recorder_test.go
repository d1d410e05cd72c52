package media

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// recordedTrack returns a track whose coding depends on k.
func recordedTrack(k int) cmaf.Track {
	return cmaf.Track{
		Kind: cmaf.Video, Codec: "avc1.64001f", Timescale: 90000, Width: 320 + 2*k, Height: 180, Delay: int64(k) * 3000,
		Entry: box("avc1", append(make([]byte, 78), byte(k))),
	}
}

// recordedPart returns part p of segment n.
func recordedPart(track cmaf.Track, n int64, p int) (cmaf.Part, []byte) {
	random := rand.New(rand.NewPCG(uint64(n), uint64(p)))
	f := cmaf.Fragment{Start: n*18000 + int64(p)*6000}
	for i := range 2 {
		data := make([]byte, 1+random.IntN(40))
		for k := range data {
			data[k] = byte(random.Uint32())
		}
		f.Samples = append(f.Samples, cmaf.Sample{Duration: 3000, Offset: int32(i) * 3000, Size: uint32(len(data)), Sync: p+i == 0})
		f.Data = append(f.Data, data...)
	}
	return cmaf.EncodePart(uint32(n*3)+uint32(p)+1, track, f)
}

func wallOf(n int64) time.Time { return time.Unix(1_700_000_000+2*n, 123_456_789).UTC() }

// recorded is the expected content of a folder.
type recorded struct {
	tracks   []cmaf.Track
	segments []recordedSegment
	first    int // the first segment that is not trimmed
}

type recordedSegment struct {
	cmaf.Segment
	init int
	data []byte
}

// add adds a part to the last segment.
func (s *recordedSegment) add(part cmaf.Part, data []byte) {
	s.Parts, s.data = append(s.Parts, part), append(s.data, data...)
}

// first returns the first parts of the segment alone.
func (s recordedSegment) first(parts int) recordedSegment {
	ends := partEnds(s.Segment)[:parts]
	s.Parts, s.data = s.Parts[:parts], s.data[:lastOf(ends)]
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write records a segment with a number of parts, and may leave it open.
func (want *recorded) write(t testing.TB, r *Recorder, parts int, finish bool) {
	t.Helper()
	n := int64(len(want.segments))
	s := recordedSegment{Segment: cmaf.Segment{Wall: wallOf(n), Discontinuity: n%2 == 1}, init: len(want.tracks) - 1}
	must(t, r.Begin(s.Wall, s.Discontinuity))
	for p := range parts {
		part, data := recordedPart(want.tracks[s.init], n, p)
		must(t, r.Append(part, data))
		s.add(part, data)
	}
	if finish {
		must(t, r.Finish(s.Segment))
	}
	want.segments = append(want.segments, s)
}

// threeSegments returns a recording with three segments of two parts, and its folder.
func threeSegments(t *testing.T) (dir string, want *recorded, r *Recorder) {
	t.Helper()
	dir, want = scratch(t), &recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	for range 3 {
		want.write(t, r, 2, true)
	}
	return dir, want, r
}

// change records a change of the coding.
func (want *recorded) change(t testing.TB, r *Recorder, track cmaf.Track) {
	t.Helper()
	must(t, r.Change(track))
	want.tracks = append(want.tracks, track)
}

// kill closes the file of a recorder like the end of the process.
func kill(r *Recorder) {
	if r.file != nil {
		r.file.Close()
	}
}

// scratch returns a folder in memory, if possible: these tests sync thousands of times.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weir-media-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func readAll(t testing.TB, body io.ReadSeekCloser, size int64, err error) []byte {
	t.Helper()
	must(t, err)
	defer body.Close()
	data, err := io.ReadAll(body)
	must(t, err)
	if int64(len(data)) != size {
		t.Fatalf("%d bytes are read, %d were promised", len(data), size)
	}
	return data
}

// check compares a recorder without an open segment, and its folder, with the expected content.
func (want recorded) check(t testing.TB, r *Recorder, what string) {
	t.Helper()
	index, compacted, err := r.Index()
	must(t, err)
	wanted := cmaf.TrackIndex{Track: want.tracks[0]}
	files := map[string][]byte{}
	sum := Compacted{First: compacted.First, End: compacted.End}
	for n, s := range want.segments {
		if compacted.has(int64(n)) {
			sum.add(s.Segment, want.tracks[s.init])
			continue
		}
		wanted.Segments = append(wanted.Segments, s.Segment)
		if n >= want.first {
			files[segmentName(int64(n))] = s.data
		}
		if got := r.InitOf(int64(n)); got != s.init {
			t.Errorf("segment %d needs init %d, want %d", n, got, s.init)
		}
	}
	if sum != compacted || compacted.End > int64(want.first) {
		t.Errorf("compacted are %+v, want %+v, and none from %d on", compacted, sum, want.first)
	}
	if !reflect.DeepEqual(wanted, index) { // cmp is slow, and this is called often
		t.Errorf("index differs (-want +got):\n%s", cmp.Diff(wanted, index))
	}
	if r.Next() != int64(len(want.segments)) || r.Inits() != len(want.tracks) {
		t.Errorf("the next segment is %d, want %d; there are %d inits, want %d", r.Next(), len(want.segments), r.Inits(), len(want.tracks))
	}
	for k, track := range want.tracks {
		init, err := r.Init(k)
		must(t, err)
		if !bytes.Equal(init, cmaf.Init(track)) {
			t.Errorf("init %d is another", k)
		}
		files[initName(k)] = cmaf.Init(track)
	}
	entries, err := os.ReadDir(r.dir)
	must(t, err)
	for _, entry := range entries {
		name := entry.Name()
		if name == indexName || name == journalName || name == spareName && r.spare {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dir, name))
		must(t, err)
		wanted, ok := files[name]
		if !ok || !bytes.Equal(data, wanted) {
			t.Errorf("file %s has %d bytes; it should be there: %v, with %d bytes", name, len(data), ok, len(wanted))
		}
		delete(files, name)
	}
	for name := range files {
		t.Errorf("file %s is missing", name)
	}
	if t.Failed() {
		t.Fatal("this was after: " + what)
	}
}

func TestRecorder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "session", "source")
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	want.check(t, r, "recorded")
	for range maxRecent + 3 {
		want.write(t, r, 3, true)
	}
	must(t, r.Change(recordedTrack(0))) // the same
	want.change(t, r, recordedTrack(1))
	want.write(t, r, 2, true)
	want.check(t, r, "recorded")
	want.write(t, r, 3, false)
	last := int64(len(want.segments) - 1)
	for n := range last + 1 {
		body, size, err := r.Open(n)
		if got := readAll(t, body, size, err); !bytes.Equal(got, want.segments[n].data) {
			t.Errorf("segment %d is another", n)
		}
		var parts []byte
		for p := range want.segments[n].Parts {
			body, size, err := r.Part(n, p)
			if n < last-maxRecent {
				if weir.KindOf(err) != weir.NotFound {
					t.Errorf("part %d of old segment %d: error %v, want one of kind not-found", p, n, err)
				}
				continue
			}
			parts = append(parts, readAll(t, body, size, err)...)
		}
		if n >= last-maxRecent && !bytes.Equal(parts, want.segments[n].data) {
			t.Errorf("the parts of segment %d are others", n)
		}
	}
	for _, n := range []int64{-1, last + 1} {
		if _, _, err := r.Open(n); weir.KindOf(err) != weir.NotFound {
			t.Errorf("segment %d: error %v, want one of kind not-found", n, err)
		}
	}
	for _, p := range []int{-1, 3} {
		if _, _, err := r.Part(last, p); weir.KindOf(err) != weir.NotFound {
			t.Errorf("part %d: error %v, want one of kind not-found", p, err)
		}
	}
	if _, err := r.Init(2); weir.KindOf(err) != weir.NotFound {
		t.Errorf("init 2: error %v, want one of kind not-found", err)
	}
	must(t, r.Finish(want.segments[last].Segment))
	must(t, r.Close())
	want.check(t, r, "recorded") // reading still works
}

// Calls that would make the index wrong are refused.
func TestRecorderRefusesWrongCalls(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(t.TempDir(), want.tracks[0])
	must(t, err)
	part, data := recordedPart(want.tracks[0], 0, 0)
	refuse := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Error("taken: " + what)
		}
	}
	refuse("a part without a segment", r.Append(part, data))
	refuse("the end of a segment that was not begun", r.Finish(cmaf.Segment{Parts: []cmaf.Part{part}}))
	must(t, r.Begin(wallOf(0), false))
	refuse("a segment in a segment", r.Begin(wallOf(0), false))
	refuse("a change within a segment", r.Change(recordedTrack(1)))
	refuse("a segment of nothing", r.Finish(cmaf.Segment{}))
	refuse("a part with too few bytes", r.Append(part, data[1:]))
	must(t, r.Append(part, data))
	refuse("other parts than those there are", r.Finish(cmaf.Segment{Parts: []cmaf.Part{part, part}}))
	s := recordedSegment{Segment: cmaf.Segment{Wall: wallOf(0), Parts: []cmaf.Part{part}}, data: data}
	must(t, r.Finish(s.Segment))
	want.segments = append(want.segments, s)
	must(t, r.Close())
	refuse("a segment after the end", r.Begin(wallOf(1), false))
	want.check(t, r, "recorded")
}

// After the disk was full, the recording continues without a loss.
func TestRecorderOnFullDisk(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(t.TempDir(), want.tracks[0])
	must(t, err)
	want.write(t, r, 1, false)
	s := &want.segments[0]
	full := func(what string, do func() error) {
		t.Helper()
		if err := do(); weir.KindOf(err) != weir.Full {
			t.Errorf("%s: error %v, want one of kind full", what, err)
		}
	}
	part, data := recordedPart(want.tracks[0], 0, 1)
	file := r.file
	// Only some bytes of the part fit on the disk.
	_, err = file.WriteAt(data[:20], int64(len(s.data)))
	must(t, err)
	_, err = file.WriteAt(make([]byte, 900), int64(len(s.data)+20))
	must(t, err)
	r.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	full("append", func() error { return r.Append(part, data) })
	must(t, r.file.Close())
	r.file = file
	must(t, r.Append(part, data))
	s.add(part, data)

	onFull := func(name string, do func() error) {
		t.Helper()
		path := filepath.Join(r.dir, name)
		must(t, os.Rename(path, path+".away"))
		must(t, os.Symlink("/dev/full", path))
		full(name, do)
		must(t, os.Remove(path))
		must(t, os.Rename(path+".away", path))
	}
	onFull(indexName, func() error { return r.Finish(s.Segment) })
	must(t, r.Finish(s.Segment))
	onFull(journalName, func() error { return r.Begin(wallOf(1), true) })
	// Bytes of the failed write that can't be removed do no harm.
	for _, name := range []string{indexName, journalName} {
		f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString("torn")
		must(t, errors.Join(err, f.Close()))
	}
	want.check(t, r, "recorded with bytes behind the index")
	want.write(t, r, 2, true)
	want.check(t, r, "recorded")
	kill(r)
	r, err = Recover(r.dir)
	must(t, err)
	want.check(t, r, "recorded")
}

func TestSyncIsTriedAgain(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(filepath.Join(t.TempDir(), "a", "b"), want.tracks[0])
	must(t, err)
	want.write(t, r, 2, true)
	path := r.path(0)
	must(t, os.Rename(path, path+".away"))
	for range 2 {
		if err := r.Sync(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("sync without the segment: error %v", err)
		}
	}
	want.write(t, r, 2, true)
	if len(r.unsynced.inits) != 1 || r.unsynced.from != 0 || !r.unsynced.notes {
		t.Errorf("after syncs that failed %+v is to be synced", r.unsynced)
	}
	must(t, os.Rename(path+".away", path))
	must(t, r.Sync())
	if diff := cmp.Diff(unsynced{from: 2}, r.unsynced, cmp.AllowUnexported(unsynced{})); diff != "" {
		t.Errorf("what is to be synced after a sync (-want +got):\n%s", diff)
	}
	want.write(t, r, 2, true)
	if r.unsynced.from != 2 || r.unsynced.notes {
		t.Errorf("after one more segment %+v is to be synced", r.unsynced)
	}
	must(t, r.Close())
	if r.unsynced.from != 3 {
		t.Error("closing does not sync")
	}
}

func TestRecorderIsReadWhileItGrows(t *testing.T) {
	const segments, parts = 80, 3
	track := recordedTrack(0)
	r, err := Record(scratch(t), track)
	must(t, err)
	whole := make([][]byte, segments)
	for n := range whole {
		for p := range parts {
			_, data := recordedPart(track, int64(n), p)
			whole[n] = append(whole[n], data...)
		}
	}
	read := func(random *rand.Rand) {
		n := max(0, r.Next()-random.Int64N(4))
		if body, size, err := r.Open(n); err == nil {
			data, err := io.ReadAll(body)
			body.Close()
			if err != nil || int64(len(data)) != size || !bytes.HasPrefix(whole[n], data) {
				t.Errorf("segment %d: %d bytes of %d, error %v", n, len(data), size, err)
			}
		} else if weir.KindOf(err) != weir.NotFound {
			t.Error(err)
		}
		p := random.IntN(parts)
		if body, size, err := r.Part(n, p); err == nil {
			data, err := io.ReadAll(body)
			body.Close()
			if _, want := recordedPart(track, n, p); err != nil || size != int64(len(want)) || !bytes.Equal(data, want) {
				t.Errorf("part %d of segment %d is wrong, error %v", p, n, err)
			}
		} else if weir.KindOf(err) != weir.NotFound {
			t.Error(err)
		}
		if index, _, err := r.Index(); err != nil || int64(len(index.Segments)) > r.Next() {
			t.Errorf("an index of %d segments, error %v", len(index.Segments), err)
		}
		if r.InitOf(n) != 0 || r.Inits() != 1 {
			t.Error("the only init is not used")
		}
		if err := errors.Join(r.Sync(), r.Trim(n-8), compact(r)); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	reads := make(chan int) // a turn of a reader
	for reader := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(reader), 1))
			for range reads {
				read(random)
			}
		})
	}
	want := recorded{tracks: []cmaf.Track{track}}
	for range segments {
		for n := range 4 {
			reads <- n
		}
		want.write(t, r, parts, true)
	}
	close(reads)
	wg.Wait()
	must(t, errors.Join(r.Trim(segments-8), r.Close()))
	want.first = segments - 8
	want.check(t, r, "recorded")
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestRecordersHaveFewOpenFiles(t *testing.T) {
	const tracks = 200
	before, dir := openFiles(t), scratch(t)
	var all []*Recorder
	for i := range tracks {
		want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
		r, err := Record(filepath.Join(dir, fmt.Sprint(i)), want.tracks[0])
		must(t, err)
		want.write(t, r, 1, true)
		want.write(t, r, 1, true)
		want.write(t, r, 1, false)
		must(t, r.Sync())
		all = append(all, r)
	}
	if got := openFiles(t) - before; got > tracks {
		t.Errorf("%d recorders have %d files open", tracks, got)
	}
	for i, r := range all {
		must(t, r.Close())
		r, err := Record(filepath.Join(dir, fmt.Sprint(i)), recordedTrack(i%2))
		must(t, err)
		must(t, r.Close())
	}
	if got := openFiles(t) - before; got > 0 {
		t.Errorf("%d files are still open", got)
	}
}

// counted counts the bytes of a section that weir itself reads.
type counted struct {
	io.ReadSeekCloser
	syscall.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadSeekCloser.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func TestKernelSendsParts(t *testing.T) {
	track := recordedTrack(0)
	r, err := Record(t.TempDir(), track)
	must(t, err)
	must(t, r.Begin(wallOf(0), false))
	var parts [3][]byte
	for p := range parts {
		f := cmaf.Fragment{Samples: []cmaf.Sample{{Duration: 1, Size: 100_000}}, Data: bytes.Repeat([]byte{byte('a' + p)}, 100_000)}
		var part cmaf.Part
		part, parts[p] = cmaf.EncodePart(1, track, f)
		must(t, r.Append(part, parts[p]))
	}
	var read atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _, err := r.Part(0, 1)
		if q.URL.Path == "/segment" {
			body, _, err = r.Open(0)
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer body.Close()
		w.Header().Set("Content-Type", "video/mp4")
		http.ServeContent(w, q, "", time.Time{}, counted{body, body.(syscall.Conn), &read})
	}))
	defer server.Close()
	get := func(path, ranged string) []byte {
		t.Helper()
		read.Store(0)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		must(t, err)
		if ranged != "" {
			q.Header.Set("Range", ranged)
		}
		response, err := server.Client().Do(q)
		must(t, err)
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		must(t, err)
		// net/http reads the first 512 bytes itself, with the header.
		if read.Load() > 512 {
			t.Errorf("%s: %d bytes passed through weir", path, read.Load())
		}
		return data
	}
	for _, test := range []struct {
		path, ranged string
		want         []byte
	}{
		{"/part", "", parts[1]},
		{"/part", "bytes=1000-90000", parts[1][1000:90001]},
		{"/part", "bytes=-5", parts[1][len(parts[1])-5:]},
		{"/segment", "", bytes.Join(parts[:], nil)},
	} {
		if got := get(test.path, test.ranged); !bytes.Equal(got, test.want) {
			t.Errorf("%s %s: %d bytes, want %d others", test.path, test.ranged, len(got), len(test.want))
		}
	}
	must(t, r.Close())
}

// A part that is copied to a connection ends at its own end, not at that of the file.
func TestCopyPart(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(t.TempDir(), want.tracks[0])
	must(t, err)
	want.write(t, r, 3, true)
	must(t, r.Close())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	to, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer to.Close()
	from, err := listener.Accept()
	must(t, err)
	defer from.Close()
	body, size, err := r.Part(0, 1)
	must(t, err)
	defer body.Close()
	if n, err := io.Copy(to, body); n != size || err != nil {
		t.Errorf("%d bytes of %d were copied, error %v", n, size, err)
	}
	must(t, to.Close())
	got, err := io.ReadAll(from)
	must(t, err)
	s := want.segments[0]
	if !bytes.Equal(got, s.data[partStart(s, 1):partStart(s, 2)]) {
		t.Errorf("%d other bytes arrived", len(got))
	}
}

func TestSectionSeek(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	f, err := os.Open(path)
	must(t, err)
	s := &section{file: f, start: 2, size: 5, closed: func() {}}
	defer s.Close()
	for _, test := range []struct {
		offset int64
		whence int
		at     int64
		want   string
	}{
		{0, io.SeekStart, 0, "23456"},
		{0, io.SeekCurrent, 5, ""},
		{-2, io.SeekCurrent, 3, "56"},
		{-4, io.SeekEnd, 1, "3456"},
		{9, io.SeekStart, 9, ""},
	} {
		at, err := s.Seek(test.offset, test.whence)
		must(t, err)
		got, err := io.ReadAll(s)
		if err != nil || at != test.at || string(got) != test.want {
			t.Errorf("seek %d from %d: at %d, read %q, error %v; want %d and %q", test.offset, test.whence, at, got, err, test.at, test.want)
		}
	}
	if _, err := s.Seek(-1, io.SeekStart); err == nil {
		t.Error("there is something before the start")
	}
	if _, err := s.Seek(0, 3); err == nil {
		t.Error("seek from nowhere worked")
	}
}

func TestKeep(t *testing.T) {
	root := t.TempDir()
	store, err := blob.NewDisk(filepath.Join(root, "media"))
	must(t, err)
	defer store.Close()
	for name, unused := range map[string]int{"plain": 0, "changed before the first segment": 2} {
		t.Run(name, func(t *testing.T) {
			prefix, dir := fmt.Sprintf("asset-%d/source", unused), filepath.Join(root, fmt.Sprintf("live-%d", unused))
			want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
			r, err := Record(dir, want.tracks[0])
			must(t, err)
			if _, err := keep(t, r, store, prefix); weir.KindOf(err) != weir.NotFound {
				t.Errorf("nothing was kept: error %v, want one of kind not-found", err)
			}
			for k := range unused {
				want.change(t, r, recordedTrack(k+1))
			}
			kept := cmaf.TrackIndex{Track: recordedTrack(unused), Changes: []cmaf.Change{{First: 2, Track: recordedTrack(8)}, {First: 3, Track: recordedTrack(unused)}}}
			want.write(t, r, 3, true)
			want.write(t, r, 1, true)
			for _, c := range kept.Changes {
				want.change(t, r, recordedTrack(7)) // has no segments
				want.change(t, r, c.Track)
				want.write(t, r, 2, true)
			}
			want.change(t, r, recordedTrack(9)) // has no segments
			want.write(t, r, 2, false)
			if _, err := keep(t, r, store, prefix); weir.KindOf(err) != weir.Busy {
				t.Errorf("a segment is open: error %v, want one of kind busy", err)
			}
			must(t, r.Close())
			kept.Changes = append(kept.Changes, cmaf.Change{First: 4, Track: recordedTrack(9)})
			must(t, os.MkdirAll(filepath.Join(root, "media", prefix), 0o700))
			// Segments of an earlier attempt may be complete or not.
			must(t, os.WriteFile(filepath.Join(root, "media", SegmentKey(prefix, 1)), []byte("torn"), 0o600))
			for _, s := range want.segments {
				kept.Segments = append(kept.Segments, s.Segment)
			}
			for range 2 {
				r, err = Recover(dir)
				must(t, err)
				_, err = keep(t, r, store, prefix)
				must(t, err)
				track := openTrack(t, store, prefix)
				if diff := cmp.Diff(kept, track.Index()); diff != "" {
					t.Errorf("index differs (-want +got):\n%s", diff)
				}
				for n, s := range want.segments {
					body, size, err := track.Segment(t.Context(), n)
					must(t, err)
					data, err := io.ReadAll(body)
					body.Close()
					if err != nil || size != int64(len(data)) || !bytes.Equal(data, s.data) {
						t.Errorf("segment %d is another, error %v", n, err)
					}
				}
			}
			want.check(t, r, "kept") // the recording is unchanged
			must(t, os.RemoveAll(dir))
			if diff := cmp.Diff(kept, openTrack(t, store, prefix).Index()); diff != "" {
				t.Errorf("the track went with the recording (-want +got):\n%s", diff)
			}
		})
	}
}

// keep makes a track in a store from one recording.
func keep(t *testing.T, r *Recorder, store blob.Store, prefix string) (*Track, error) {
	t.Helper()
	index, err := r.share(t.Context(), store, prefix, prefix, 0)
	if err != nil {
		return nil, err
	}
	return NewTrack(store, prefix, index), Seal(t.Context(), store, prefix, index)
}
