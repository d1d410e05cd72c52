package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/c2pa"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// signing returns what signs in tests, and the root of its certificate.
func signing(t *testing.T) (*Signing, []byte) {
	t.Helper()
	chain, err := c2pa.NewChain(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := c2pa.NewSigner(chain.Key, chain.Cert, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return (&Signer{C2PA: signer, Version: "test"}).Transcode(Origin{Name: "film.mp4"}, time.Now()), chain.Root
}

// wantSigned checks all files of an output.
func wantSigned(t *testing.T, dir string, root []byte) {
	t.Helper()
	o := c2pa.Options{Trust: root, Now: time.Now()}
	files, err := filepath.Glob(filepath.Join(dir, "v/mp4/*.mp4"))
	more, errMore := filepath.Glob(filepath.Join(dir, "fmp4/*.mp4"))
	inits, errInits := filepath.Glob(filepath.Join(dir, "v/hls/*/init.mp4"))
	if err := errors.Join(err, errMore, errInits); err != nil || len(files)*len(more)*len(inits) == 0 {
		t.Fatalf("%v; %d MP4 files, %d fragmented ones, %d init segments", err, len(files), len(more), len(inits))
	}
	for _, name := range slices.Concat(files, more) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c2pa.Verify(bytes.NewReader(data), int64(len(data)), o); err != nil || r.State != c2pa.Trusted {
			t.Errorf("%s is %s: %v %+v", name, r.State, err, r.Problems)
		}
	}
	for _, name := range inits {
		init, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := c2pa.VerifyInit(init, o)
		count := 0
		for ; ; count++ {
			name := filepath.Join(filepath.Dir(name), fmt.Sprint(count, ".m4s"))
			data, err := os.ReadFile(name)
			if os.IsNotExist(err) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if at, ok, err := f.Segment(name, bytes.NewReader(data), int64(len(data))); at != count || !ok || err != nil {
				t.Errorf("%s: %d %t %v", name, at, ok, err)
			}
		}
		if r := f.Report(); r.State != c2pa.Trusted || f.Count() != count {
			t.Errorf("%s with %d of %d segments is %s: %+v", name, count, f.Count(), r.State, r.Problems)
		}
	}
}

// Signed outputs are signed whenever the destination fails, whether the hashes of all segments are
// in the manifest or not, and in one call or as they grow.
func TestPublishSigned(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	p.video = p.video[:1]
	sign, root := signing(t)
	unsigned, dest := mediatest.NewDestination(t)
	plain := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), Dir: t.TempDir()}
	if err := plain.Publish(t.Context(), &State{}, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		steps []int
		long  time.Duration // what the duration is taken for
	}{
		{"at once", []int{9}, 0},
		{"growing", []int{0, 1, 2, 3, 9}, 0},
		{"in groups", []int{1, 2, 3, 9}, 20 * time.Minute},
	} {
		outputs := Outputs{Store: p.store, Formats: allOutputs(), TS: true, Dir: t.TempDir(), Sign: sign}
		run := func(fail int) (*mediatest.Destination, string) {
			dir, dest := mediatest.NewDestination(t)
			dest.Parts, dest.FailAt = smallParts, fail
			outputs.Dest = dest
			var state State
			for _, n := range tt.steps {
				for {
					video, audio := slices.Clone(p.video), slices.Clone(p.audio)
					for _, list := range [][]Track{video, audio} {
						for i := range list {
							list[i] = list[i].upTo(n)
							list[i].Length = max(list[i].Length, tt.long)
						}
					}
					err := outputs.Publish(t.Context(), &state, video, audio)
					if err == nil {
						break
					}
					if !errors.Is(err, mediatest.ErrInjected) {
						t.Fatal(err)
					}
					state = afterRestart(t, state)
				}
				state = afterRestart(t, state)
			}
			if !state.Finished {
				t.Fatal("not finished")
			}
			if tree := state.items["hls"]["320x180"].Tree; (tree.Depth > 0) != (tt.long > 0) {
				t.Fatalf("%s: depth %d", tt.name, tree.Depth)
			}
			wantSigned(t, dir, root)
			wantSizes(t, outputs, &state, p.video, p.audio)
			out := outputs.describe(&state, p.video, p.audio)
			var paths []string
			for _, s := range out.C2PA {
				paths = append(paths, s.Path)
				if !s.Signed || s.ManifestID == "" || s.CertFingerprint != sign.signer.Summary().Fingerprint {
					t.Errorf("signed: %+v", s)
				}
			}
			want := []string{"/fmp4/index-stream1.mp4", "/fmp4/index-stream0.mp4", "/fmp4/index-stream2.mp4", "/v/mp4/320x180.mp4", "/v/hls/index.m3u8"}
			if diff := cmp.Diff(want, paths); diff != "" {
				t.Error(diff)
			}
			return dest, dir
		}
		dest, dir := run(0)
		if !slices.ContainsFunc(dest.Puts(), func(s string) bool { return strings.Contains(s, " part 2:") }) {
			t.Errorf("%s: no file was uploaded in parts", tt.name)
		}
		for _, name := range []string{"v/hls/index.m3u8", "v/mp4/320x180.mp4", "fmp4/master.m3u8", "fmp4/index-stream1.mp4"} {
			if diff := cmp.Diff(mediatest.AllFrames(t, filepath.Join(unsigned, name)), mediatest.AllFrames(t, filepath.Join(dir, name))); diff != "" {
				t.Errorf("%s: signing changed the frames of %s:\n%s", tt.name, name, diff)
			}
		}
		keys := slices.Sorted(maps.Keys(dest.Contents(t)))
		step := 3
		if tt.long > 0 { // what grows in groups does all that the others do
			step = 1
		}
		for fail := 1; fail <= dest.Count(); fail += step {
			again, _ := run(fail)
			if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(again.Contents(t)))); diff != "" {
				t.Errorf("%s, put %d failed: %s", tt.name, fail, diff)
			}
		}
	}
}

// What can't be signed is not put: neither an MP4 file nor what makes segments playable.
func TestSigningFails(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	chain, err := c2pa.NewChain(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	broken := weir.Errorf(weir.Upstream, "the time stamp service is on holiday")
	post := func(context.Context, []byte) ([]byte, error) { return nil, broken }
	signer, err := c2pa.NewSigner(chain.Key, chain.Cert, time.Now(), post)
	if err != nil {
		t.Fatal(err)
	}
	for _, formats := range []weir.TranscodeOutputs{
		{MP4: allOutputs().MP4}, {FMP4: allOutputs().FMP4}, {HLS: allOutputs().HLS}, allOutputs(),
	} {
		for _, parts := range []int64{0, smallParts} {
			_, dest := mediatest.NewDestination(t)
			dest.Parts = parts
			outputs := Outputs{Store: p.store, Dest: dest, Formats: formats, TS: true, Dir: t.TempDir()}
			outputs.Sign = (&Signer{C2PA: signer}).Transcode(Origin{Name: "film.mp4"}, time.Now())
			var state State
			if err := outputs.Publish(t.Context(), &state, p.video, p.audio); !errors.Is(err, broken) || state.Finished {
				t.Errorf("finished %t: %v", state.Finished, err)
			}
			for key := range dest.Contents(t) {
				if !strings.HasSuffix(key, ".m4s") {
					t.Errorf("%s was put unsigned", key)
				}
			}
		}
	}
}
