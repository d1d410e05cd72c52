package media

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// signing returns how tests sign, and the root certificate.
func signing(t testing.TB) (Signing, []byte) {
	t.Helper()
	chain, err := c2pa.NewChain(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := c2pa.NewSigner(chain.Key, chain.Cert, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	content := func(names []string) c2pa.Content {
		return c2pa.Content{Title: fmt.Sprint(names), Generator: "weir", When: time.Now()}
	}
	return Signing{Signer: signer, Source: &c2pa.Source{Title: "film.mp4"}, Content: content}, chain.Root
}

func contents(t *testing.T, f *File) []byte {
	t.Helper()
	r := f.Reader(t.Context())
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(data)) != f.Size() {
		t.Fatalf("the file has %d bytes, %d were promised", len(data), f.Size())
	}
	return data
}

// checkSigned verifies all segments of a track, each with the init segment of inits, and returns them.
func checkSigned(t *testing.T, inits, s *Signature, track *Track, dir string, root []byte) (all [][]byte) {
	t.Helper()
	for k := range len(track.index.Changes) + 1 {
		init, err := inits.Init(track, k)
		if err != nil {
			t.Fatal(err)
		}
		v := c2pa.VerifyInit(init, c2pa.Options{Trust: root, Now: time.Now()})
		first, end := codedSegments(track.index, k)
		for n := first; n < end; n++ {
			file, err := s.Segment(track, dir, n)
			if err != nil {
				t.Fatal(err)
			}
			data := contents(t, file)
			all = append(all, data)
			if at, ok, err := v.Segment(fmt.Sprint(n), bytes.NewReader(data), int64(len(data))); at != n-first || !ok || err != nil {
				t.Errorf("segment %d of %s: at %d, %t, %v", n, dir, at, ok, err)
			}
		}
		if r := v.Report(); r.State != c2pa.Trusted {
			t.Fatalf("%s with init segment %d: %+v", dir, k, r)
		}
	}
	return all
}

func checkSignedMP4(t *testing.T, s *Signature, root []byte, name string, tracks ...*Track) []byte {
	t.Helper()
	file, err := s.MP4(name, tracks)
	if err != nil {
		t.Fatal(err)
	}
	data := contents(t, file)
	if size, ok := s.MP4Size(name); !ok || size != int64(len(data)) {
		t.Errorf("%s.mp4 has %d bytes, not %d", name, len(data), size)
	}
	r, err := c2pa.Verify(bytes.NewReader(data), int64(len(data)), c2pa.Options{Trust: root, Now: time.Now()})
	if err != nil || r.State != c2pa.Trusted || r.Manifest.About["profile"] != name || r.Manifest.ID != s.MP4Manifest(name) {
		t.Errorf("%s.mp4: %+v %v", name, r, err)
	}
	return data
}

// A recording is signed, then it gets another rendition. Its encoder came back with other settings.
func TestSign(t *testing.T) {
	eachStore(t, func(t *testing.T, store blob.Store) {
		how, root := signing(t)
		video, fragments := testTrack(cmaf.Video, 1)
		index := putTrack(t, store, "a/source", video, fragments)
		changed := video
		changed.Width, changed.Entry = 640, box("avc1", bytes.Repeat([]byte{1}, 78))
		index.Changes = []cmaf.Change{{First: 3, Track: changed}}
		if err := Seal(t.Context(), store, "a/source", index); err != nil {
			t.Fatal(err)
		}
		sound, fragments := testTrack(cmaf.Audio, 2)
		putTrack(t, store, "a/audio", sound, fragments)
		small, fragments := testTrack(cmaf.Video, 3)
		putTrack(t, store, "a/small", small, fragments)
		source, audio, other := openTrack(t, store, "a/source"), openTrack(t, store, "a/audio"), openTrack(t, store, "a/small")

		p := Presentation{Renditions: []Rendition{{Name: "source", Dir: "source"}}, Audio: []Rendition{{Name: "audio", Dir: "audio"}}}
		if s, err := LoadSignature(t.Context(), store, "a", p); s != nil || err != nil {
			t.Fatalf("a signature before it was signed: %v %v", s, err)
		}
		made, err := Sign(t.Context(), store, "a", &p, how)
		if err != nil {
			t.Fatal(err)
		}
		first, err := LoadSignature(t.Context(), store, "a", p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made, first); diff != "" {
			t.Error(diff)
		}
		was := checkSigned(t, first, first, source, "source", root)
		checkSigned(t, first, first, audio, "audio", root)
		if _, err := first.MP4("source", []*Track{source, audio}); weir.KindOf(err) != weir.NotFound {
			t.Errorf("an MP4 file of two codings: %v", err)
		}
		if _, err := first.Segment(other, "small", 0); weir.KindOf(err) != weir.NotFound {
			t.Errorf("a segment that is not signed yet: %v", err)
		}

		p.Renditions = append(p.Renditions, Rendition{Name: "180p", Dir: "small"})
		second, err := Sign(t.Context(), store, "a", &p, how)
		if err != nil {
			t.Fatal(err)
		}
		if second.ManifestID == first.ManifestID {
			t.Error("the manifest is the same")
		}
		// What was added later is named with the rest.
		for s, want := range map[*Signature]string{first: "1 source 2 source 3 audio", second: "1 source 2 source 4 180p 3 audio"} {
			init, err := s.Init(audio, 0)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, track := range c2pa.VerifyInit(init, c2pa.Options{Now: time.Now()}).Report().Manifest.Tracks.All {
				names = append(names, fmt.Sprint(track.ID, " ", track.Name))
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("the tracks are %q, want %q", got, want)
			}
		}
		// Viewers may have one of the old manifest and the other of the new.
		if diff := cmp.Diff(was, checkSigned(t, second, second, source, "source", root)); diff != "" {
			t.Error("segments have changed")
		}
		checkSigned(t, first, second, audio, "audio", root)
		checkSigned(t, second, first, audio, "audio", root)
		checkSigned(t, second, second, other, "small", root)
		checkSignedMP4(t, second, root, "180p", other, audio)

		// Nothing is signed again that is the same, and all that is not.
		third, err := Sign(t.Context(), store, "a", &p, how)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(second.Files, third.Files); diff != "" {
			t.Errorf("the files were signed again: %s", diff)
		}
		encoded, fragments := testTrack(cmaf.Video, 4)
		putTrack(t, store, "a/small", encoded, fragments)
		other = openTrack(t, store, "a/small")
		if second, err = Sign(t.Context(), store, "a", &p, how); err != nil {
			t.Fatal(err)
		}
		checkSigned(t, second, second, other, "small", root)
		checkSigned(t, second, second, audio, "audio", root)
		checkSignedMP4(t, second, root, "180p", other, audio)

		m, err := second.Verified(t.Context(), other, "small", 1, 3, time.Now())
		if err != nil || m == nil {
			t.Fatalf("%v %v", m, err)
		}
		flip(t, store, other.SegmentKey(2))
		bad, err := second.Verified(t.Context(), other, "small", 1, 3, time.Now())
		if err != nil || cmp.Diff(m, bad) == "" {
			t.Errorf("a changed segment is not noticed: %v", err)
		}
		file, err := second.MP4("180p", []*Track{other, audio})
		if err != nil {
			t.Fatal(err)
		}
		data := contents(t, file)
		if r, err := c2pa.Verify(bytes.NewReader(data), int64(len(data)), c2pa.Options{Now: time.Now()}); err != nil || r.State != c2pa.Invalid {
			t.Errorf("with a flipped byte the file is %s %v", r.State, err)
		}
	})
}

// flip changes the last byte of an object.
func flip(t *testing.T, store blob.Store, key string) {
	t.Helper()
	body, info, err := store.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	data[len(data)-1] ^= 1
	if err := store.Put(t.Context(), key, bytes.NewReader(data), info.Size, segmentOptions); err != nil {
		t.Fatal(err)
	}
}

// The manifest of a long track does not have the hashes of all segments.
func TestSignLong(t *testing.T) {
	t.Parallel()
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	how, root := signing(t)
	sound, _ := testTrack(cmaf.Audio, 1)
	var segments [][]cmaf.Fragment
	for n := range 1030 {
		data := fmt.Append(nil, n)
		segments = append(segments, []cmaf.Fragment{{Start: int64(n) * 100, Samples: []cmaf.Sample{{Duration: 100, Size: uint32(len(data)), Sync: true}}, Data: data}})
	}
	putTrack(t, store, "a/audio", sound, segments)
	track := openTrack(t, store, "a/audio")
	p := Presentation{Audio: []Rendition{{Name: "audio", Dir: "audio"}}}
	s, err := Sign(t.Context(), store, "a", &p, how)
	if err != nil {
		t.Fatal(err)
	}
	checkSigned(t, s, s, track, "audio", root)
	checkSignedMP4(t, s, root, "audio", track)
	if len(s.Manifest) > 16<<10 {
		t.Errorf("the manifest has %d bytes", len(s.Manifest))
	}
}

// What is hashed must be the same after every update of weir: all that was signed before would be
// invalid otherwise. If one of these sums has to change, the old form has to stay for what was signed
// in it.
func TestSignedForms(t *testing.T) {
	t.Parallel()
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	video, fragments := testTrack(cmaf.Video, 1)
	putTrack(t, store, "a", video, fragments)
	sound, fragments := testTrack(cmaf.Audio, 2)
	putTrack(t, store, "b", sound, fragments)
	tracks := []*Track{openTrack(t, store, "a"), openTrack(t, store, "b")}
	mp4, err := Progressive(tracks, nil, box("free", []byte("box")))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{"init": tracks[0].Init(), "audio init": tracks[1].Init(), "MP4": contents(t, mp4)}
	for i, name := range []string{"segment", "audio segment"} {
		file, err := tracks[i].WholeSegment(1, box("free", []byte("box")))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = contents(t, file)
	}
	sums := map[string]string{}
	for name, data := range got {
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:8])
	}
	want := map[string]string{
		"init": "7431a5c94d99e700", "audio init": "39ad5d76f8c41289", "segment": "28da3386d4b7a734", "audio segment": "cd27f0bf779c97e6",
		"MP4": "2901ce736003f9d0",
	}
	if diff := cmp.Diff(want, sums); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkSign signs ten minutes at about 5 Mbit/s: the tracks and the MP4 file.
