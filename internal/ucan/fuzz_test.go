package ucan

import (
	"crypto/sha256"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"weir/internal/weir"
)

// FuzzCheck has texts of proofs.
func FuzzCheck(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, text := range recorded(f, folder) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Check(text, conditions())
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Error(err)
			}
			return
		}
		if p.Space == "" || !p.Allows(UploadAdd) {
			t.Errorf("%+v", p)
		}
	})
}

// FuzzDelegation has single delegations, which a text could only contain with their right hash.
func FuzzDelegation(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, text := range recorded(f, folder) {
			file, err := decodeText(text)
			if err != nil {
				continue
			}
			a, err := readArchive(file, maxBlocks)
			if err != nil {
				continue
			}
			for _, b := range a.blocks {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := sha256.Sum256(data)
		hash, err := multihash.Encode(sum[:], multihash.SHA2_256)
		if err != nil {
			t.Fatal(err)
		}
		c := cid.NewCidV1(cid.DagCBOR, hash)
		r := &reader{archive: &archive{roots: []cid.Cid{c}, order: []cid.Cid{c}, blocks: map[cid.Cid][]byte{c: data}}}
		if _, err := r.proofRoot(); err != nil {
			return
		}
		l, err := r.link(c)
		if err != nil {
			return
		}
		if _, err := r.verify(l); err != nil {
			t.Error(err)
		}
		if space, err := l.space(UploadAbilities()); err == nil {
			if p, err := r.search(space, UploadAdd, recordedAt, recordedAt).path(l, 0); err == nil && l.signed != good && !p.account {
				t.Error("accepted without a signature")
			}
		}
	})
}
