package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// storedState is a state as versions wrote it before outputs had forms and destinations an
// address of their own.
const storedState = `{"begun":true,` +
	`"hls":{"720p0":{"segments":3,"ts":{"pat":3,"pmt":3,"video":7,"audio":9,"delay":7201,"started":true,"decoded":532800,"clock":540000}},` +
	`"audio1":{"segments":4,"ts":{"pat":0,"pmt":0,"video":0,"audio":0,"delay":0,"started":false,"decoded":0,"clock":0},"init":true}},` +
	`"mp4":{"720p0":{"upload":"VXBsb2Fk","head":67890,"partSize":8388608,"parts":{"2":{"number":2,"size":8388608,"etag":"\"e2\""},"3":{"number":3,"size":8388608}}}},` +
	`"fmp4":{"index-stream1.mp4":{"done":true},"index-stream0.mp4":{}},"finished":true}`

func TestStoredPublishState(t *testing.T) {
	t.Parallel()
	want := State{
		Begun: true, Finished: true,
		items: map[string]map[string]*itemState{
			"hls": {
				"720p0": {segmentState: segmentState{Segments: 3, TS: cmaf.TSState{
					PAT: 3, PMT: 3, Video: 7, Audio: 9, Delay: 7201, Started: true, Decoded: 532800, Clock: 540000,
				}}},
				"audio1": {segmentState: segmentState{Segments: 4, Init: true}},
			},
			"mp4": {"720p0": {fileState: fileState{
				Upload: "VXBsb2Fk", Head: 67890, PartSize: 8 << 20,
				Parts: map[int]blob.PartInfo{2: {Number: 2, Size: 8 << 20, ETag: `"e2"`}, 3: {Number: 3, Size: 8 << 20}},
			}}},
			"fmp4": {"index-stream1.mp4": {fileState: fileState{Done: true}}, "index-stream0.mp4": {}},
		},
	}
	inside := cmp.AllowUnexported(State{}, itemState{})
	var got State
	if err := json.Unmarshal([]byte(storedState), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, inside); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, afterRestart(t, want), inside); diff != "" {
		t.Errorf("the state after a restart (-want +got):\n%s", diff)
	}
	want.Base, want.items["hls"]["720p0"].Form = "ipfs://cid", formZero
	if diff := cmp.Diff(want, afterRestart(t, want), inside); diff != "" {
		t.Errorf("the state with new members after a restart (-want +got):\n%s", diff)
	}
}

// A task that an earlier version began to publish continues. Its CMAF segments start at cmaf.Lead and are put
// again; objects that are the same in both versions are not.
func TestPublishContinuesOlderForm(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	dest.Parts = smallParts
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), Dir: t.TempDir()}
	upload, err := dest.Upload(t.Context(), "fmp4/index-stream1.mp4", blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := upload.Part(t.Context(), 2, bytes.NewReader(make([]byte, smallParts)), smallParts)
	if err != nil {
		t.Fatal(err)
	}
	state := State{Begun: true, items: map[string]map[string]*itemState{
		"hls":  {"320x180": {segmentState: segmentState{Segments: 2, Init: true}}},
		"mp4":  {"160x90": {fileState: fileState{Done: true}}},
		"fmp4": {"index-stream1.mp4": {fileState: fileState{Upload: upload.ID(), Head: 1000, PartSize: smallParts, Parts: map[int]blob.PartInfo{2: first}}}},
	}}
	if err := outputs.Publish(t.Context(), &state, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(dir, "fmp4/index-stream1.mp4"), mediatest.Concatenate(t, dir, "v/hls/320x180", ".m4s")} {
		if start, _ := span(t, file); math.Abs(start) > 0.0005 {
			t.Errorf("%s starts at %g", file, start)
		}
		mediatest.WantFrames(t, "", testFrames, file)
	}
	if slices.Contains(dest.Puts(), "v/mp4/160x90.mp4") {
		t.Error("a file that was done was put again")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".weir", "upload", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// late is a destination that knows its address when it is sealed, and not before.
type late struct {
	*mediatest.Destination
	sealed int
	fail   bool
}

func (d *late) Seal(context.Context) (string, error) {
	d.sealed++
	if d.fail {
		return "", mediatest.ErrInjected
	}
	return "ipfs://cid", nil
}

// A destination is sealed when it is complete, and only then has a URL.
func TestSeal(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	_, disk := mediatest.NewDestination(t)
	dest := &late{Destination: disk, fail: true}
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	var state State
	if err := outputs.Publish(t.Context(), &state, []Track{p.video[0].upTo(2)}, p.audio); err != nil || dest.sealed != 0 {
		t.Fatalf("sealed %d times before everything was there: %v", dest.sealed, err)
	}
	if err := outputs.Publish(t.Context(), &state, p.video[:1], p.audio); weir.KindOf(err) != weir.Upstream || dest.sealed != 1 || state.Base != "" {
		t.Fatalf("sealed %d times as %q: %v", dest.sealed, state.Base, err)
	}
	puts := len(dest.Puts())
	dest.fail = false
	for range 2 {
		state = afterRestart(t, state)
		if err := outputs.Publish(t.Context(), &state, p.video[:1], p.audio); err != nil || dest.sealed != 2 || len(dest.Puts()) != puts {
			t.Fatalf("sealed %d times, %v was put again: %v", dest.sealed, dest.Puts()[puts:], err)
		}
	}
	out := outputs.describe(&state, p.video[:1], p.audio)
	if out.BaseURL != "ipfs://cid" || out.HLS.Path != "/v/hls/index.m3u8" || strings.Contains(out.MP4[0].Path, ":") {
		t.Errorf("output %+v", out)
	}
}

// Withdraw deletes everything, by the state alone.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	for _, ts := range []bool{true, false} {
		dir, dest := mediatest.NewDestination(t)
		dest.Parts = smallParts
		outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: ts, Dir: t.TempDir()}
		for _, segments := range []int{2, 3, 4} {
			var state State
			if err := outputs.Publish(t.Context(), &state, []Track{p.video[0].upTo(segments)}, p.audio); err != nil {
				t.Fatal(err)
			}
			state = afterRestart(t, state)
			if err := outputs.Withdraw(t.Context(), &state); err != nil {
				t.Fatal(err)
			}
			if left := dest.Contents(t); len(left) > 0 {
				t.Errorf("with %d segments %d objects are left behind", segments, len(left))
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".weir", "upload", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	}
}
