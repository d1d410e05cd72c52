package cmaf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/weir"
)

// writtenParts makes parts as the packager writes them, and says where each ends.
func writtenParts(track Track, rnd *rand.Rand) (parts []Part, data []byte, ends []int) {
	at := rnd.Int64N(1 << 40)
	for sequence := range uint32(1 + rnd.IntN(6)) {
		f := Fragment{Start: at}
		for i := range 1 + rnd.IntN(8) {
			s := Sample{Duration: 3000, Size: uint32(1 + rnd.IntN(40)), Sync: track.Kind == Audio || i == 0 && rnd.IntN(2) == 0}
			if rnd.IntN(4) == 0 {
				s.Duration = uint32(1 + rnd.IntN(9000))
			}
			if track.Kind == Video {
				s.Offset = int32(rnd.IntN(12000) - 6000)
			}
			f.Samples = append(f.Samples, s)
			for range s.Size {
				f.Data = append(f.Data, byte(1+rnd.IntN(255)))
			}
		}
		at = f.End()
		part, bytes := EncodePart(sequence+1, track, f)
		parts, data, ends = append(parts, part), append(data, bytes...), append(ends, len(data)+len(bytes))
	}
	return parts, data, ends
}

var recorded = []Track{
	{Kind: Video, Codec: "avc1.64001f", Timescale: 90000, Delay: 6000},
	{Kind: Video, Codec: "avc1.64001f", Timescale: 90000},
	{Kind: Audio, Codec: "mp4a.40.2", Timescale: 44100},
}

// Wherever writing stopped, all whole parts are found as they were written and nothing
// is an error.
func TestReadPartsOfTornSegment(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		track := recorded[seed%3]
		parts, data, ends := writtenParts(track, rnd)
		for cut := range len(data) + 1 {
			whole, end := 0, 0
			for whole < len(ends) && ends[whole] <= cut {
				end = ends[whole]
				whole++
			}
			got, good, err := ReadParts(track, data[:cut])
			if err != nil || good != int64(end) {
				t.Fatalf("seed %d, cut at byte %d of %v: %d bytes are good, %v", seed, cut, ends, good, err)
			}
			if len(got) != whole || whole > 0 && !reflect.DeepEqual(parts[:whole], got) {
				t.Fatalf("seed %d, cut at byte %d (-want +got):\n%s", seed, cut, cmp.Diff(parts[:whole], got))
			}
		}
		// A file that grew before its bytes were written. What is lost within samples can't
		// be seen.
		for cut := range len(data) {
			torn := append(bytes.Clone(data[:cut]), make([]byte, len(data)-cut)...)
			whole := 0
			for ends[whole] <= cut {
				whole++
			}
			head := cut < ends[whole]-int(Bytes(parts[whole].Samples))
			got, good, err := ReadParts(track, torn)
			if err != nil || len(got) < whole || len(got) > whole+1 || head && len(got) > whole || !reflect.DeepEqual(parts[:len(got)], append([]Part{}, got...)) {
				t.Fatalf("seed %d, zeros from byte %d of %v on: %d parts, %d bytes, %v", seed, cut, ends, len(got), good, err)
			}
		}
		got, good, err := ReadParts(track, append(bytes.Clone(data), make([]byte, 4096)...))
		if err != nil || good != int64(len(data)) || len(got) != len(parts) {
			t.Errorf("seed %d, with zeros at the end: %d parts, %d bytes, %v", seed, len(got), good, err)
		}
	}
}

// Real segments of every kind of track, as they are stored.
func TestReadPartsOfStoredSegment(t *testing.T) {
	for _, kept := range store(t, generate(t, codings[0].options)) {
		for i, data := range kept.segments {
			got, good, err := ReadParts(kept.Track, data)
			if err != nil || good != int64(len(data)) {
				t.Fatalf("%d of %d bytes, %v", good, len(data), err)
			}
			if diff := cmp.Diff(kept.Segments[i].Parts, got); diff != "" {
				t.Fatalf("segment %d (-want +got):\n%s", i, diff)
			}
		}
	}
}

func TestReadPartsShowsDamage(t *testing.T) {
	track := recorded[0]
	_, data, ends := writtenParts(track, rand.New(rand.NewPCG(5, 1)))
	if len(ends) < 3 {
		t.Fatal("too few parts for this test")
	}
	second := data[ends[0]:]
	patched := func(name string, at int, value uint32) []byte {
		b := bytes.Clone(data)
		place := ends[0] + bytes.Index(second, []byte(name)) + at
		binary.BigEndian.PutUint32(b[place:], value)
		return b
	}
	for _, tt := range []struct {
		name string
		data []byte
	}{
		{"another box", patched("styp", 0, 0x66726565)},
		{"a box smaller than its head", patched("styp", -4, 3)},
		{"a second styp", append(bytes.Clone(data[:ends[0]+20]), second...)},
		{"samples without moof", append(bytes.Clone(data[:ends[0]]), "\x00\x00\x00\x09mdat1"...)},
		{"another track", patched("tfhd", 8, 2)},
		{"no time", patched("tfdt", 0, 0x66726565)},
		{"samples elsewhere", patched("trun", 12, 7)},
		{"fewer samples", patched("trun", 8, 0)},
		{"no samples at all", patched("traf", 0, 0x66726565)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, good, err := ReadParts(track, tt.data)
			if weir.KindOf(err) != weir.Invalid || len(got) != 1 || good != int64(ends[0]) {
				t.Errorf("%d parts, %d bytes, error %v; want the first part, %d bytes and an error of kind invalid", len(got), good, err, ends[0])
			}
		})
	}
}

func FuzzReadParts(f *testing.F) {
	for seed := range uint64(6) {
		_, data, ends := writtenParts(recorded[seed%3], rand.New(rand.NewPCG(seed, 2)))
		f.Add(data, int64(seed%3)*3000, seed%2 == 0)
		f.Add(data[:ends[len(ends)-1]-3], int64(0), true)
	}
	for _, kept := range store(f, generate(f, codings[0].options)) {
		f.Add(kept.segments[0], kept.Track.Delay, kept.Track.Kind == Video)
	}
	f.Fuzz(func(t *testing.T, data []byte, delay int64, video bool) {
		track := Track{Kind: Audio, Timescale: 90000, Delay: delay % (1 << 31)}
		if video {
			track.Kind = Video
		}
		parts, good, err := ReadParts(track, data)
		if err != nil && weir.KindOf(err) != weir.Invalid {
			t.Fatalf("error = %v, want one of kind invalid", err)
		}
		var size int64
		for i, p := range parts {
			bytes := data[size+int64(p.Head) : size+p.Size()]
			size += p.Size()
			// What was read is written the same way again, as far as times can be.
			again, encoded := EncodePart(uint32(i), track, Fragment{Start: p.Start, Samples: p.Samples, Data: bytes})
			read, whole, err := ReadParts(track, encoded)
			if err != nil || whole != int64(len(encoded)) || len(read) != 1 {
				t.Fatalf("part %d can't be read again: %v", i, err)
			}
			if diff := cmp.Diff(again, read[0], cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("part %d (-written +read):\n%s", i, diff)
			}
		}
		if size != good || good > int64(len(data)) {
			t.Fatalf("parts of %d bytes, %d of %d are good", size, good, len(data))
		}
		if again, end, err := ReadParts(track, data[:good]); err != nil || end != good || len(again) != len(parts) {
			t.Fatalf("what is good has %d parts of %d and %d bytes of %d: %v", len(again), len(parts), end, good, err)
		}
	})
}
