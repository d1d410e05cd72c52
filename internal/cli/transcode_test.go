package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/vod"
	"weir/internal/weir"
)

// transcodeOptions parses a command line and returns the options of the engine.
func transcodeOptions(t *testing.T, args ...string) (vod.RunOptions, error) {
	t.Helper()
	c, err := parseWith(t, append([]string{"transcode", "in.mp4", "out", "--sandbox=off"}, args...)...)
	if err != nil {
		return vod.RunOptions{}, err
	}
	return c.Transcode.options(&c.Config)
}

func TestTranscodeOptions(t *testing.T) {
	o, err := transcodeOptions(t, "--profile=720p:3M", "--profile", "360p", "--outputs=hls,fmp4", "--gop=1", "--segment=4", "--no-passthrough", "--workers=5")
	if err != nil {
		t.Fatal(err)
	}
	here := &weir.PathParam{Path: "/"}
	if diff := cmp.Diff(weir.TranscodeOutputs{HLS: here, FMP4: here}, o.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	want := vod.Request{
		Profiles: []weir.Profile{
			{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_000, GOP: "1"},
			{Name: "360p", Width: 640, Height: 360, Bitrate: 800_000, GOP: "1"},
		},
		SegmentSeconds: 4, EncodeAll: true, Encoders: 2,
	}
	if diff := cmp.Diff(want, o.Request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}

	o, err = transcodeOptions(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(weir.TranscodeOutputs{HLS: here, MP4: here}, o.Outputs); diff != "" || o.Request.SegmentSeconds != 6 {
		t.Errorf("defaults: segments of %g s, outputs (-want +got):\n%s", o.Request.SegmentSeconds, diff)
	}

	for _, args := range []string{"--outputs=avi", "--segment=1", "--segment=30", "--gop=often --profile=720p", "--gop=2", "--profile=720p --profile=720p"} {
		if _, err := transcodeOptions(t, strings.Fields(args)...); weir.KindOf(err) != weir.Invalid || err == nil {
			t.Errorf("%s: error %v, want one that says what is wrong", args, err)
		}
	}
}

func TestReporter(t *testing.T) {
	progress := []vod.Progress{
		{Step: "reading", Fraction: 0.05},
		{Step: "encoding", Fraction: 0.5, FPS: 60, Speed: 2.5, ETA: 65 * time.Second},
		{Step: "encoding", Fraction: 0.51}, // too soon after the one before
		{Step: "finishing", Fraction: 1},
	}
	result := weir.TranscodeOutput{
		HLS: &weir.PathParam{Path: "/index.m3u8"}, MP4: []weir.PathParam{{Path: "/720p.mp4"}},
		FMP4:       &weir.FMP4Output{Path: "/fmp4/master.m3u8", DASH: "/fmp4/index.mpd"},
		Renditions: []weir.RenditionOutput{{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_400, Size: 22_543_000, Codec: "avc1.64001f"}},
		InputVideo: weir.InputVideo{Duration: 60},
	}
	for _, tt := range []struct {
		name     string
		reporter reporter
		out, err string
	}{
		{
			"lines",
			reporter{},
			"720p           1280x720     3000 kb/s    22.5 MB  avc1.64001f\nHLS   out/index.m3u8\nMP4   out/720p.mp4\nfMP4  out/fmp4/master.m3u8\nDASH  out/fmp4/index.mpd\n1:00 of video in 24.0 s, 2.50x\n",
			"  5.0 %  reading\n 50.0 %  encoding      2.50x  1:05 left\n100.0 %  finishing\nwarning: it is damaged\n",
		},
		{
			"JSON",
			reporter{json: true, terminal: true},
			`{"event":"progress","step":"reading","fraction":0.05}` + "\n" +
				`{"event":"progress","step":"encoding","fraction":0.5,"fps":60,"speed":2.5,"eta":65}` + "\n" +
				`{"event":"progress","step":"finishing","fraction":1}` + "\n" + `{"event":"warning","message":"it is damaged"}` + "\n" + `{"event":"result","speed":2.5,"seconds":24,"result":`,
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, err bytes.Buffer
			r := tt.reporter
			r.out, r.err = &out, &err
			for _, p := range progress {
				r.progress(p)
			}
			r.warn("it is damaged")
			if err := r.finish(result, "out", 24*time.Second); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(out.String(), tt.out) || err.String() != tt.err {
				t.Errorf("standard output:\n%s\nwant:\n%s\nstandard error:\n%s\nwant:\n%s", out.String(), tt.out, err.String(), tt.err)
			}
		})
	}
	t.Run("terminal", func(t *testing.T) {
		var out, err bytes.Buffer
		r := reporter{terminal: true, out: &out, err: &err}
		r.progress(progress[1])
		want := "\r[" + strings.Repeat("#", 15) + strings.Repeat("-", 15) + "]  50.0 %  encoding      2.50x  1:05 left\x1b[K"
		if err.String() != want {
			t.Errorf("got %q, want %q", err.String(), want)
		}
	})
}

func TestTranscodeExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		err   error
		code  int
		shown string
	}{
		{"our fault", t.Context(), errors.New("broken"), 1, "weir: broken\n"},
		{"may work later", t.Context(), weir.Errorf(weir.Upstream, "503"), 1, "weir: 503\n"},
		{"bad source", t.Context(), weir.Errorf(weir.Invalid, "no video"), 2, "weir: no video\n"},
		{"interrupted", ended, context.Canceled, 130, "weir: interrupted; unfinished files are removed\n"},
	} {
		for _, asJSON := range []bool{false, true} {
			var out, stderr bytes.Buffer
			r := reporter{json: asJSON, out: &out, err: &stderr, interrupted: "interrupted; unfinished files are removed"}
			code := exitStatus(&stderr, r.fail(tt.ctx, tt.err))
			if code != tt.code {
				t.Errorf("%s: exit code %d, want %d", tt.name, code, tt.code)
			}
			if asJSON {
				var got line
				if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Event != "error" || got.Message == "" || stderr.Len() > 0 {
					t.Errorf("%s: %s, and beside it %s", tt.name, out.String(), stderr.String())
				}
			} else if stderr.String() != tt.shown {
				t.Errorf("%s: %q, want %q", tt.name, stderr.String(), tt.shown)
			}
		}
	}
	var stderr bytes.Buffer
	if code := exitStatus(&stderr, errors.New("other command")); code != 1 || stderr.String() != "weir: other command\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

