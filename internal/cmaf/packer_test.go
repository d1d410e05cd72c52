package cmaf

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// failingSink fails as often as its number says, when a segment ends.
type failingSink struct {
	stored
	failures int
}

func (s *failingSink) Part(part Part, last bool, buffers ...[]byte) error {
	if err := s.stored.Part(part, false, buffers...); err != nil || !last {
		return err
	}
	return s.EndSegment()
}

func (s *failingSink) EndSegment() error {
	if s.failures > 0 {
		s.failures--
		return errors.New("no space left")
	}
	return s.stored.EndSegment()
}

func TestPacker(t *testing.T) {
	track := Track{Kind: Video, Timescale: 1000, Entry: entryOf(Video)}
	sink := &failingSink{failures: 1}
	p := Packer{Track: track, Sink: sink, Sequence: 7}
	if err := errors.Join(p.EndPart(), p.EndSegment()); err != nil || len(sink.open.Parts) > 0 {
		t.Fatalf("without samples there are %d parts, %v", len(sink.open.Parts), err)
	}
	data := []byte("abcdef")
	samples := []Sample{{10, 0, 1, true}, {20, 0, 2, false}, {30, 0, 3, false}}
	p.Add(100, samples[0], data[:1])
	p.Add(110, samples[1], data[1:3])
	if diff := cmp.Diff(Contents{Start: 100, Duration: 30, Samples: 2, Bytes: 3}, p.OpenPart); diff != "" {
		t.Errorf("open part (-want +got):\n%s", diff)
	}
	if err := p.EndPart(); err != nil || p.OpenPart != (Contents{}) {
		t.Errorf("after a part the next one has %+v, %v", p.OpenPart, err)
	}
	p.Add(130, samples[2], data[3:])
	if diff := cmp.Diff(Contents{Start: 100, Duration: 60, Samples: 3, Bytes: 6}, p.OpenSegment); diff != "" {
		t.Errorf("open segment (-want +got):\n%s", diff)
	}
	if err := p.EndSegment(); err == nil || p.OpenSegment.Samples != 3 {
		t.Errorf("a segment that was not written has %d samples, %v", p.OpenSegment.Samples, err)
	}
	if err := errors.Join(p.EndSegment(), p.EndSegment()); err != nil || p.OpenSegment != (Contents{}) || len(sink.segments) != 1 {
		t.Fatalf("after a segment the next one has %+v, and %d are there, %v", p.OpenSegment, len(sink.segments), err)
	}
	first, one := EncodePart(8, track, Fragment{Start: 100, Samples: samples[:2], Data: data[:3]})
	second, two := EncodePart(9, track, Fragment{Start: 130, Samples: samples[2:], Data: data[3:]})
	if diff := cmp.Diff(Segment{Parts: []Part{first, second}}, sink.Segments[0]); diff != "" || !bytes.Equal(sink.segments[0], append(one, two...)) {
		t.Errorf("the bytes or the index of the segment differ (-want +got):\n%s", diff)
	}
}

// sameData is a sink that fails when a buffer is not the data of the samples itself.
type sameData []byte

func (s sameData) Part(_ Part, _ bool, buffers ...[]byte) error {
	for _, buffer := range buffers[1:] {
		if &buffer[0] != &s[0] {
			return errors.New("the data of a sample was copied")
		}
	}
	return nil
}

func (s sameData) EndSegment() error { return nil }

// A frame of a live stream costs no memory but its place in the index: a part allocates its head,
// the boxes in it and the list of its samples, however many these are.
func TestPackerDoesNotCopyData(t *testing.T) {
	data := make([]byte, 1000)
	p := Packer{Track: Track{Kind: Video, Timescale: 1000, Entry: entryOf(Video)}, Sink: sameData(data)}
	var err error
	allocations := testing.AllocsPerRun(100, func() {
		for i := range 50 {
			p.Add(int64(i)*40, Sample{Duration: 40, Size: uint32(len(data)), Sync: i == 0}, data)
		}
		err = errors.Join(err, p.EndSegment())
	})
	if err != nil || allocations > 10 {
		t.Errorf("a part takes %v allocations, want 10 at most; %v", allocations, err)
	}
}
