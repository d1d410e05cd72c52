package cmaf

import (
	"encoding/binary"
	"fmt"

	"github.com/Eyevinn/mp4ff/bits"
	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/weir"
)

// unreadable begins every error about bytes from outside.
const unreadable = "unreadable MP4: "

// refused returns an error about bytes that are not valid media.
func refused(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, unreadable+format, args...)
}

// bytesReader reads numbers from untrusted bytes. After the first read past the end everything is
// zero and short is set, so that a parser needs only one check, at its end.
type bytesReader struct {
	data  []byte
	short bool
}

func (r *bytesReader) take(n int) []byte {
	if n < 0 || n > len(r.data) {
		r.data, r.short = nil, true
		return nil
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *bytesReader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *bytesReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *bytesReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// number reads 64 bits when wide, else 32.
func (r *bytesReader) number(wide bool) uint64 {
	if wide {
		return r.u64()
	}
	return uint64(r.u32())
}

// full reads the head of a full box.
func (r *bytesReader) full() (version byte, flags uint32) {
	v := r.u32()
	return byte(v >> 24), v & 0xffffff
}

// foreignBox is a box in untrusted bytes.
type foreignBox struct {
	name string
	whole,
	body []byte
}

// nextBox reads the box at the front of data; ok is false if data is empty or does not start with
// a box.
func nextBox(data []byte) (b foreignBox, rest []byte, ok bool) {
	r := bytesReader{data: data}
	size := uint64(r.u32())
	name := string(r.take(4))
	head := uint64(8)
	switch size {
	case 0:
		size = uint64(len(data))
	case 1:
		size, head = r.u64(), 16
	}
	if r.short || size < head || size > uint64(len(data)) {
		return foreignBox{}, nil, false
	}
	return foreignBox{name, data[:size], data[head:size]}, data[size:], true
}

// child returns the body of the box at a path of names in the body of a container; nil = none.
func child(body []byte, path ...string) []byte {
	for len(path) > 0 {
		found := false
		for rest := body; len(rest) > 0; {
			b, after, ok := nextBox(rest)
			if !ok {
				return nil
			}
			if b.name == path[0] {
				body, found = b.body, true
				break
			}
			rest = after
		}
		if !found {
			return nil
		}
		path = path[1:]
	}
	return body
}

// boxWriter writes boxes one after the other.
type boxWriter struct{ data []byte }

// container writes a box; inside writes its body.
func (w *boxWriter) container(name string, inside func()) {
	at := len(w.data)
	w.u32(0)
	w.data = append(w.data, name...)
	inside()
	binary.BigEndian.PutUint32(w.data[at:], uint32(len(w.data)-at))
}

// table writes a full box of version 0; inside writes its body.
func (w *boxWriter) table(name string, inside func()) {
	w.container(name, func() {
		w.u32(0)
		inside()
	})
}

// box writes a box of the library. It panics on errors: the boxes that this package makes always
// fit.
func (w *boxWriter) box(b mp4.Box) {
	sw := bits.NewFixedSliceWriter(int(b.Size()))
	if err := b.EncodeSW(sw); err != nil {
		panic(fmt.Sprintf("encode %s box: %v", b.Type(), err))
	}
	w.data = append(w.data, sw.Bytes()...)
}

func (w *boxWriter) u32(v uint32) { w.data = binary.BigEndian.AppendUint32(w.data, v) }
func (w *boxWriter) u64(v uint64) { w.data = binary.BigEndian.AppendUint64(w.data, v) }
