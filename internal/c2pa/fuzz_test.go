package c2pa

import (
	"bytes"
	"slices"
	"testing"
)

// fuzzedFile returns a signed file, and the manifest store in it.
func fuzzedFile(f *testing.F) (file, store []byte) {
	f.Helper()
	s, _ := newSigner(f)
	file = signFile(f, s, mp4File(), content())
	found, err := findManifest(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		f.Fatal(err)
	}
	return file, found.store
}

func FuzzFile(f *testing.F) {
	file, _ := fuzzedFile(f)
	f.Add(file)
	f.Add(mp4File())
	f.Add([]byte("\x00\x00\x00\x01mdat\x00\x00\x00\x00\x00\x00\x00\x11x"))
	f.Add([]byte("\x00\x00\x00\x00mdat"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Verify(bytes.NewReader(data), int64(len(data)), Options{Now: now})
		if err != nil {
			t.Errorf("bytes in memory can't be read: %v", err)
		}
		if r.State == "" || r.State == Invalid && len(r.Problems) == 0 {
			t.Errorf("%+v", r)
		}
		// However a file is written, its hash is the same.
		whole, pieces := NewHash(), NewHash()
		_, _ = whole.Write(data)
		for b := range slices.Chunk(data, 5) {
			if _, err := pieces.Write(b); err != nil {
				break
			}
		}
		one, errOne := whole.Sum()
		two, errTwo := pieces.Sum()
		if (errOne == nil) != (errTwo == nil) || !bytes.Equal(one, two) {
			t.Errorf("%x %v, in pieces %x %v", one, errOne, two, errTwo)
		}
		// What the walk over a file takes, the hash takes too.
		walked := walk(bytes.NewReader(data), int64(len(data)), func(rootBox, []byte) error { return nil })
		if walked == nil && errOne != nil && len(data) > 0 && !largeButSmall(data) {
			t.Errorf("the hash does not take it: %v", errOne)
		}
	})
}

// largeButSmall reports whether a box has a large size of less than headBytes, which only the walk
// takes.
func largeButSmall(data []byte) (found bool) {
	_ = walk(bytes.NewReader(data), int64(len(data)), func(b rootBox, _ []byte) error {
		found = found || b.head == 16 && b.size < headBytes
		return nil
	})
	return found
}

func FuzzJUMBF(f *testing.F) {
	_, store := fuzzedFile(f)
	f.Add(store)
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := readStore(data); err == nil {
			resolve(b, b, "self#jumbf=/c2pa/x/y")
		}
		if v, err := validate(data, Options{Now: now}); err == nil {
			v.report()
		}
	})
}

func FuzzCBOR(f *testing.F) {
	_, data := fuzzedFile(f)
	store, err := readStore(data)
	if err != nil {
		f.Fatal(err)
	}
	manifest := store.inner[0]
	f.Add(manifest.child(labelClaim).content)
	for _, b := range manifest.child(labelAssertions).inner {
		f.Add(b.content)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, label := range []string{labelActions, labelIngredient, labelHash, labelAbout} {
			v := &validation{store: store, box: manifest, manifest: &Manifest{}, seen: map[string]bool{}, hashed: new(int)}
			v.readAssertion(&jumbfBox{label: label, content: data}, "sha256")
			for _, b := range v.bindings {
				_, _ = b.hasher()
				for _, t := range b.Merkle {
					t.has(fragment{Location: 1, Hashes: [][]byte{{1}}}, []byte{2})
				}
			}
		}
		_, _ = readClaim(data, false)
		_, _ = readClaim(data, true)
		_ = decode(data, new(fragment))
	})
}

func FuzzCOSE(f *testing.F) {
	_, data := fuzzedFile(f)
	store, err := readStore(data)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(store.inner[0].child(labelSignature).content)
	f.Fuzz(func(_ *testing.T, data []byte) {
		if s, err := readSignature(data); err == nil {
			_ = s.verify([]byte("claim"))
			_, _ = s.stamp(nil)
		}
	})
}

func FuzzSegment(f *testing.F) {
	s, _ := newSigner(f)
	inits, segments := signedTracks(f, s, 1, 3)
	f.Add(inits[0], segments[0][0])
	f.Fuzz(func(t *testing.T, init, segment []byte) {
		v := VerifyInit(init, Options{Now: now})
		if _, _, err := v.Segment("x", bytes.NewReader(segment), int64(len(segment))); err != nil {
			t.Errorf("bytes in memory can't be read: %v", err)
		}
		v.Report()
	})
}
