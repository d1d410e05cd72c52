package c2pa

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"
	"math"

	"weir/internal/weir"
)

// boxUUID is the type of the uuid boxes of C2PA.
var boxUUID = [16]byte{0xd8, 0xfe, 0xc3, 0xd6, 0x1b, 0x0e, 0x48, 0x3c, 0x92, 0x97, 0x58, 0x28, 0x87, 0x7e, 0xc4, 0x81}

// Purposes of these boxes.
const (
	purposeManifest = "manifest"
	purposeMerkle   = "merkle"
)

// box returns a box.
func box(name string, parts ...[]byte) []byte {
	size := 8
	for _, p := range parts {
		size += len(p)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(size))
	b = append(b, name...)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// manifestBox returns the box of a manifest store. The 8 bytes before the store are the offset of
// the first box of purpose merkle, of which there is none in the same file.
func manifestBox(store []byte) []byte { return uuidBox(purposeManifest, make([]byte, 8), store) }

func uuidBox(purpose string, data ...[]byte) []byte {
	head := append(append(boxUUID[:len(boxUUID):len(boxUUID)], 0, 0, 0, 0), purpose...)
	return box("uuid", append([][]byte{append(head, 0)}, data...)...)
}

// readUUIDBox returns the purpose and the data of the body of a uuid box; ok is false if it is not
// one of C2PA.
func readUUIDBox(body []byte) (purpose string, data []byte, ok bool) {
	body, ok = bytes.CutPrefix(body, boxUUID[:])
	if !ok || len(body) < 4 {
		return "", nil, false
	}
	name, data, ok := bytes.Cut(body[4:], []byte{0})
	return string(name), data, ok
}

// headBytes is how much of a box is needed to know what it is: its size, name, large size or UUID.
const headBytes = 24

// rootBox is a box that is in no other box.
type rootBox struct {
	name     string
	at, size int64
	head     int64 // bytes before its body
}

// maxRootBoxes bounds how many boxes of a file are read.
const maxRootBoxes = 1 << 24

// walk calls f for each root box of a file. head has the first bytes of the box.
func walk(r io.ReaderAt, size int64, f func(b rootBox, head []byte) error) error {
	var buf [headBytes]byte
	count := 0
	for at := int64(0); at < size; count++ {
		head := buf[:min(headBytes, size-at)]
		if _, err := r.ReadAt(head, at); err != nil && err != io.EOF {
			return err
		}
		b, err := readHead(head, at)
		if err != nil {
			return err
		}
		if b.size == 0 {
			b.size = size - at
		}
		if b.size > size-at || count == maxRootBoxes {
			return notBMFF("the box at byte %d does not end in the file", at)
		}
		if err := f(b, head[:min(int64(len(head)), b.size)]); err != nil {
			return err
		}
		at += b.size
	}
	return nil
}

// readHead reads the head of the box at the given offset. Size 0 = the box ends with the file.
func readHead(head []byte, at int64) (rootBox, error) {
	if len(head) < 8 {
		return rootBox{}, notBMFF("the file ends at byte %d, within a box", at)
	}
	b := rootBox{name: string(head[4:8]), at: at, size: int64(binary.BigEndian.Uint32(head)), head: 8}
	if b.size == 1 {
		if len(head) < 16 {
			return rootBox{}, notBMFF("the file ends at byte %d, within a box", at)
		}
		large := binary.BigEndian.Uint64(head[8:])
		if large > math.MaxInt64-uint64(at) {
			return rootBox{}, notBMFF("the box at byte %d does not end in the file", at)
		}
		b.size, b.head = int64(large), 16
		if b.size == 0 {
			b.size = 1 // refused below
		}
	}
	if b.size != 0 && b.size < b.head {
		return rootBox{}, notBMFF("the box at byte %d is shorter than its head", at)
	}
	return b, nil
}

func notBMFF(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "not an MP4 file: "+format, args...)
}

// exclusion says which root boxes are not hashed: those with a name, and with given bytes.
type exclusion struct {
	name string
	data []excludedData
}

type excludedData struct {
	offset int
	value  []byte
}

func (e exclusion) has(name string, head []byte) bool {
	if e.name != name {
		return false
	}
	for _, d := range e.data {
		if d.offset > len(head) || !bytes.HasPrefix(head[d.offset:], d.value) {
			return false
		}
	}
	return true
}

// exclusions are what every hash leaves out, and nothing else is left out by weir.
func exclusions() []exclusion {
	return []exclusion{{name: "uuid", data: []excludedData{{8, boxUUID[:]}}}, {name: "ftyp"}, {name: "mfra"}}
}

// Hash is the hash of a BMFF file: SHA-256 of its root boxes in order, each with its offset before
// it. The boxes of C2PA, ftyp and mfra are left out, so only the size of a manifest box must be
// known. The file is written to it from its start.
//
// Its JSON is its state, from which it can be continued.
type Hash struct {
	sum     hash.Hash
	exclude []exclusion
	at      int64  // bytes that were written
	left    int64  // bytes of the current box that are missing; -1 = all until the end
	skip    bool   // the current box is not hashed
	head    []byte // first bytes of the next box
	err     error
}

// NewHash returns the hash of an empty file.
func NewHash() *Hash { return newHash(sha256.New(), exclusions()) }

func newHash(sum hash.Hash, exclude []exclusion) *Hash { return &Hash{sum: sum, exclude: exclude} }

// At returns how many bytes were written.
func (h *Hash) At() int64 { return h.at }

