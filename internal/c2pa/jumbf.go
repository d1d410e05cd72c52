package c2pa

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"weir/internal/weir"
)

// The content types of superboxes of JUMBF. The rest of their UUIDs is kindSuffix.
const (
	kindStore      = "c2pa"
	kindManifest   = "c2ma"
	kindUpdate     = "c2um" // a manifest that does not bind the media
	kindAssertions = "c2as"
	kindClaim      = "c2cl"
	kindSignature  = "c2cs"
	kindCBOR       = "cbor"
)

var kindSuffix = [12]byte{0x00, 0x11, 0x00, 0x10, 0x80, 0x00, 0x00, 0xaa, 0x00, 0x38, 0x9b, 0x71}

// Labels.
const (
	labelStore      = "c2pa"
	labelAssertions = "c2pa.assertions"
	labelClaim      = "c2pa.claim.v2"
	labelClaimV1    = "c2pa.claim"
	labelSignature  = "c2pa.signature"
)

// superbox returns a superbox.
func superbox(kind, label string, contents ...[]byte) []byte {
	description := append(append([]byte(kind), kindSuffix[:]...), 3) // it can be requested and has a label
	description = append(append(description, label...), 0)
	return box("jumb", append([][]byte{box("jumd", description)}, contents...)...)
}

// cborBox returns the superbox of an assertion.
func cborBox(label string, content any) []byte {
	return superbox(kindCBOR, label, box("cbor", encode(content)))
}

// jumbfBox is a superbox that was read.
type jumbfBox struct {
	kind, label string
	whole       []byte
	inner       []*jumbfBox
	content     []byte // of its CBOR box; nil = none
}

// hashed returns what hashes of the box are made of.
func (b *jumbfBox) hashed() []byte { return b.whole[8:] }

// child returns the inner box with a label; nil = none.
func (b *jumbfBox) child(label string) *jumbfBox {
	if b == nil {
		return nil
	}
	for _, c := range b.inner {
		if c.label == label {
			return c
		}
	}
	return nil
}

// Bounds of what is read.
const (
	maxStore     = 16 << 20 // bytes of a manifest store
	maxSuperDeep = 8
	maxSuperAll  = 1 << 14
)

// readStore reads a manifest store.
func readStore(data []byte) (*jumbfBox, error) {
	count := 0
	store, rest, err := readSuperbox(data, 0, &count)
	switch {
	case err != nil:
		return nil, err
	case len(bytes.Trim(rest, "\x00")) > 0:
		return nil, notJUMBF("there are %d bytes after it", len(rest))
	case store.kind != kindStore || store.label != labelStore:
		return nil, notJUMBF("it is a box %q", store.label)
	}
	return store, nil
}

func readSuperbox(data []byte, depth int, count *int) (b *jumbfBox, rest []byte, err error) {
	if *count++; *count > maxSuperAll || depth > maxSuperDeep {
		return nil, nil, notJUMBF("it has too many boxes, or too many in each other")
	}
	name, body, rest, ok := nextBox(data)
	if !ok || name != "jumb" {
		return nil, nil, notJUMBF("a superbox is damaged")
	}
	b = &jumbfBox{whole: data[:len(data)-len(rest)]}
	name, description, body, ok := nextBox(body)
	if !ok || name != "jumd" || len(description) < 17 {
		return nil, nil, notJUMBF("a superbox has no description")
	}
	b.kind = hex.EncodeToString(description[:16])
	if bytes.Equal(description[4:16], kindSuffix[:]) {
		b.kind = string(description[:4])
	}
	label, _, ok := bytes.Cut(description[17:], []byte{0})
	if !ok || description[16]&3 != 3 {
		return nil, nil, notJUMBF("a superbox has no label, or can't be requested by it")
	}
	b.label = string(label)
	for len(body) > 0 {
		name, content, after, ok := nextBox(body)
		switch {
		case !ok:
			return nil, nil, notJUMBF("the box %q is damaged", b.label)
		case name == "jumb":
			inner, _, err := readSuperbox(body, depth+1, count)
			if err != nil {
				return nil, nil, err
			}
			b.inner = append(b.inner, inner)
		case b.content == nil && name == "cbor":
			b.content = content
		}
		body = after
	}
	return b, rest, nil
}

// nextBox reads the box at the start of data.
func nextBox(data []byte) (name string, body, rest []byte, ok bool) {
	if len(data) < 8 {
		return "", nil, nil, false
	}
	size := uint64(binary.BigEndian.Uint32(data))
	if size < 8 || size > uint64(len(data)) {
		return "", nil, nil, false
	}
	return string(data[4:8]), data[8:size], data[size:], true
}

func notJUMBF(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "unreadable manifest store: "+format, args...)
}

// address is the prefix of the address of a box in the same store.
const address = "self#jumbf="

// resolve returns the box at an address, which is relative to a manifest or starts with a slash.
func resolve(store, manifest *jumbfBox, uri string) *jumbfBox {
	path, ok := strings.CutPrefix(uri, address)
	if !ok {
		return nil
	}
	at := manifest
	if absolute, ok := strings.CutPrefix(path, "/"); ok {
		if path, ok = strings.CutPrefix(absolute, labelStore+"/"); !ok {
			return nil
		}
		at = store
	}
	for label := range strings.SplitSeq(path, "/") {
		at = at.child(label)
	}
	return at
}
