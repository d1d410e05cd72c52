package push

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib/pkg/message"
	gocmp "github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/srt"
	"weir/internal/wait"
	"weir/internal/weir"
)

// clipFrames returns a clip of two seconds with B-frames as a tap would give it, and the file that
// it is in.
func clipFrames(t *testing.T, coding string) (frames []live.TapItem, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "clip.mp4")
	args := "-v error -nostdin -f lavfi -i testsrc2=size=160x90:rate=25:duration=2 -f lavfi -i sine=sample_rate=48000:duration=2 -map 0:v -map 1:a " +
		"-c:v " + coding + " -preset ultrafast -pix_fmt yuv420p -bf 2 -g 25 -tag:v " + map[string]string{"libx264": "avc1", "libx265": "hvc1"}[coding] +
		" -x265-params log-level=error:pools=1 -c:a aac -movflags +frag_keyframe+empty_moov+default_base_moof " + file
	if coding == "libx264" {
		args = strings.Replace(args, "-x265-params log-level=error:pools=1 ", "-b_strategy 0 ", 1)
	}
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := cmaf.NewReader(bytes.NewReader(data))
	tracks, err := r.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at, data := f.Start, f.Data
		for _, s := range f.Samples {
			track := tracks[f.Track]
			frames = append(frames, live.TapItem{
				Track: f.Track, DTS: 5*time.Second + track.Time(at), PTS: 5*time.Second + track.Time(at+int64(s.Offset)), Sync: s.Sync, Data: data[:s.Size:s.Size],
			})
			at, data = at+int64(s.Duration), data[s.Size:]
		}
	}
	slices.SortStableFunc(frames, func(a, b live.TapItem) int { return int(a.DTS - b.DTS) })
	first := slices.IndexFunc(frames, func(f live.TapItem) bool { return tracks[f.Track].Kind == cmaf.Video })
	return append([]live.TapItem{{Tracks: tracks}}, frames[first:]...), file
}

// HEVC goes over RTMP as Enhanced RTMP has it, with its configuration, its times and its data as
// they are.
func TestPushHEVC(t *testing.T) {
	frames, _ := clipFrames(t, "libx265")
	p := newPlatform(t, "")
	o, err := dialRTMP(t.Context(), p.url("hevc"), (&net.Dialer{}).DialContext, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	feed := newConverter(o, false)
	type videoFrame struct {
		DTS, PTS time.Duration
		Data     []byte
	}
	var want, got []videoFrame
	var zero time.Duration
	for i, f := range frames {
		if err := feed.convert(f); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			zero = f.DTS
		}
		if i > 0 && f.Track == feed.video {
			want = append(want, videoFrame{f.DTS - zero, f.PTS - zero, f.Data})
		}
	}
	var config []byte
	collect := func() bool {
		got = nil
		for _, m := range p.messages("hevc") {
			switch m := m.(type) {
			case *message.VideoExSequenceStart:
				for _, set := range m.HEVCConfig.NaluArrays {
					const sps = 33
					if set.NaluType == sps {
						config = set.Nalus[0].NALUnit
					}
				}
			case *message.VideoExCodedFrames:
				got = append(got, videoFrame{m.DTS, m.DTS + m.PTSDelta, m.Payload})
			case *message.VideoExFramesX:
				got = append(got, videoFrame{m.DTS, m.DTS, m.Payload})
			}
		}
		return len(got) == len(want)
	}
	wait.Until(t, "all video frames", collect)
	near := gocmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
	if diff := gocmp.Diff(want, got, near); diff != "" {
		t.Errorf("video frames (-sent +received):\n%s", diff)
	}
	if len(config) == 0 || !bytes.Contains(frames[0].Tracks[0].Config().Record, config) {
		t.Errorf("the configuration has the sequence parameters %x", config)
	}
}

// The MPEG-TS over SRT has the same video frames at the same times.
func TestPushSRT(t *testing.T) {
	for _, coding := range []string{"libx264", "libx265"} {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			frames, clip := clipFrames(t, coding)
			listener, err := srt.Listen("127.0.0.1:0", "0123456789")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			var got bytes.Buffer
			var receiving sync.WaitGroup
			receiving.Go(func() {
				request, err := listener.Accept()
				if err != nil {
					return
				}
				if key, err := request.StreamKey(); key != "key" {
					request.Reject(err)
					return
				}
				conn, err := request.Accept()
				if err != nil {
					return
				}
				_, _ = io.Copy(&got, conn)
				_ = conn.Close()
			})
			resolve := func(context.Context, string) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			o, err := dialSRT(t.Context(), "srt://a.example:"+port+"?streamid=key&passphrase=0123456789", resolve, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			feed := newConverter(o, false)
			for i, f := range frames {
				if i > 0 { // not all at once, also after a halt of the machine: SRT is for what comes in time
					time.Sleep((f.DTS - frames[i-1].DTS) / 4)
				}
				if err := feed.convert(f); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.pause(); err != nil {
				t.Fatal(err)
			}
			o.close()
			receiving.Wait()
			file := filepath.Join(t.TempDir(), "got.ts")
			if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(shownFrames(t, clip), shownFrames(t, file)); diff != "" {
				t.Errorf("video frames (-sent +received):\n%s", diff)
			}
		})
	}
}

// shownFrames returns the presentation times of the video frames of a file and what they look like.
func shownFrames(t *testing.T, file string) (frames []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-i", file, "-map", "0:v", "-fps_mode", "passthrough",
		"-vf", "settb=1/1000,setpts=PTS-STARTPTS", "-f", "framemd5", "-").Output()
	if err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Split(line, ","); len(fields) == 6 {
			frames = append(frames, strings.TrimSpace(fields[2])+" "+strings.TrimSpace(fields[5]))
		}
	}
	return frames
}

// The error of an invalid URL does not contain the URL.
func TestSRTProblems(t *testing.T) {
	resolve := func(context.Context, string) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }
	for query, want := range map[string]string{
		"":                       "must be srt://host:port?streamid=key",
		":99?a=%zz":              "must be srt://host:port?streamid=key",
		":99?passphrase=hunter2": "a passphrase has 10 to 80 characters",
		":99?latency=99999":      "in milliseconds, at most 8000",
		":99?mode=listener":      "leave out mode",
	} {
		_, err := dialSRT(t.Context(), "srt://a.example"+query, resolve, nil)
		if weir.KindOf(err) != weir.Invalid || !strings.Contains(sentenceOf(err), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v, want %q", query, err, want)
		}
	}
}
