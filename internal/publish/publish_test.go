package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// presentation is a small presentation in a store: two renditions and two audio
// tracks in segments of two seconds.
type presentation struct {
	store        blob.Store
	video, audio []Track
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(mediatest.Runner{M: s3test.Runner{M: m}})
}

const testFrames = 190 // 7.6 s at 25 frames a second

// testPresentation makes a presentation with ffmpeg.
func testPresentation(t *testing.T, codec ...string) presentation {
	t.Helper()
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return makePresentation(t, store, codec)
}

func makePresentation(t *testing.T, store blob.Store, codec []string) presentation {
	t.Helper()
	p := presentation{store: store}
	for _, size := range []string{"320x180", "160x90"} {
		pattern := fmt.Sprintf("testsrc2=size=%s:rate=25:duration=%g", size, testFrames/25.0)
		args := append([]string{"-f", "lavfi", "-i", pattern, "-pix_fmt", "yuv420p"}, codec...)
		s := encodeTrack(t, store, "work/t/"+size, append(args, "-g", "50", "-force_key_frames", "expr:gte(t,n_forced*2)"))
		s.Name, s.FPS = size, 25
		p.video = append(p.video, s)
	}
	for k, hertz := range []int{440, 880} {
		audio := fmt.Sprintf("sine=frequency=%d:sample_rate=48000:duration=%g", hertz, testFrames/25.0)
		s := encodeTrack(t, store, "work/t/audio"+strconv.Itoa(k), []string{"-f", "lavfi", "-i", audio, "-c:a", "aac", "-b:a", "64k"})
		s.Name = "audio" + strconv.Itoa(k)
		s.Index.Track.Default = k == 0
		p.audio = append(p.audio, s)
	}
	return p
}

// madeByFFmpeg returns what ffmpeg writes to its output; it runs once a process.
var madeByFFmpeg = func() func(t *testing.T, args []string) []byte {
	var mu sync.Mutex
	made := map[string][]byte{}
	return func(t *testing.T, args []string) []byte {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		key := strings.Join(args, " ")
		if made[key] == nil {
			var complaints bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin"}, args...)...)
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("ffmpeg: %v: %s", err, complaints.String())
			}
			made[key] = out
		}
		return made[key]
	}
}()

