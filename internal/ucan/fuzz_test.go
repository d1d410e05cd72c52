package ucan

import (
	"testing"

	"weir/internal/ipld"
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
		c := ipld.Sum(ipld.DagCBOR, data)
		r := &reader{archive: &archive{roots: []ipld.CID{c}, order: []ipld.CID{c}, blocks: map[ipld.CID][]byte{c: data}}}
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
