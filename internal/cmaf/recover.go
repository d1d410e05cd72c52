package cmaf

import (
	"bytes"
	"fmt"
	"math"
)

// ReadParts reads the parts of a stored segment, which may be incomplete. An incomplete last part is
// no error: good is the number of bytes before it, where writing continues. Damage before that is
// an error, which comes with the parts before the damage.
func ReadParts(t Track, data []byte) (parts []Part, good int64, err error) {
	for good < int64(len(data)) {
		rest := data[good:]
		if zero(rest) { // a file that grew before its bytes were written
			break
		}
		part, whole, err := readPart(t, rest)
		if err != nil { // perhaps the file grew before its bytes were written, and ends within a part
			if _, _, torn := readPart(t, bytes.TrimRight(rest, "\x00")); torn == nil {
				break
			}
			return parts, good, fmt.Errorf("the segment is damaged in part %d, which starts at byte %d: %w", len(parts), good, err)
		}
		if !whole {
			break
		}
		parts = append(Segment{Parts: parts}.EndAt(part.Start).Parts, part)
		good += part.Size()
	}
	return parts, good, nil
}

// readPart reads the part at the front of data; whole is false if data ends within it.
func readPart(t Track, data []byte) (p Part, whole bool, err error) {
	var moof *movieFragment
	for rest := data; ; {
		at := len(data) - len(rest)
		size, name, ok := boxStart(rest)
		if !ok || size > int64(len(rest)) {
			return Part{}, false, nil
		}
		if size < 8 {
			return Part{}, false, refused("the %q box at byte %d has an invalid size of %d bytes", name, at, size)
		}
		body := rest[8:size]
		rest = rest[size:]
		switch {
		case name == "styp" && at == 0:
		case name == "moof" && moof == nil:
			if moof, err = readStoredMoof(t, int64(at), body); err != nil {
				return Part{}, false, err
			}
		case name == "mdat" && moof != nil:
			p, err = moof.part(t, at+8, body)
			return p, err == nil, err
		default:
			return Part{}, false, refused("unexpected %q box at byte %d", name, at)
		}
	}
}

// boxStart reads the head of a stored box; ok is false if data ends within it.
func boxStart(data []byte) (size int64, name string, ok bool) {
	in := bytesReader{data: data}
	size = int64(in.u32())
	name = string(in.take(4))
	return size, name, !in.short
}

// readStoredMoof reads the moof box of a stored part.
func readStoredMoof(t Track, at int64, body []byte) (*movieFragment, error) {
	r := Reader{inner: map[uint32]*innerTrack{1: {defaults: sampleDefaults{flags: defaultFlags(t)}}}}
	m := &movieFragment{at: at}
	for rest := body; len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return nil, refused("damaged moof box")
		}
		if b.name == "traf" {
			if err := r.readTraf(m, b.body); err != nil {
				return nil, err
			}
		}
		rest = after
	}
	return m, nil
}

// part returns the part of a moof box and its mdat box, whose body starts at head.
func (m *movieFragment) part(t Track, head int, body []byte) (Part, error) {
	if len(m.tracks) != 1 || len(m.tracks[0].runs) != 1 || !m.tracks[0].dated {
		return Part{}, refused("the moof box does not have one run of samples and its time")
	}
	f := m.tracks[0]
	run := f.runs[0]
	if !run.placed || f.base+run.offset != int64(head) || Bytes(f.samples) != int64(len(body)) {
		return Part{}, refused("the samples do not match the mdat box")
	}
	p := Part{Start: f.start - t.Ticks(Lead) + t.Delay, Head: head, Samples: f.samples}
	for i := range p.Samples {
		shown := int64(p.Samples[i].Offset) - t.Delay
		if shown > math.MaxInt32 || shown < math.MinInt32 {
			return Part{}, refused("a sample has an invalid presentation time")
		}
		p.Samples[i].Offset = int32(shown)
	}
	return p, nil
}
