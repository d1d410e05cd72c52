package cmaf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"weir/internal/weir"
)

// Limits on what a Reader holds in memory. The fragments that ffmpeg writes for weir are far
// smaller.
const (
	maxMoov    = 64 << 20
	maxMoof    = 16 << 20
	maxMdat    = 256 << 20
	maxSamples = 1 << 20 // of one moof
	maxTime    = 1 << 60 // ticks, so that sums can't overflow
)

// Reader reads fragmented MP4 from a stream: a moov box that describes the tracks, then pairs of
// moof and mdat. It holds one fragment at a time in memory. Its input is untrusted: what it can't
// read is an error of kind weir.Invalid.
type Reader struct {
	in     *bufio.Reader
	at     int64 // bytes read so far
	tracks []Track
	inner  map[uint32]*innerTrack // by the id that the file gives it
	ready  []Fragment
	err    error // from reading the tracks, or at the end of the stream
	limit  int64 // bytes that the samples of a fragment may have
}

// innerTrack is the state of a Reader for a track.
type innerTrack struct {
	position int // in Reader.tracks; -1 = a track that is neither video nor audio
	shift    int64
	end      int64 // of the last fragment, in the file's own time
	defaults sampleDefaults
}

type sampleDefaults struct{ duration, size, flags uint32 }

// NewReader returns a reader of r. Nothing is read before the first call.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), limit: maxMdat}
}

// Limit sets how many bytes the samples of a fragment may have, for callers that read from many
// untrusted sources at the same time.
func (r *Reader) Limit(bytes int64) { r.limit = bytes }

// Tracks reads up to the end of the moov box and returns its video and audio tracks.
func (r *Reader) Tracks() ([]Track, error) {
	for r.inner == nil && r.err == nil {
		head, err := r.header()
		if errors.Is(err, io.EOF) {
			err = refused("it has no moov box, which describes its tracks")
		}
		if err != nil {
			r.err = err
			break
		}
		switch head.name {
		case "moov":
			r.err = r.readMoov(head)
		case "moof", "mdat":
			r.err = refused("the %s box at byte %d comes before the moov box", head.name, head.at)
		default:
			r.err = r.skip(head)
		}
	}
	if r.inner == nil {
		return nil, r.err
	}
	return slices.Clone(r.tracks), nil
}

// Next returns the next run of samples of a track, and io.EOF after the last one. The caller owns
// its bytes. The edit list of the file, if any, is applied to the times.
func (r *Reader) Next() (Fragment, error) {
	if _, err := r.Tracks(); err != nil {
		return Fragment{}, err
	}
	for len(r.ready) == 0 {
		if r.err == nil {
			r.err = r.fill()
		}
		if r.err != nil {
			return Fragment{}, r.err
		}
	}
	f := r.ready[0]
	r.ready = r.ready[1:]
	return f, nil
}

// fill reads boxes up to the end of the next pair of moof and mdat.
func (r *Reader) fill() error {
	var moof *movieFragment
	for {
		head, err := r.header()
		if errors.Is(err, io.EOF) && moof != nil {
			err = refused("it ends after a moof box, before its mdat box")
		}
		if err != nil {
			return err
		}
		switch {
		case head.name == "moov":
			return refused("a second moov box at byte %d", head.at)
		case head.name == "moof" && moof != nil:
			return refused("the moof box before byte %d has no mdat box", head.at)
		case head.name == "moof":
			if moof, err = r.readMoof(head); err != nil {
				return err
			}
		case head.name == "mdat" && moof != nil:
			return r.readMdat(head, moof)
		default:
			if err := r.skip(head); err != nil {
				return err
			}
		}
	}
}

// boxHead is the head of a box in the stream.
type boxHead struct {
	name string
	at   int64 // where the box starts
	size int64 // of its body
}

