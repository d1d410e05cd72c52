package cmaf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// The index of a track is an append-only list of entries, one for each segment. An entry is a head
// of 12 bytes (the length of the body, the CRC-32C of the body, the CRC-32C of these two) and a
// body of varints:
//
//	flags: 1 discontinuity, 2 wall clock follows
//	[wall clock in nanoseconds since 1970]
//	number of parts, then for each part
//	    start, minus the end of the part before
//	    head, number of samples
//	    durations as pairs of count and duration
//	    sync as the lengths of alternating runs, the first one of samples that are not sync
//	    unit of the offsets; if it is not 0, the offsets in that unit
//	    sizes
//
// This is 2 bytes a sample for audio and 3 to 4 for video.
const entryHead = 12

const (
	entryDiscontinuity = 1 << iota
	entryWall
)

// AppendEntry adds the index entry of a segment to dst.
func AppendEntry(dst []byte, s Segment) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, entryHead)...)
	dst = appendBody(dst, s)
	head, body := dst[at:at+entryHead], dst[at+entryHead:]
	binary.LittleEndian.PutUint32(head, uint32(len(body)))
	binary.LittleEndian.PutUint32(head[4:], checksum(body))
	binary.LittleEndian.PutUint32(head[8:], checksum(head[:8]))
	return dst
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func appendBody(dst []byte, s Segment) []byte {
	var flags uint64
	if s.Discontinuity {
		flags |= entryDiscontinuity
	}
	if !s.Wall.IsZero() {
		flags |= entryWall
	}
	dst = binary.AppendUvarint(dst, flags)
	if !s.Wall.IsZero() {
		dst = binary.AppendVarint(dst, s.Wall.UnixNano())
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Parts)))
	var expected int64
	for _, p := range s.Parts {
		dst = binary.AppendVarint(dst, p.Start-expected)
		dst = binary.AppendUvarint(dst, uint64(p.Head))
		dst = appendSamples(dst, p.Samples)
		expected = p.End()
	}
	return dst
}

func appendSamples(dst []byte, samples []Sample) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(samples)))
	var unit uint32
	for i := 0; i < len(samples); {
		first := i
		for i < len(samples) && samples[i].Duration == samples[first].Duration {
			i++
		}
		dst = binary.AppendUvarint(dst, uint64(i-first))
		dst = binary.AppendUvarint(dst, uint64(samples[first].Duration))
	}
	sync := false
	for i := 0; i < len(samples); {
		first := i
		for i < len(samples) && samples[i].Sync == sync {
			i++
		}
		dst = binary.AppendUvarint(dst, uint64(i-first))
		sync = !sync
	}
	for _, s := range samples {
		unit = gcd(unit, magnitude(s.Offset))
	}
	dst = binary.AppendUvarint(dst, uint64(unit))
	if unit > 0 {
		for _, s := range samples {
			dst = binary.AppendVarint(dst, int64(s.Offset)/int64(unit))
		}
	}
	for _, s := range samples {
		dst = binary.AppendUvarint(dst, uint64(s.Size))
	}
	return dst
}

func magnitude(v int32) uint32 {
	if v < 0 {
		return uint32(-int64(v))
	}
	return uint32(v)
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ReadIndex reads the entries of an index. An incomplete last entry is no error: good is the number
// of bytes before it, where writing continues. Damage before that is an error, which comes with the
// segments before the damage.
func ReadIndex(data []byte) (segments []Segment, good int, err error) {
	for good < len(data) {
		rest := data[good:]
		if len(rest) < entryHead {
			break
		}
		head, body := rest[:entryHead], rest[entryHead:]
		if binary.LittleEndian.Uint32(head[8:]) != checksum(head[:8]) {
			if zero(body) { // a file that grew before its bytes were written
				break
			}
			return segments, good, fmt.Errorf("the index is damaged at byte %d: the head of entry %d has a wrong checksum", good, len(segments))
		}
		length := int(binary.LittleEndian.Uint32(head))
		if length > len(body) {
			break
		}
		if binary.LittleEndian.Uint32(head[4:]) != checksum(body[:length]) {
			if zero(body[length:]) {
				break
			}
			return segments, good, fmt.Errorf("the index is damaged at byte %d: entry %d has a wrong checksum", good, len(segments))
		}
		s, ok := readEntry(body[:length])
		if !ok {
			return segments, good, fmt.Errorf("the index is damaged at byte %d: entry %d is invalid", good, len(segments))
		}
		segments = append(segments, s)
		good += entryHead + length
	}
	return segments, good, nil
}

func zero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func readEntry(body []byte) (Segment, bool) {
	in := varintReader{data: body}
	flags := in.uint(math.MaxUint32)
	s := Segment{Discontinuity: flags&entryDiscontinuity != 0}
	if flags&entryWall != 0 {
		s.Wall = time.Unix(0, in.int()).UTC()
	}
	parts := in.uint(uint64(len(in.data)))
	if parts > 0 && !in.bad {
		s.Parts = make([]Part, 0, min(parts, 1024))
	}
	var expected int64
	for range parts {
		p := Part{Start: expected + in.int(), Head: int(in.uint(math.MaxInt32))}
		p.Samples = in.samples()
		if in.bad {
			return Segment{}, false
		}
		s.Parts = append(s.Parts, p)
		expected = p.End()
	}
	return s, !in.bad && len(in.data) == 0
}

// varintReader reads varints. After the first one that is not valid everything is zero and bad is
// set.
type varintReader struct {
	data []byte
	bad  bool
}

func (r *varintReader) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 || v > limit {
		r.data, r.bad = nil, true
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *varintReader) int() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.data, r.bad = nil, true
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *varintReader) samples() []Sample {
	// Each sample has at least one byte, its size: a count above that is refused before it costs
	// memory.
	n := int(r.uint(uint64(len(r.data))))
	if n == 0 {
		r.uint(0) // the unit of no offsets
		return nil
	}
	samples := make([]Sample, n)
	for i := 0; i < n && !r.bad; {
		run, duration := int(r.uint(uint64(n-i))), uint32(r.uint(math.MaxUint32))
		r.bad = r.bad || run == 0
		for range run {
			samples[i].Duration = duration
			i++
		}
	}
	sync := false
	for i := 0; i < n && !r.bad; {
		run := int(r.uint(uint64(n - i)))
		r.bad = r.bad || run == 0 && i > 0
		for range run {
			samples[i].Sync = sync
			i++
		}
		sync = !sync
	}
	if unit := int64(r.uint(1 << 31)); unit > 0 {
		for i := range samples {
			v := r.int()
			if v > math.MaxInt32 || v < math.MinInt32 || v*unit > math.MaxInt32 || v*unit < math.MinInt32 {
				r.bad = true
				return nil
			}
			samples[i].Offset = int32(v * unit)
		}
	}
	for i := range samples {
		samples[i].Size = uint32(r.uint(math.MaxUint32))
	}
	return samples
}
