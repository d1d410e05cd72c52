package cmaf

import (
	"encoding/binary"
	"slices"
	"time"
)

// maxMovieSamples is how many samples a track may have, which is days of media. The limit is needed
// because a table of samples of equal size takes no bytes.
const maxMovieSamples = 1 << 26

// Movie reads the samples of an MP4 file that is not fragmented: one moov box has the places of all
// samples. The tables stay as they are in the file, so a movie needs no more memory than its moov
// box, however long it is.
type Movie struct {
	tracks []Track
	inner  []*movieTrack
}

// MovieSample is the place of a sample in the file, and its times.
type MovieSample struct {
	Track    int // position in Tracks
	Offset   int64
	Size     int64
	DTS, PTS time.Duration
	Sync     bool
}

// ReadMovie reads the body of a moov box, which need not be valid.
func ReadMovie(moov []byte) (*Movie, error) {
	m := &Movie{}
	scale := movieTimescale(moov)
	for rest := moov; len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return nil, refused("damaged moov box")
		}
		rest = after
		if b.name != "trak" {
			continue
		}
		_, track, err := readTrak(b.body)
		if err != nil {
			return nil, err
		}
		if track.Kind == "" {
			continue
		}
		shift, err := readEdits(child(b.body, "edts", "elst"), scale, track.Timescale)
		if err != nil {
			return nil, err
		}
		in, err := newMovieTrack(child(b.body, "mdia", "minf", "stbl"), track, shift)
		if err != nil {
			return nil, err
		}
		m.tracks, m.inner = append(m.tracks, track), append(m.inner, in)
	}
	return m, nil
}

// Tracks returns the video and audio tracks.
func (m *Movie) Tracks() []Track { return slices.Clone(m.tracks) }

// Next returns the sample that comes next in the file; ok is false after the last.
func (m *Movie) Next() (s MovieSample, ok bool, err error) {
	next := -1
	for i, t := range m.inner {
		if err := t.locate(); err != nil {
			return s, false, err
		}
		if t.has && (next < 0 || t.at < m.inner[next].at) {
			next = i
		}
	}
	if next < 0 {
		return s, false, nil
	}
	s = m.inner[next].advance()
	s.Track = next
	return s, true, nil
}

// movieTrack reads the tables of a track, sample by sample. They are untrusted, so every number is
// checked when it is read.
type movieTrack struct {
	track Track
	shift int64

	times, offsets, syncs, chunks, sizes, places []byte // entries of stts, ctts, stss, stsc, stsz, stco or co64
	fixed                                        uint32 // size of all samples; 0 = see sizes
	wide                                         bool   // places have 64 bits
	allSync                                      bool

	left    uint32 // remaining samples
	number  uint32 // of the current sample, from 1 on
	dts     int64
	timeRun struct{ left, delta uint32 }
	showRun struct {
		left   uint32
		offset int32
	}
	chunk   uint32 // of the current sample, from 1 on
	inChunk uint32 // remaining samples of the chunk
	per     uint32 // samples in each chunk of the run

	has  bool // the current sample is known
	at   int64
	size int64
}

func newMovieTrack(stbl []byte, track Track, shift int64) (*movieTrack, error) {
	t := &movieTrack{track: track, shift: shift}
	table := func(name string, width int) ([]byte, bool) {
		box := child(stbl, name)
		in := bytesReader{data: box}
		in.full()
		count := uint64(in.u32())
		if in.short || count*uint64(width) > uint64(len(in.data)) {
			return nil, false
		}
		return in.data[:count*uint64(width)], true
	}
	var ok [3]bool
	t.times, ok[0] = table("stts", 8)
	t.chunks, ok[1] = table("stsc", 12)
	if t.places, ok[2] = table("stco", 4); !ok[2] {
		t.places, ok[2] = table("co64", 8)
		t.wide = true
	}
	in := bytesReader{data: child(stbl, "stsz")}
	in.full()
	t.fixed, t.left = in.u32(), in.u32()
	if !in.short && t.fixed == 0 {
		t.sizes = in.take(int(t.left) * 4)
	}
	if in.short || !ok[0] || !ok[1] || !ok[2] {
		return nil, refused("the sample tables of a track are missing or incomplete")
	}
	if t.left > maxMovieSamples {
		return nil, refused("a track has %d samples; %d are allowed", t.left, maxMovieSamples)
	}
	t.offsets, _ = table("ctts", 8)
	var some bool
	t.syncs, some = table("stss", 4)
	t.allSync = !some
	return t, nil
}

// entry reads an entry of a table: numbers of 32 bits.
func entry(table *[]byte, numbers int) (values [3]uint32, ok bool) {
	if len(*table) < 4*numbers {
		return values, false
	}
	for i := range numbers {
		values[i] = binary.BigEndian.Uint32((*table)[4*i:])
	}
	*table = (*table)[4*numbers:]
	return values, true
}

// locate finds the place and the times of the next sample.
func (t *movieTrack) locate() error {
	if t.has || t.left == 0 {
		return nil
	}
	damaged := refused("the sample tables of a track contradict one another")
	for t.inChunk == 0 {
		t.chunk++
		for len(t.chunks) >= 12 && binary.BigEndian.Uint32(t.chunks) <= t.chunk {
			run, _ := entry(&t.chunks, 3)
			t.per = run[1]
		}
		in := bytesReader{data: t.places}
		t.at = int64(in.number(t.wide))
		if in.short {
			return damaged
		}
		t.places, t.inChunk = in.data, t.per
	}
	t.size = int64(t.fixed)
	if t.fixed == 0 {
		size, ok := entry(&t.sizes, 1)
		if !ok {
			return damaged
		}
		t.size = int64(size[0])
	}
	for t.timeRun.left == 0 {
		run, ok := entry(&t.times, 2)
		if !ok {
			return damaged
		}
		t.timeRun.left, t.timeRun.delta = run[0], run[1]
	}
	for t.showRun.left == 0 {
		run, ok := entry(&t.offsets, 2)
		if !ok { // none, or not for the last samples
			run = [3]uint32{1, 0}
		}
		t.showRun.left, t.showRun.offset = run[0], int32(run[1])
	}
	if t.at < 0 || t.at > maxTime || t.dts > maxTime {
		return damaged
	}
	t.number++
	t.has = true
	return nil
}

// advance returns the current sample and moves to the next one.
func (t *movieTrack) advance() MovieSample {
	dts := t.dts + t.shift
	s := MovieSample{
		Offset: t.at, Size: t.size, Sync: t.allSync,
		DTS: t.track.Time(dts), PTS: t.track.Time(dts + int64(t.showRun.offset)),
	}
	if len(t.syncs) >= 4 && binary.BigEndian.Uint32(t.syncs) <= t.number {
		sync, _ := entry(&t.syncs, 1)
		s.Sync = sync[0] == t.number
	}
	t.at += t.size
	t.dts += int64(t.timeRun.delta)
	t.timeRun.left--
	t.showRun.left--
	t.inChunk--
	t.left--
	t.has = false
	return s
}