// encodeTrack runs ffmpeg and stores what it makes as a track.
func encodeTrack(t *testing.T, store blob.Store, prefix string, args []string) Track {
	t.Helper()
	args = append(args, "-f", "mp4", "-movflags", "frag_keyframe+empty_moov+default_base_moof+negative_cts_offsets", "-frag_duration", "1000000", "pipe:1")
	out := madeByFFmpeg(t, args)
	reader := cmaf.NewReader(bytes.NewReader(out))
	tracks, err := reader.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(args, "-bf") {
		tracks[0].Delay = 2 * int64(tracks[0].Timescale) / 25
	}
	two := int64(2 * tracks[0].Timescale)
	w := media.Writer{Store: store, Prefix: prefix}
	w.Begin(tracks[0], time.Second, func(open cmaf.Contents, at int64, s cmaf.Sample) bool {
		return s.Sync && at/two > open.Start/two
	})
	var retimer cmaf.Retimer
	add := func(f cmaf.Fragment, err error) {
		if err == nil {
			err = w.Add(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		add(retimer.Add(f))
	}
	add(retimer.Finish())
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	index := w.Index()
	return Track{Prefix: prefix, Index: index, Complete: true, Samples: index.Frames(), Length: index.Duration()}
}

// upTo returns a track as it is when it has n segments.
func (t Track) upTo(n int) Track {
	if n < len(t.Index.Segments) {
		t.Index.Segments, t.Complete = t.Index.Segments[:n:n], false
	}
	return t
}

var h264 = []string{"-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-crf", "30"}

func allOutputs() weir.TranscodeOutputs {
	return weir.TranscodeOutputs{HLS: &weir.PathParam{Path: "/v/hls"}, MP4: &weir.PathParam{Path: "/v/mp4"}, FMP4: &weir.PathParam{Path: "/"}}
}

// smallParts is a size of parts with which the MP4 files are uploaded while they grow.
const smallParts = 96 << 10

func TestPublish(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for _, tt := range []struct {
		name  string
		codec []string
		ts    bool
	}{
		{"MPEG-TS", h264, true},
		{"CMAF", []string{"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "100k"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPresentation(t, tt.codec...)
			dir, dest := mediatest.NewDestination(t)
			outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: tt.ts, Dir: t.TempDir()}
			var state State
			if err := outputs.Publish(t.Context(), &state, p.video, p.audio); err != nil {
				t.Fatal(err)
			}
			if !state.Finished {
				t.Error("the state is not finished")
			}
			wantSizes(t, outputs, &state, p.video, p.audio)
			if last := dest.Puts()[len(dest.Puts())-1]; last != "v/hls/index.m3u8" {
				t.Errorf("the last thing put is %s, want the master playlist", last)
			}
			mediatest.WantFrames(t, dir, testFrames, "v/hls/index.m3u8", "v/hls/160x90/index.m3u8", "v/mp4/320x180.mp4", "v/mp4/160x90.mp4",
				"fmp4/master.m3u8", "fmp4/media_2.m3u8", "fmp4/index-stream1.mp4", "fmp4/index.mpd")
			packets := len(p.audio[0].Index.Segments[0].Parts[0].Samples)
			mediatest.WantFrames(t, dir, -packets, "v/hls/audio1/index.m3u8", "fmp4/index-stream0.mp4", "fmp4/media_3.m3u8")
			if tt.ts {
				mediatest.WantFrames(t, "", testFrames, mediatest.Concatenate(t, dir, "v/hls/320x180", ".ts"))
			}
		})
	}
}

func (p *Outputs) describe(state *State, video, audio []Track) (out weir.TranscodeOutput) {
	p.Describe(&out, state, video, audio)
	return out
}

// wantSizes compares the sizes of renditions with those of the files that were put for them, for
// all outputs and as if there were only some of them.
func wantSizes(t *testing.T, outputs Outputs, state *State, video, audio []Track) {
	t.Helper()
	files, all := outputs.Dest.(*mediatest.Destination).Contents(t), outputs.Formats
	for _, outputs.Formats = range []weir.TranscodeOutputs{all, {HLS: all.HLS, FMP4: all.FMP4}, {HLS: all.HLS}, {FMP4: all.FMP4}} {
		for _, r := range outputs.describe(state, video, audio).Renditions {
			want := 0
			switch {
			case r.MP4 != "":
				want = len(files[strings.TrimPrefix(r.MP4, "/")])
			case r.Playlist != "":
				for key, data := range files {
					if strings.HasPrefix("/"+key, filepath.Dir(r.Playlist)+"/") {
						want += len(data)
					}
				}
			default:
				want = len(files[strings.TrimPrefix(r.FMP4, "/")])
			}
			if r.Size != int64(want) || want == 0 {
				t.Errorf("%s has the size %d, its files %d (%+v)", r.Name, r.Size, want, r)
			}
		}
	}
}

// Publishing in many calls, with crashes, has the same result as in one call.
func TestPublishAsItGrows(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	p.video = p.video[:1]
	_, want := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	growing := func(dest *mediatest.Destination, onError func(error) bool) {
		dest.Parts = smallParts
		outputs.Dest = dest
		var state State
		for n := range 5 {
			for {
				video, audio := slices.Clone(p.video), slices.Clone(p.audio)
				for i := range video {
					video[i] = video[i].upTo(n)
				}
				for i := range audio {
					audio[i] = audio[i].upTo(n + i)
				}
				err := outputs.Publish(t.Context(), &state, video, audio)
				if err == nil {
					break
				}
				if !onError(err) {
					t.Fatal(err)
				}
			}
			state = afterRestart(t, state)
		}
		if !state.Finished {
			t.Fatal("not finished")
		}
		wantSizes(t, outputs, &state, p.video, p.audio)
	}
	growing(want, func(error) bool { return false })
	if parts := slices.DeleteFunc(slices.Clone(want.Puts()), func(s string) bool { return !strings.Contains(s, " part 2:") }); len(parts) == 0 {
		t.Fatal("no file was uploaded in parts")
	}
	finished := want.Contents(t)

	for fail := 1; fail <= want.Count(); fail++ {
		dir, dest := mediatest.NewDestination(t)
		dest.FailAt = fail
		failures := 0
		growing(dest, func(err error) bool {
			failures++
			if _, err := os.Stat(filepath.Join(dir, "v/hls/index.m3u8")); err == nil {
				t.Errorf("put %d failed, and there is a master playlist", fail)
			}
			return errors.Is(err, mediatest.ErrInjected)
		})
		if failures != 1 {
			t.Errorf("put %d was to fail; there were %d failures", fail, failures)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(finished)), slices.Sorted(maps.Keys(dest.Contents(t)))); diff != "" {
			t.Errorf("after put %d failed, other files (-want +got):\n%s", fail, diff)
		}
		for key, data := range dest.Contents(t) {
			if data != finished[key] {
				t.Errorf("after put %d failed, %s differs", fail, key)
			}
		}
	}
}

