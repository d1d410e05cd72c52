package vod

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/media/mediatest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(mediatest.Runner{M: m})
}

func newEngine(t *testing.T) Engine { return engineOf(t, 2) }

// engineOf returns an engine for a machine with that many cores. With one, encodes have one thread and
// give the same bytes again.
func engineOf(t *testing.T, cores int) Engine {
	t.Helper()
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: cores})
	if err != nil {
		t.Fatal(err)
	}
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return Engine{FFmpeg: engine, Store: store}
}

// outcome is the result of a source.
type outcome struct {
	Engine
	file    string
	source  Source
	plan    Plan
	results []ChunkResult
	audio   []RenditionResult
}

// again sends a value through JSON, as between two machines.
func again[T any](t *testing.T, value T) T {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// transcode does all steps but publishing.
func transcode(t *testing.T, file string, req Request) outcome {
	t.Helper()
	o, err := tryTranscode(t, file, req)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func tryTranscode(t *testing.T, file string, req Request) (outcome, error) {
	t.Helper()
	return transcodeBy(t, newEngine(t), file, req)
}

func transcodeBy(t *testing.T, engine Engine, file string, req Request) (outcome, error) {
	t.Helper()
	o := outcome{Engine: engine, file: file}
	ctx := t.Context()
	src, err := o.Import(ctx, ImportOptions{File: file, Prefix: "work/1", SegmentSeconds: req.SegmentSeconds})
	if err != nil {
		return o, err
	}
	o.source = again(t, src)
	plan, err := o.Plan(ctx, o.source, req)
	if err != nil {
		return o, err
	}
	o.plan = again(t, plan)
	if n := len(o.plan.Chunks); n > 1 {
		o.plan.Chunks[n/2].Continues = false // so that two encodes are joined
	}
	if o.results, err = o.encode(t, o.plan, file); err != nil {
		return o, err
	}
	for k := range o.plan.Audio {
		result, err := o.EncodeAudio(ctx, o.plan, k, nil)
		if err != nil {
			return o, err
		}
		o.audio = append(o.audio, again(t, result))
	}
	return o, nil
}

// encode runs all encodes of a plan.
func (e Engine) encode(t *testing.T, plan Plan, file string) (results []ChunkResult, err error) {
	t.Helper()
	done := func(r ChunkResult) error {
		if r.Chunk != len(results) {
			t.Errorf("chunk %d comes after %d others", r.Chunk, len(results))
		}
		results = append(results, again(t, r))
		return nil
	}
	for err == nil && len(results) < len(plan.Chunks) {
		err = e.Encode(t.Context(), plan, len(results), EncodeOptions{File: file, Done: done})
	}
	return results, err
}

// seal makes tracks of the renditions and returns that with the given name.
func (o outcome) track(t *testing.T, name string) *media.Track {
	t.Helper()
	for _, r := range o.plan.Renditions {
		if r.Name != name {
			continue
		}
		if !r.Copy {
			o.seal(t, r)
		}
		track, err := media.Open(t.Context(), o.Store, o.plan.Prefix+"/"+r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return track
	}
	for _, a := range o.plan.Audio {
		if a.Name == name {
			track, err := media.Open(t.Context(), o.Store, o.plan.Prefix+"/"+name)
			if err != nil {
				t.Fatal(err)
			}
			return track
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

func (o outcome) seal(t *testing.T, r Rendition) {
	t.Helper()
	index := o.results[0].rendition(t, r.Name).Track
	whole := media.NewTrack(o.Store, "", indexOf(t, o.results, r.Name)).Index()
	for _, result := range o.results {
		if !bytes.Equal(result.rendition(t, r.Name).Track.Entry, index.Entry) {
			t.Errorf("%s: chunk %d has another sample entry than chunk 0", r.Name, result.Chunk)
		}
	}
	if err := media.Seal(t.Context(), o.Store, o.plan.Prefix+"/"+r.Dir, whole); err != nil {
		t.Fatal(err)
	}
}

func (r ChunkResult) rendition(t *testing.T, name string) RenditionResult {
	t.Helper()
	for _, rendition := range r.Renditions {
		if rendition.Name == name {
			return rendition
		}
	}
	t.Fatalf("chunk %d has no %s", r.Chunk, name)
	return RenditionResult{}
}

// export writes a track to a file and returns its name.
func export(t *testing.T, track *media.Track) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "track.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(track.Init()); err != nil {
		t.Fatal(err)
	}
	for n := range track.Index().Segments {
		body, _, err := track.Segment(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(file, body)
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return file.Name()
}

// decoded is a decoded frame, or a packet of audio.
type decoded struct {
	seconds float64
	sum     string
}

// frameSums decodes the streams of a file that args select. Any message of ffmpeg is an error.
func frameSums(t *testing.T, file string, args ...string) []decoded {
	t.Helper()
	all := append([]string{"-nostdin", "-v", "error", "-i", file}, args...)
	all = append(all, "-fps_mode", "passthrough", "-enc_time_base", "1/1000000", "-f", "framemd5", "-")
	out, complaints := ffmpegOutput(t, all)
	if complaints != "" {
		t.Errorf("ffmpeg complains about %s: %s", file, complaints)
	}
	var list []decoded
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, ",")
		ticks, err := strconv.ParseInt(strings.TrimSpace(fields[2]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, decoded{float64(ticks) / 1e6, strings.TrimSpace(fields[5])})
	}
	return list
}

func ffmpegOutput(t *testing.T, args []string) (stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "ffmpeg", args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("ffmpeg %q: %v\n%s", args, err, complaints.String())
	}
	return out.String(), complaints.String()
}

var ssimAll = regexp.MustCompile(`All:([0-9.]+)`)

// compare decodes a file, without a complaint of ffmpeg, and compares its frames with those of a
// reference that filters bring to the same form: how many there are, and how similar.
func compare(t *testing.T, file, reference, filters string) (frames int, similar float64) {
	t.Helper()
	graph := fmt.Sprintf("[1:v]%s,settb=AVTB,setpts=N/TB/25[r];[0:v]settb=AVTB,setpts=N/TB/25[d];[d][r]ssim=stats_file=-", filters)
	out, complaints := ffmpegOutput(t, []string{"-nostdin", "-v", "error", "-xerror", "-i", file, "-i", reference, "-filter_complex", graph, "-fps_mode", "passthrough", "-enc_time_base", "1/1000000", "-f", "null", "-"})
	if complaints != "" {
		t.Errorf("ffmpeg complains about %s: %s", file, complaints)
	}
	for _, match := range ssimAll.FindAllStringSubmatch(out, -1) {
		value, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		frames++
		similar += value
	}
	return frames, similar / float64(max(frames, 1))
}
