// Package c2pa says where media comes from, in signed manifests as the C2PA specification 2.2
// defines them: it signs MP4 files and tracks in segments, and verifies both. It knows boxes,
// hashes and signatures; the callers read and write the media.
//
// sign.go and tree.go are for those who sign, verify.go for those who verify. Below them are
// manifest.go (what is said), cose.go (signatures), jumbf.go, cbor.go and box.go (formats).
package c2pa

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"weir/internal/weir"
)

// File is the manifest of a file that is being signed. The file gets the Blank box after its ftyp
// box. When the rest is final, and hashed with it, Sign returns the box to put there instead.
type File struct {
	signer *Signer
	draft  draft
	blank  []byte
}

// binding is the assertion with the hashes of the media.
type binding struct {
	Exclusions []bindingExclusion `cbor:"exclusions"`
	Alg        string             `cbor:"alg,omitempty"`
	Name       string             `cbor:"name,omitempty"`
	Hash       []byte             `cbor:"hash,omitempty"`
	Merkle     []bindingTrack     `cbor:"merkle,omitempty"`
}

type bindingExclusion struct {
	XPath  string        `cbor:"xpath"`
	Data   []bindingData `cbor:"data,omitempty"`
	Length *int64        `cbor:"length,omitempty"`
	Subset []any         `cbor:"subset,omitempty"`
	Flags  []byte        `cbor:"flags,omitempty"`
	Exact  *bool         `cbor:"exact,omitempty"`
	Ver    *int          `cbor:"version,omitempty"`
}

type bindingData struct {
	Offset int    `cbor:"offset"`
	Value  []byte `cbor:"value"`
}

// bindingTrack is the row of the Tree of a track.
type bindingTrack struct {
	Track    int      `cbor:"uniqueId"`
	Local    int      `cbor:"localId"`
	Count    int      `cbor:"count"`
	Alg      string   `cbor:"alg,omitempty"`
	InitHash []byte   `cbor:"initHash,omitempty"`
	Hashes   [][]byte `cbor:"hashes"`
}

func newBinding(name string) binding {
	b := binding{Alg: "sha256", Name: name}
	for _, e := range exclusions() {
		x := bindingExclusion{XPath: "/" + e.name}
		for _, d := range e.data {
			x.Data = append(x.Data, bindingData{d.offset, d.value})
		}
		b.Exclusions = append(b.Exclusions, x)
	}
	return b
}

// File begins the manifest of a file.
func (s *Signer) File(c Content) (*File, error) {
	d, err := s.newDraft(c)
	if err != nil {
		return nil, err
	}
	f := &File{signer: s, draft: d}
	store, err := d.store(fileBinding(make([]byte, sha256.Size)), s.blank)
	f.blank = manifestBox(store)
	return f, err
}

func fileBinding(sum []byte) binding {
	b := newBinding("file")
	b.Hash = sum
	return b
}

// Blank returns a box with the size of the manifest's box. The size depends on the content and the
// signer alone.
func (f *File) Blank() []byte { return f.blank }

// Sign returns the box of the manifest. sum is that of a Hash of the file with the blank box.
func (f *File) Sign(ctx context.Context, sum []byte) (box []byte, signed weir.Provenance, err error) {
	store, err := f.draft.store(fileBinding(sum), func(claim []byte) ([]byte, error) { return f.signer.sign(ctx, claim) })
	if err != nil {
		return nil, signed, err
	}
	if box = manifestBox(store); len(box) != len(f.blank) {
		return nil, signed, fmt.Errorf("a manifest has %d bytes, %d were reserved", len(box), len(f.blank))
	}
	return box, f.signer.provenance(f.draft.id), nil
}

func (s *Signer) provenance(id string) weir.Provenance {
	by := s.Summary()
	return weir.Provenance{Signed: true, ManifestID: id, Alg: by.Alg, CertFingerprint: by.Fingerprint}
}

// Fragments signs tracks in segments, all with one manifest. The trees have all segments; inits
// are the init segments of the same tracks, each of which gets the box: see Insert. The tracks of
// the content are the same ones too, if it names them.
func (s *Signer) Fragments(ctx context.Context, c Content, trees []*Tree, inits [][]byte) (box []byte, signed weir.Provenance, err error) {
	if c.Tracks, err = c.Tracks.numbered(trees); err != nil {
		return nil, signed, err
	}
	d, err := s.newDraft(c)
	if err != nil {
		return nil, signed, err
	}
	b := newBinding("segments")
	for _, t := range trees {
		b.Merkle = append(b.Merkle, bindingTrack{
			Track: t.Track, Local: t.Local, Count: t.Count, Alg: "sha256", InitHash: make([]byte, sha256.Size),
			Hashes: slices.Collect(slices.Chunk(t.Row, sha256.Size)),
		})
	}
	blank, err := d.store(b, s.blank)
	if err != nil {
		return nil, signed, err
	}
	for i, init := range inits {
		if b.Merkle[i].InitHash, err = initHash(init, manifestBox(blank)); err != nil {
			return nil, signed, err
		}
	}
	store, err := d.store(b, func(claim []byte) ([]byte, error) { return s.sign(ctx, claim) })
	if err != nil {
		return nil, signed, err
	}
	if len(store) != len(blank) {
		return nil, signed, fmt.Errorf("a manifest has %d bytes, %d were expected", len(store), len(blank))
	}
	return manifestBox(store), s.provenance(d.id), nil
}

// initHash returns the hash of an init segment with the box of a manifest.
func initHash(init, box []byte) ([]byte, error) {
	whole, err := Insert(init, box)
	if err != nil {
		return nil, err
	}
	h := NewHash()
	if _, err := bytes.NewReader(whole).WriteTo(h); err != nil {
		return nil, err
	}
	return h.Sum()
}