func (h *Hash) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 && h.err == nil {
		if h.left != 0 {
			n := len(p)
			if h.left > 0 {
				n = int(min(int64(n), h.left))
				h.left -= int64(n)
			}
			if !h.skip {
				h.sum.Write(p[:n])
			}
			p, h.at = p[n:], h.at+int64(n)
			continue
		}
		n := min(len(p), h.wanted()-len(h.head))
		h.head = append(h.head, p[:n]...)
		p, h.at = p[n:], h.at+int64(n)
		if len(h.head) >= 8 && len(h.head) == h.wanted() {
			h.beginBox()
		}
	}
	return size, h.err
}

// WriteAt writes bytes of a file that may have been read before, or several times: it takes those
// that follow the ones it has.
func (h *Hash) WriteAt(p []byte, offset int64) (int, error) {
	switch {
	case offset > h.at:
		return 0, weir.Errorf(weir.Internal, "bytes %d to %d of a file are missing in its hash", h.at, offset)
	case offset+int64(len(p)) > h.at:
		if _, err := h.Write(p[h.at-offset:]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// wanted returns how many bytes of the next box are needed to know what it is.
func (h *Hash) wanted() int {
	if len(h.head) < 8 {
		return 8
	}
	if size := binary.BigEndian.Uint32(h.head); size > 1 {
		return int(max(8, min(size, headBytes)))
	}
	return headBytes
}

// beginBox begins the box whose head is complete.
func (h *Hash) beginBox() {
	b, err := readHead(h.head, h.at-int64(len(h.head)))
	if err != nil {
		h.err = err
		return
	}
	if b.size != 0 && b.size < int64(len(h.head)) {
		// Only a box with a large size can be shorter than what was read of it.
		h.err = notBMFF("the box at byte %d has a large size, but is small", b.at)
		return
	}
	h.skip = false
	for _, e := range h.exclude {
		h.skip = h.skip || e.has(b.name, h.head)
	}
	if !h.skip {
		h.sum.Write(binary.BigEndian.AppendUint64(nil, uint64(b.at)))
		h.sum.Write(h.head)
	}
	h.left = b.size - int64(len(h.head))
	if b.size == 0 {
		h.left = -1
	}
	h.head = h.head[:0]
}

// Sum returns the hash of the file. It is an error if the file ends within a box.
func (h *Hash) Sum() ([]byte, error) {
	if len(h.head) >= 8 && binary.BigEndian.Uint32(h.head) == 0 {
		h.beginBox()
	}
	if h.err == nil && (len(h.head) > 0 || h.left > 0) {
		h.err = notBMFF("the file ends at byte %d, within a box", h.at)
	}
	if h.err != nil {
		return nil, h.err
	}
	return h.sum.Sum(nil), nil
}

// Clone returns a copy, which is continued by itself.
func (h *Hash) Clone() (*Hash, error) {
	sum, err := h.sum.(hash.Cloner).Clone()
	if err != nil {
		return nil, err
	}
	clone := *h
	clone.sum, clone.head = sum, bytes.Clone(h.head)
	return &clone, nil
}

// hashState is the JSON of a Hash.
type hashState struct {
	At   int64  `json:"at"`
	Left int64  `json:"left,omitempty"`
	Skip bool   `json:"skip,omitempty"`
	Head []byte `json:"head,omitempty"`
	Sum  []byte `json:"sum"`
}

func (h *Hash) MarshalJSON() ([]byte, error) {
	sum, err := h.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(hashState{h.at, h.left, h.skip, h.head, sum})
}

func (h *Hash) UnmarshalJSON(data []byte) error {
	var s hashState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*h = *NewHash()
	h.at, h.left, h.skip, h.head = s.At, s.Left, s.Skip, s.Head
	return h.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(s.Sum)
}

// Insert puts the box of a manifest into an init segment or the head of a file, after its ftyp box.
// Places in the moov box are not changed.
func Insert(file, box []byte) ([]byte, error) {
	if len(file) < 8 || string(file[4:8]) != "ftyp" || int64(binary.BigEndian.Uint32(file)) > int64(len(file)) {
		return nil, notBMFF("it does not start with an ftyp box")
	}
	at := binary.BigEndian.Uint32(file)
	out := make([]byte, 0, len(file)+len(box))
	out = append(append(out, file[:at]...), box...)
	return append(out, file[at:]...), nil
}

// trackID returns the number of the first track of an init segment.
func trackID(init []byte) (int, error) {
	tkhd := find(init, "moov", "trak", "tkhd")
	at := 12
	if len(tkhd) > 0 && tkhd[0] == 1 {
		at = 20
	}
	if len(tkhd) < at+4 {
		return 0, notBMFF("the init segment has no track")
	}
	return int(binary.BigEndian.Uint32(tkhd[at:])), nil
}

// find returns the body of the box at a path of names; nil = none.
func find(data []byte, path ...string) []byte {
	for len(data) >= 8 {
		size := int64(binary.BigEndian.Uint32(data))
		if size < 8 || size > int64(len(data)) {
			return nil
		}
		if string(data[4:8]) == path[0] {
			if len(path) == 1 {
				return data[8:size]
			}
			return find(data[8:size], path[1:]...)
		}
		data = data[size:]
	}
	return nil
}

// IsSegment reports whether a file that starts with these bytes is a segment of a track, and not a
// file by itself.
func IsSegment(start []byte) bool {
	if len(start) < 8 {
		return false
	}
	switch string(start[4:8]) {
	case "styp", "sidx", "moof", "emsg", "prft", "uuid":
		return true
	}
	return false
}