// afterRestart returns the state as another process gets it.
func afterRestart(t *testing.T, state State) (again State) {
	t.Helper()
	data, err := json.Marshal(state)
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A crash between an upload and saving the state does no harm.
func TestPublishWithOldState(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	dest.Parts = smallParts
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	var saved State
	outputs.Save = func(_ context.Context, state *State) error {
		saved = afterRestart(t, *state)
		return nil
	}
	var state State
	if err := outputs.Publish(t.Context(), &state, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	want := dest.Contents(t)
	if len(saved.items["mp4"]) == 0 || saved.Finished {
		t.Fatalf("the state was not saved when an upload began: %+v", saved)
	}
	if err := outputs.Publish(t.Context(), &saved, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, dest.Contents(t)); diff != "" {
		t.Error("publishing again changed something")
	}
	mediatest.Frames(t, filepath.Join(dir, "v/mp4/320x180.mp4"))
}

func TestAbort(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	dest.Parts = smallParts
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	var state State
	video := []Track{p.video[0].upTo(3), p.video[1].upTo(3)}
	if err := outputs.Publish(t.Context(), &state, video, p.audio); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(state.items["mp4"])), func(p *itemState) bool { return p.Upload != "" }) {
		t.Fatal("no upload was begun")
	}
	if err := outputs.Abort(t.Context(), &state); err != nil {
		t.Fatal(err)
	}
	for key := range dest.Contents(t) {
		if strings.HasSuffix(key, ".mp4") && strings.HasPrefix(key, "v/mp4") || slices.Contains([]string{"v/hls/index.m3u8", "fmp4/master.m3u8", "fmp4/index.mpd"}, key) {
			t.Errorf("%s is there after the abort", key)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".weir", "*", "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// It can be continued.
	if err := outputs.Publish(t.Context(), &state, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	mediatest.WantFrames(t, dir, testFrames, "v/mp4/320x180.mp4")
}

// An upload that vanished is begun again, and so is one whose head is too small.
func TestLostUpload(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	dest.Parts = smallParts
	outputs := Outputs{
		Store: p.store, Dest: dest, Formats: weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/"}}, Dir: t.TempDir(),
	}
	part := func() (State, []Track) {
		var state State
		video := []Track{p.video[0].upTo(3)}
		if err := outputs.Publish(t.Context(), &state, video, p.audio); err != nil {
			t.Fatal(err)
		}
		if state.items["mp4"]["320x180"].Upload == "" {
			t.Fatal("no upload was begun")
		}
		return state, p.video[:1]
	}
	t.Run("vanished", func(t *testing.T) {
		state, video := part()
		upload, err := dest.Resume(t.Context(), "320x180.mp4", state.items["mp4"]["320x180"].Upload)
		if err != nil {
			t.Fatal(err)
		}
		if err := upload.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := outputs.Publish(t.Context(), &state, video, p.audio); err != nil {
			t.Fatal(err)
		}
		mediatest.WantFrames(t, dir, testFrames, "320x180.mp4")
	})
	t.Run("no room", func(t *testing.T) {
		state, video := part()
		for n := range state.items["mp4"]["320x180"].Parts {
			delete(state.items["mp4"]["320x180"].Parts, n)
		}
		state.items["mp4"]["320x180"].Head = 1000
		if err := outputs.Publish(t.Context(), &state, video, p.audio); err != nil {
			t.Fatal(err)
		}
		mediatest.WantFrames(t, dir, testFrames, "320x180.mp4")
	})
}

func TestPublishAudioOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	for _, ts := range []bool{true, false} {
		dir, dest := mediatest.NewDestination(t)
		outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: ts, Dir: t.TempDir()}
		var state State
		if err := outputs.Publish(t.Context(), &state, nil, p.audio[:1]); err != nil {
			t.Fatal(err)
		}
		mediatest.WantFrames(t, dir, -300, "v/hls/index.m3u8", "v/mp4/audio0.mp4", "fmp4/master.m3u8", "fmp4/index-stream0.mp4")
	}
}

func TestPublishVideoOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	var state State
	if err := outputs.Publish(t.Context(), &state, p.video, nil); err != nil {
		t.Fatal(err)
	}
	mediatest.WantFrames(t, dir, testFrames, "v/hls/index.m3u8", "v/mp4/320x180.mp4", "fmp4/master.m3u8", "fmp4/index-stream1.mp4")
}