// header reads the head of the next box; io.EOF means that there is none.
func (r *Reader) header() (boxHead, error) {
	h := boxHead{at: r.at}
	var b [16]byte
	if n, err := io.ReadFull(r.in, b[:8]); err != nil {
		if n > 0 {
			return h, r.broken(err)
		}
		return h, err
	}
	r.at += 8
	h.name = string(b[4:8])
	size, head := uint64(binary.BigEndian.Uint32(b[:4])), uint64(8)
	if size == 1 {
		if _, err := io.ReadFull(r.in, b[8:]); err != nil {
			return h, r.broken(err)
		}
		r.at += 8
		size, head = binary.BigEndian.Uint64(b[8:]), 16
	}
	if size < head || size > math.MaxInt64/2 {
		return h, refused("the %q box at byte %d has an invalid size of %d bytes", h.name, h.at, size)
	}
	h.size = int64(size - head)
	return h, nil
}

// ErrBrokenOff is the cause of an error about a stream that ends inside a box.
var ErrBrokenOff = errors.New("unexpected end of the input")

// broken is the error for a stream that ends inside a box.
func (r *Reader) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return weir.Wrap(weir.Invalid, ErrBrokenOff, unreadable+"it ends inside a box, after byte %d", r.at)
	}
	return fmt.Errorf("read MP4 at byte %d: %w", r.at, err)
}

func (r *Reader) skip(h boxHead) error {
	n, err := io.CopyN(io.Discard, r.in, h.size)
	r.at += n
	if err != nil {
		return r.broken(err)
	}
	return nil
}

// body reads the body of a box. It allocates memory as bytes arrive, not by the size in the head.
func (r *Reader) body(h boxHead, limit int64) ([]byte, error) {
	if h.size > limit {
		return nil, refused("the %s box at byte %d has %d bytes; the maximum is %d", h.name, h.at, h.size, limit)
	}
	body := make([]byte, 0, min(h.size, 1<<20))
	for int64(len(body)) < h.size {
		if len(body) == cap(body) {
			body = slices.Grow(body, int(min(int64(len(body)), h.size-int64(len(body)))))
		}
		n, err := io.ReadFull(r.in, body[len(body):min(int64(cap(body)), h.size)])
		r.at += int64(n)
		body = body[:len(body)+n]
		if err != nil {
			return nil, r.broken(err)
		}
	}
	return body, nil
}

// movieFragment is the content of a moof box.
type movieFragment struct {
	at      int64
	samples int
	tracks  []trackFragment
}

// trackFragment is the content of a traf box.
type trackFragment struct {
	track   *innerTrack
	id      uint32
	base    int64 // origin of the offsets of its runs; -1 = the end of the track before
	start   int64
	dated   bool // start is set
	samples []Sample
	runs    []sampleRun
}

// sampleRun is a run of consecutive samples.
type sampleRun struct {
	offset  int64
	placed  bool // offset is set
	samples int
}