func BenchmarkSign(b *testing.B) {
	store, err := blob.NewDisk(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	how, _ := signing(b)
	video, _ := testTrack(cmaf.Video, 1)
	index := cmaf.TrackIndex{Track: video}
	data := bytes.Repeat([]byte("frame"), 4000)
	for n := range 300 {
		f := cmaf.Fragment{Start: int64(n) * 2000}
		for i := range 60 {
			f.Samples = append(f.Samples, cmaf.Sample{Duration: 33, Size: uint32(len(data)), Sync: i == 0})
			f.Data = append(f.Data, data...)
		}
		part, bytes := cmaf.EncodePart(uint32(n+1), video, f)
		segment := cmaf.Segment{Parts: []cmaf.Part{part}}
		if err := Put(b.Context(), store, "a/source", n, segment, bytes); err != nil {
			b.Fatal(err)
		}
		index.Segments = append(index.Segments, segment)
	}
	if err := Seal(b.Context(), store, "a/source", index); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(2 * 300 * 60 * int64(len(data))) // it is read twice
	for b.Loop() {
		p := Presentation{Renditions: []Rendition{{Name: "source", Dir: "source"}}}
		if _, err := Sign(b.Context(), store, "a", &p, how); err != nil {
			b.Fatal(err)
		}
	}
}