// Audio after the end of the video is in the segments, and in the playlist.
func TestAudioLongerThanVideo(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	p.video[0].Index.Segments = p.video[0].Index.Segments[:2]
	dir, dest := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Dest: dest, Formats: weir.TranscodeOutputs{HLS: &weir.PathParam{Path: "/"}}, TS: true, Dir: t.TempDir()}
	var state State
	if err := outputs.Publish(t.Context(), &state, p.video[:1], p.audio[:1]); err != nil {
		t.Fatal(err)
	}
	playlist, err := os.ReadFile(filepath.Join(dir, "320x180/index.m3u8"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(playlist), "#EXTINF"); got != 4 {
		t.Errorf("%d segments in the playlist, want 4:\n%s", got, playlist)
	}
	if frames := mediatest.Frames(t, mediatest.Concatenate(t, dir, "320x180", ".ts")); frames != 100 {
		t.Errorf("%d frames, want 100", frames)
	}
}

func TestPublishAsset(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	asset := Asset{Store: p.store, Prefix: "work/t", Duration: 7.6}
	steps := []struct {
		name         string
		video, audio []Track
		want         string // renditions and their segments
		playable     bool
	}{
		{"audio is missing", []Track{p.video[0], p.video[1].upTo(1)}, []Track{p.audio[0].upTo(2)}, "", false},
		{"only sound is there", []Track{p.video[0].upTo(0), p.video[1].upTo(0)}, p.audio, "", false},
		{"one has not begun", []Track{p.video[0].upTo(1), p.video[1].upTo(0)}, p.audio, "", false},
		{"all grow", []Track{p.video[0].upTo(1), p.video[1].upTo(1)}, p.audio, "320x180:1 160x90:1 audio0:4 audio1:4", true},
		{"one passes through", []Track{p.video[0], p.video[1].upTo(2)}, p.audio, "320x180:4 audio0:4 audio1:4", true},
		{"complete", p.video, p.audio, "320x180:4 160x90:4 audio0:4 audio1:4", true},
	}
	var state AssetState
	for _, tt := range steps {
		if err := asset.Publish(t.Context(), &state, tt.video, tt.audio); err != nil {
			t.Fatal(err)
		}
		if got := state.Playable(); got != tt.playable {
			t.Errorf("%s: playable = %t, want %t", tt.name, got, tt.playable)
		}
		var got []string
		saved, err := media.LoadPresentation(t.Context(), p.store, "work/t")
		if err != nil && (weir.KindOf(err) != weir.NotFound || tt.want != "") {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for _, r := range slices.Concat(saved.Renditions, saved.Audio) {
			track, err := media.Open(t.Context(), p.store, "work/t/"+r.Dir)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s:%d", r.Name, len(track.Index().Segments)))
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: the presentation has %s, want %s", tt.name, got, tt.want)
		}
	}
	if saved, err := media.LoadPresentation(t.Context(), p.store, "work/t"); err != nil || !saved.Complete {
		t.Errorf("the presentation is not complete: %+v, %v", saved, err)
	}
}

// bucketFilm is a film that goes to a bucket, whose parts must be large.
func bucketFilm(t *testing.T) (bucket s3test.Bucket, dest blob.Dest, work blob.Store, video, audio Track) {
	t.Helper()
	bucket = s3test.Start(t)
	opened, err := blob.OpenDest(bucket.URL(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	dest = &mediatest.Destination{Dest: opened, Parts: blob.MinPart}
	work, err = blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = work.Close() })
	noise := []string{
		"-f", "lavfi", "-i", "nullsrc=size=320x180:rate=25:duration=7.6,noise=alls=100:allf=t", "-pix_fmt", "yuv420p",
		"-c:v", "libx264", "-preset", "ultrafast", "-qp", "12", "-g", "50", "-force_key_frames", "expr:gte(t,n_forced*2)",
	}
	video = encodeTrack(t, work, "work/noise", noise)
	video.Name = "noise"
	audio = encodeTrack(t, work, "work/audio0", []string{"-f", "lavfi", "-i", "sine=sample_rate=48000:duration=7.6", "-c:a", "aac"})
	audio.Name = "audio0"
	if size := video.Index.Size(); size < 3*blob.MinPart {
		t.Fatalf("the video has only %d bytes", size)
	}
	return bucket, dest, work, video, audio
}

// A storage that lost parts of an upload gets the file again.
func TestLostParts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	bucket, dest, work, video, audio := bucketFilm(t)
	outputs := Outputs{Store: work, Dest: dest, Formats: weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/"}}, Dir: t.TempDir()}
	var state State
	for n := 0; n < 4 && (state.items["mp4"]["noise"] == nil || len(state.items["mp4"]["noise"].Parts) == 0); n++ {
		if err := outputs.Publish(t.Context(), &state, []Track{video.upTo(n)}, []Track{audio}); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(bucket.Dir, ".sgwtmp", "multipart", "*", state.items["mp4"]["noise"].Upload, "[0-9]*"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("the bucket has no parts: %v", err)
	}
	for _, part := range parts {
		if err := os.Remove(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := outputs.Publish(t.Context(), &state, []Track{video}, []Track{audio}); err != nil {
		t.Fatal(err)
	}
	mediatest.WantFrames(t, bucket.Dir, testFrames, "noise.mp4")
}

// A bucket, which needs large parts, gets the same as a disk.
func TestPublishToBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	bucket, dest, work, video, audio := bucketFilm(t)
	outputs := Outputs{Store: work, Dest: dest, Formats: allOutputs(), TS: true, Dir: t.TempDir()}
	var state, begun State
	for n := range 5 {
		if err := outputs.Publish(t.Context(), &state, []Track{video.upTo(n)}, []Track{audio}); err != nil {
			t.Fatal(err)
		}
		if state = afterRestart(t, state); len(state.items["mp4"]["noise"].Parts) > 0 {
			begun = afterRestart(t, state)
		}
	}
	if !state.Finished || begun.items["mp4"]["noise"] == nil {
		t.Fatalf("finished %t; no upload in parts was seen", state.Finished)
	}
	mediatest.WantFrames(t, bucket.Dir, testFrames, "v/mp4/noise.mp4", "v/hls/index.m3u8", "fmp4/index-stream1.mp4")
	// Who did not note that the upload was completed finds it so.
	before, err := dest.Stat(t.Context(), "v/mp4/noise.mp4")
	if err != nil {
		t.Fatal(err)
	}
	if err := outputs.Publish(t.Context(), &begun, []Track{video}, []Track{audio}); err != nil {
		t.Fatal(err)
	}
	after, err := dest.Stat(t.Context(), "v/mp4/noise.mp4")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the file was uploaded again (-before +after):\n%s", diff)
	}
}