func (r *Reader) readMoof(h boxHead) (*movieFragment, error) {
	body, err := r.body(h, maxMoof)
	if err != nil {
		return nil, err
	}
	m := &movieFragment{at: h.at}
	for rest := body; len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return nil, refused("damaged moof box at byte %d", h.at)
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

func (r *Reader) readTraf(m *movieFragment, body []byte) error {
	t := trackFragment{base: m.at}
	var defaults sampleDefaults
	for rest := body; len(rest) > 0; {
		b, after, ok := nextBox(rest)
		if !ok {
			return refused("damaged traf box in the moof box at byte %d", m.at)
		}
		rest = after
		if t.track == nil && b.name != "tfhd" {
			return refused("the traf box in the moof box at byte %d does not start with tfhd", m.at)
		}
		var err error
		switch b.name {
		case "tfhd":
			defaults, err = r.readTfhd(m, &t, b.body)
		case "tfdt":
			err = t.readTfdt(b.body)
		case "trun":
			err = t.readTrun(m, b.body, defaults)
		}
		if err != nil {
			return err
		}
	}
	if t.track == nil {
		return refused("a traf box without tfhd in the moof box at byte %d", m.at)
	}
	m.tracks = append(m.tracks, t)
	return nil
}

func (r *Reader) readTfhd(m *movieFragment, t *trackFragment, body []byte) (sampleDefaults, error) {
	in := bytesReader{data: body}
	_, flags := in.full()
	t.id = in.u32()
	t.track = r.inner[t.id]
	if t.track == nil {
		return sampleDefaults{}, refused("the moof box at byte %d has samples of track %d, which the moov box does not list", m.at, t.id)
	}
	defaults := t.track.defaults
	if flags&0x1 != 0 {
		t.base = int64(min(in.u64(), maxTime))
	} else if flags&0x20000 == 0 && len(m.tracks) > 0 {
		t.base = -1
	}
	if flags&0x2 != 0 && in.u32() > 1 {
		return defaults, refused("track %d changes its codec configuration at byte %d; it must not change", t.id, m.at)
	}
	if flags&0x8 != 0 {
		defaults.duration = in.u32()
	}
	if flags&0x10 != 0 {
		defaults.size = in.u32()
	}
	if flags&0x20 != 0 {
		defaults.flags = in.u32()
	}
	if in.short {
		return defaults, refused("damaged tfhd box in the moof box at byte %d", m.at)
	}
	return defaults, nil
}

func (t *trackFragment) readTfdt(body []byte) error {
	in := bytesReader{data: body}
	version, _ := in.full()
	t.start, t.dated = int64(in.number(version > 0)), true
	if in.short || t.start > maxTime || t.start < -maxTime {
		return refused("track %d has a fragment with an invalid start time", t.id)
	}
	return nil
}

const notSync = 0x10000 // a flag of samples

func (t *trackFragment) readTrun(m *movieFragment, body []byte, defaults sampleDefaults) error {
	in := bytesReader{data: body}
	_, flags := in.full()
	count := in.u32()
	m.samples += int(min(count, maxSamples+1))
	if m.samples > maxSamples {
		return refused("the moof box at byte %d has more than %d samples", m.at, maxSamples)
	}
	run := sampleRun{samples: int(count)}
	if flags&0x1 != 0 {
		run.offset, run.placed = int64(int32(in.u32())), true
	}
	first, hasFirst := uint32(0), flags&0x4 != 0
	if hasFirst {
		first = in.u32()
	}
	t.samples = slices.Grow(t.samples, int(count))
	for i := range int(count) {
		d := defaults
		if i == 0 && hasFirst {
			d.flags = first
		}
		var offset int32
		if flags&0x100 != 0 {
			d.duration = in.u32()
		}
		if flags&0x200 != 0 {
			d.size = in.u32()
		}
		if flags&0x400 != 0 {
			d.flags = in.u32()
		}
		if flags&0x800 != 0 {
			offset = int32(in.u32()) // version 0 says unsigned, but nobody waits 13 hours for a frame
		}
		if in.short {
			return refused("damaged trun box in the moof box at byte %d", m.at)
		}
		t.samples = append(t.samples, Sample{Duration: d.duration, Offset: offset, Size: d.size, Sync: d.flags&notSync == 0})
	}
	t.runs = append(t.runs, run)
	return nil
}

// readMdat reads the samples of a moof and makes its fragments ready.
func (r *Reader) readMdat(h boxHead, m *movieFragment) error {
	start := r.at
	data, err := r.body(h, r.limit)
	if err != nil {
		return err
	}
	end := m.at // of the samples of the track before
	for _, t := range m.tracks {
		base := t.base
		if base < 0 {
			base = end
		}
		samples, last, err := t.collect(base-start, data)
		if err != nil {
			return err
		}
		end = last + start
		if !t.dated {
			t.start = t.track.end
		}
		t.track.end = t.start + Span(t.samples)
		if len(t.samples) == 0 || t.track.position < 0 {
			continue
		}
		r.ready = append(r.ready, Fragment{Track: t.track.position, Start: t.start + t.track.shift, Samples: t.samples, Data: samples})
	}
	return nil
}

// collect returns the bytes of the track's samples and where in data they end. base is the origin of
// the offsets of its runs, relative to data.
func (t *trackFragment) collect(base int64, data []byte) (samples []byte, end int64, err error) {
	end = base
	rest := t.samples
	for i, run := range t.runs {
		from := end
		if run.placed {
			from = base + run.offset
		}
		size := Bytes(rest[:run.samples])
		rest = rest[run.samples:]
		end = from + size
		switch {
		case size == 0:
		case from < 0 || end > int64(len(data)):
			return nil, 0, refused("track %d has samples that are not in the mdat box of their fragment", t.id)
		case i == 0 || len(samples) == 0:
			samples = data[from:end:end]
		default:
			samples = append(samples, data[from:end]...)
		}
	}
	return samples, end, nil
}
