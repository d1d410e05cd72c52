package ingest

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/codec"
	"weir/internal/mpegts"
	"weir/internal/weir"
)

// tsClip returns a clip as a transport stream.
func tsClip(t testing.TB, name, options string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.ts")
	args := slices.Concat([]string{"-v", "error", "-nostdin", "-i", clip(t, name), "-map", "0"}, strings.Fields(options), []string{"-f", "mpegts", path})
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Audio and video with unsupported codecs.
func TestTSUnsupportedCodecs(t *testing.T) {
	for _, tt := range []struct {
		name, options string
		tracks        int
		err, log      string
	}{
		{"audio", "-c:v copy -c:a ac3", 1, "", "AC-3 is not supported; send AAC or Opus"},
		{"video", "-c:v mpeg2video -c:a copy", 0, "video in MPEG-2 is not supported", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub, log := newTestHub(), &logBook{}
			p, err := hub.publish(t.Context(), goodKey, source)
			if err != nil {
				t.Fatal(err)
			}
			f := newFeed(p, log.logger())
			d := mpegts.NewDemuxer(func(p codec.Packet, at time.Duration) error { return f.addPacket(t.Context(), p, at) }, f.announce, log.logger())
			err = d.Write(tsClip(t, "flv", tt.options))
			if tt.err != "" && (weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			log.wait(t, tt.log)
			pub := hub.publishers[0]
			if want := "the audio is left out: " + tt.log; tt.log != "" && pub.left != want {
				t.Errorf("the health says %q, want %q", pub.left, want)
			}
			if tt.tracks == 0 && len(pub.tracks) == 0 {
				return
			}
			if len(pub.tracks) != 1 || len(pub.tracks[0]) != tt.tracks || len(pub.frames) < 40 {
				t.Errorf("tracks %v with %d frames, want once %d", pub.tracks, len(pub.frames), tt.tracks)
			}
		})
	}
}

// FuzzTS: whatever a transport stream says, a feed ends with an error of the sender at most.
func FuzzTS(f *testing.F) {
	for _, c := range []struct{ name, options string }{{"flv", "-c copy -t 0.2"}, {"audio.flv", "-c copy -t 0.2 -mpegts_flags +latm"}, {"opus.mp4", "-c copy -t 0.2"}} {
		stream := tsClip(f, c.name, c.options)
		f.Add(stream[:min(len(stream), 40*mpegts.PacketSize)])
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		hub := newTestHub()
		p, err := hub.publish(t.Context(), goodKey, source)
		if err != nil {
			t.Fatal(err)
		}
		feed := newFeed(p, slog.New(slog.DiscardHandler))
		d := mpegts.NewDemuxer(func(p codec.Packet, at time.Duration) error {
			return feed.addPacket(t.Context(), p, at)
		}, feed.announce, slog.New(slog.DiscardHandler))
		if err := d.Write(stream); err != nil && weir.KindOf(err) != weir.Invalid {
			t.Errorf("error %v, which is not the sender's", err)
		}
	})
}
