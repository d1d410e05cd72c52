package cmaf

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// randomSegment makes a segment that is often usual and sometimes extreme.
func randomSegment(rnd *rand.Rand) Segment {
	number := func(usual, limit int64) int64 {
		if rnd.IntN(20) == 0 {
			return rnd.Int64N(limit)
		}
		return rnd.Int64N(usual)
	}
	var s Segment
	s.Discontinuity = rnd.IntN(4) == 0
	if rnd.IntN(2) == 0 {
		s.Wall = time.Unix(0, rnd.Int64N(math.MaxInt64)).UTC()
	}
	for range rnd.IntN(4) {
		p := Part{Start: number(1e6, 1<<60) - number(1e6, 1<<59), Head: int(number(2000, math.MaxInt32))}
		duration := uint32(number(1000, math.MaxUint32))
		for range rnd.IntN(40) {
			if rnd.IntN(10) == 0 {
				duration = uint32(number(1000, math.MaxUint32))
			}
			sample := Sample{Duration: duration, Size: uint32(number(1e5, math.MaxUint32)), Sync: rnd.IntN(8) == 0}
			switch rnd.IntN(8) {
			case 0:
				sample.Offset = int32(number(5, math.MaxInt32)) * -1
			case 1:
				sample.Offset = math.MinInt32
			case 2:
				sample.Offset = int32(number(5, math.MaxInt32/512)) * 512
			}
			p.Samples = append(p.Samples, sample)
		}
		s.Parts = append(s.Parts, p)
	}
	return s
}

func TestIndexRoundTrip(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var want []Segment
		var data []byte
		var ends []int
		for range rnd.IntN(6) {
			s := randomSegment(rnd)
			want = append(want, s)
			data = AppendEntry(data, s)
			ends = append(ends, len(data))
		}
		got, good, err := ReadIndex(data)
		if err != nil || good != len(data) {
			t.Fatalf("seed %d: %d of %d bytes, %v", seed, good, len(data), err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		// Wherever writing stopped, all whole entries are there and nothing is an error.
		for cut := int(seed % 7); cut < len(data); cut += 7 {
			for _, tail := range [][]byte{nil, make([]byte, len(data)-cut)} {
				torn := append(bytes.Clone(data[:cut]), tail...)
				whole, end := 0, 0 // lost bytes that were zero are not lost
				for whole < len(ends) && ends[whole] <= len(torn) && bytes.Equal(torn[:ends[whole]], data[:ends[whole]]) {
					end = ends[whole]
					whole++
				}
				got, good, err := ReadIndex(torn)
				if err != nil || good != end || len(got) != whole {
					t.Fatalf("seed %d, torn at byte %d of %v: %d entries, %d bytes, %v", seed, cut, ends, len(got), good, err)
				}
			}
		}
	}
}

func TestIndexShowsDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var data []byte
	var ends []int
	for range 3 {
		s := randomSegment(rnd)
		s.Parts = append(s.Parts, Part{Head: 100, Samples: []Sample{{Duration: 1, Size: 1}}})
		data = AppendEntry(data, s)
		ends = append(ends, len(data))
	}
	for at := range ends[1] {
		for _, flip := range []byte{1, 0x80, 0xff} {
			damaged := bytes.Clone(data)
			damaged[at] ^= flip
			got, good, err := ReadIndex(damaged)
			whole, end := 0, 0
			if at >= ends[0] {
				whole, end = 1, ends[0]
			}
			if err == nil || len(got) != whole || good != end {
				t.Fatalf("byte %d changed: %d entries, %d bytes, error %v; want %d, %d and an error", at, len(got), good, err, whole, end)
			}
		}
	}
}

// An index of six hours must be small: it is read to render a playlist.
func TestIndexIsCompact(t *testing.T) {
	data := generate(t, codings[0].options)
	for i, track := range store(t, data) {
		var index []byte
		for _, s := range track.Segments {
			index = AppendEntry(index, s)
		}
		each := float64(len(index)) / float64(track.Frames())
		if limit := []float64{6, 4}[i]; each > limit {
			t.Errorf("%s has %.1f bytes a sample, want at most %v", track.Track.Kind, each, limit)
		}
		got, _, err := ReadIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(track.Segments, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func FuzzReadIndex(f *testing.F) {
	for i, track := range store(f, generate(f, codings[0].options)) {
		var index []byte
		for _, s := range track.Segments {
			s.Discontinuity = i == 1
			s.Wall = time.Unix(1.7e9, int64(i)).UTC()
			index = AppendEntry(index, s)
		}
		f.Add(index, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) > entryHead { // get past the checksums
			data = bytes.Clone(data)
			head, body := data[:entryHead], data[entryHead:]
			binary.LittleEndian.PutUint32(head, uint32(len(body)))
			binary.LittleEndian.PutUint32(head[4:], checksum(body))
			binary.LittleEndian.PutUint32(head[8:], checksum(head[:8]))
		}
		segments, good, _ := ReadIndex(data)
		if good > len(data) {
			t.Fatalf("good = %d of %d bytes", good, len(data))
		}
		var again []byte
		for _, s := range segments {
			again = AppendEntry(again, s)
		}
		read, _, err := ReadIndex(again)
		if err != nil {
			t.Fatalf("what was read can't be read again: %v", err)
		}
		if diff := cmp.Diff(segments, read, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