// The command from its line to its files.
func TestTranscode(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "in.mp4")
	made := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3",
		"-f", "lavfi", "-i", "sine=d=3", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", input)
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg: %v: %s", err, out)
	}
	c, err := parseWith(t, "transcode", input, filepath.Join(dir, "out"), "--profile=256x144:150k", "--sandbox=off")
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Transcode.options(&c.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Transcode.transcode(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(filepath.Join(dir, "out"), func(path string, entry os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		info, infoErr := entry.Info()
		if infoErr == nil && info.Mode().Perm()&0o444 != 0o444&^umaskOf(t) {
			t.Errorf("%s has mode %s", rel, info.Mode())
		}
		got = append(got, rel)
		return errors.Join(err, infoErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"out", "out/256x144", "out/256x144/0.ts", "out/256x144/index.m3u8", "out/256x144.mp4", "out/index.m3u8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	t.Run("bad source", func(t *testing.T) {
		c := c.Transcode
		c.OutDir = filepath.Join(t.TempDir(), "new")
		o.Source, o.Dir = filepath.Join(dir, "none.mp4"), filepath.Join(c.OutDir, workFolder)
		if _, err := c.transcode(t.Context(), o); weir.KindOf(err) != weir.NotFound {
			t.Errorf("error %v, want that there is no such file", err)
		}
		if _, err := os.Stat(c.OutDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder was left: %v", err)
		}
	})
}

// umaskOf returns the umask of this process.
func umaskOf(t *testing.T) os.FileMode {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return 0o666 &^ info.Mode().Perm()
}
