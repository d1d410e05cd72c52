package ingest

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/codec"
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

// tsFrames is what a reader handed on.
type tsFrames struct {
	frames map[cmaf.Kind][]sent
	codecs map[cmaf.Kind]string
	config map[cmaf.Kind]string
	kinds  []string
}

func (f *tsFrames) reader() *tsReader {
	f.frames, f.codecs, f.config = map[cmaf.Kind][]sent{}, map[cmaf.Kind]string{}, map[cmaf.Kind]string{}
	return newTSReader(func(p codec.Packet, at time.Duration) error {
		f.codecs[p.Kind] = p.Codec
		if p.Config {
			f.config[p.Kind] = hex.EncodeToString(p.Data)
			return nil
		}
		digest := md5.Sum(p.Data)
		f.frames[p.Kind] = append(f.frames[p.Kind], sent{at, at + p.Composition, false, hex.EncodeToString(digest[:])})
		return nil
	}, func(video, audio bool) {
		f.kinds = append(f.kinds, fmt.Sprintf("video %v audio %v", video, audio))
	}, slog.New(slog.DiscardHandler))
}

// readTS reads a stream in pieces of a size.
func readTS(t *testing.T, stream []byte, size int) *tsFrames {
	t.Helper()
	var f tsFrames
	r := f.reader()
	for piece := range slices.Chunk(stream, size) {
		if err := r.write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	return &f
}

// How a stream is cut does not matter, nor what is before it, nor packets that say
// nothing or come twice.
func TestTSPieces(t *testing.T) {
	stream := tsClip(t, "flv", "-c copy")
	want := readTS(t, stream, len(stream))
	if n := len(want.frames[cmaf.Video]); n != 50 || len(want.frames[cmaf.Audio]) < 90 {
		t.Fatalf("%d pictures, %d of sound, want 50 and some 94", n, len(want.frames[cmaf.Audio]))
	}
	if diff := cmp.Diff(map[cmaf.Kind]string{cmaf.Video: codec.H264, cmaf.Audio: codec.AAC}, want.codecs); diff != "" {
		t.Errorf("codecs (-want +got):\n%s", diff)
	}
	empty := append([]byte{tsSync, 0x1F, 0xFF, 0x10}, make([]byte, tsSize-4)...)
	var stuffed, twice []byte
	for packet := range slices.Chunk(stream, tsSize) {
		stuffed = slices.Concat(stuffed, packet, empty)
		twice = slices.Concat(twice, packet, packet)
	}
	for name, tt := range map[string]struct {
		stream []byte
		size   int
	}{
		"seven packets":  {stream, 7 * tsSize},
		"odd":            {stream, 1000},
		"byte by byte":   {stream, 1},
		"behind garbage": {append(bytes.Repeat([]byte{1, tsSync, 3}, 500), stream...), 1316},
		"stuffed":        {stuffed, 1316},
		"twice":          {twice, 1316},
	} {
		if diff := cmp.Diff(want.frames, readTS(t, tt.stream, tt.size).frames); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of a stream with holes, frames arrive whole or not at all, and those after a hole do
// arrive.
func TestTSLoss(t *testing.T) {
	stream := tsClip(t, "flv", "-c copy")
	want := readTS(t, stream, len(stream))
	for _, told := range []bool{true, false} { // whether the connection knows that something is lost
		var f tsFrames
		r := f.reader()
		chance := rand.New(rand.NewPCG(1, 2))
		lost := 0
		for piece := range slices.Chunk(stream, 7*tsSize) {
			if chance.IntN(20) == 0 {
				if lost++; told {
					r.lost()
				}
				continue
			}
			if err := r.write(piece); err != nil {
				t.Fatal(err)
			}
		}
		for kind, all := range want.frames {
			came := f.frames[kind]
			for _, frame := range came {
				// Audio whose time was lost goes on at the end of what came before.
				near := func(a sent) bool { return a.Digest == frame.Digest && (a.DTS-frame.DTS).Abs() < time.Second }
				if !slices.ContainsFunc(all, near) {
					t.Errorf("%s at %v was not sent like this", kind, frame.DTS)
				}
			}
			if len(came) < len(all)/3 || len(came) == len(all) || lost == 0 {
				t.Errorf("told=%v: %d frames of %d of %s came although %d pieces were lost", told, len(came), len(all), kind, lost)
			}
		}
	}
}

// The clock of a transport stream starts anew after 26.5 hours.
func TestTSWrap(t *testing.T) {
	const turn = float64(1<<33) / tsRate
	plain := readTS(t, tsClip(t, "flv", "-c copy -muxdelay 0 -muxpreload 0 -output_ts_offset 10"), 1316)
	turned := readTS(t, tsClip(t, "flv", fmt.Sprintf("-c copy -muxdelay 0 -muxpreload 0 -output_ts_offset %f", turn-1)), 1316)
	for kind, frames := range turned.frames {
		for i := range frames {
			frames[i].DTS -= duration(1<<33-11*tsRate, tsRate)
			frames[i].PTS -= duration(1<<33-11*tsRate, tsRate)
		}
		near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
		if diff := cmp.Diff(plain.frames[kind], frames, near); diff != "" {
			t.Errorf("%s (-plain +turned):\n%s", kind, diff)
		}
	}
}

// What is in a stream, and what weir says of codecs that it can't take.
func TestTSCodecs(t *testing.T) {
	for _, tt := range []struct {
		name, clip, options string
		want                map[cmaf.Kind]string
		config              string // of the audio
		frames              int
	}{
		{"LATM", "sound.flv", "-c copy -mpegts_flags +latm", map[cmaf.Kind]string{cmaf.Audio: codec.AAC}, "1208", 88},
		{"Opus", "opus.mp4", "-c copy", map[cmaf.Kind]string{cmaf.Audio: codec.Opus}, hex.EncodeToString([]byte("OpusHead\x01\x01\x00\x00\x80\xbb\x00\x00\x00\x00\x00")), 51},
		{"HEVC", "h265.mp4", "-c copy", map[cmaf.Kind]string{cmaf.Video: codec.H265}, "", 0},
		{"AC-3", "sound.flv", "-c ac3", map[cmaf.Kind]string{cmaf.Audio: "AC-3"}, "", -1},
		{"MP3", "sound.flv", "-c libmp3lame", map[cmaf.Kind]string{cmaf.Audio: "MP3 or MP2"}, "", -1},
		{"MPEG-2", "picture.flv", "-c mpeg2video", map[cmaf.Kind]string{cmaf.Video: "MPEG-2"}, "", 0},
		{"the second can be taken", "flv", "-map 0:a -c:v copy -c:a:0 mp2 -c:a:1 copy", map[cmaf.Kind]string{cmaf.Video: codec.H264, cmaf.Audio: codec.AAC}, "1188", -1},
		{"data beside", "flv", "-c copy -metadata service_name=x -mpegts_service_id 7", map[cmaf.Kind]string{cmaf.Video: codec.H264, cmaf.Audio: codec.AAC}, "1188", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := readTS(t, tsClip(t, tt.clip, tt.options), 1316)
			if diff := cmp.Diff(tt.want, f.codecs); diff != "" {
				t.Errorf("codecs (-want +got):\n%s", diff)
			}
			if got := f.config[cmaf.Audio]; got != tt.config {
				t.Errorf("config %s, want %s", got, tt.config)
			}
			if n := len(f.frames[cmaf.Audio]); tt.frames >= 0 && n != tt.frames {
				t.Errorf("%d frames of sound, want %d", n, tt.frames)
			}
		})
	}
}

// What a feed makes of audio and video that weir can't take.
func TestTSLeftOut(t *testing.T) {
	for _, tt := range []struct {
		name, options string
		tracks        int
		err, log      string
	}{
		{"sound", "-c:v copy -c:a ac3", 1, "", "AC-3 can't be taken; send AAC or Opus"},
		{"pictures", "-c:v mpeg2video -c:a copy", 0, "pictures in MPEG-2 can't be taken", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub, log := newTestHub(), &logBook{}
			p, err := hub.publish(t.Context(), goodKey, source)
			if err != nil {
				t.Fatal(err)
			}
			f := newFeed(p, log.logger())
			r := newTSReader(func(p codec.Packet, at time.Duration) error { return f.add(t.Context(), p, at) }, f.promise, log.logger())
			err = r.write(tsClip(t, "flv", tt.options))
			if tt.err != "" && (weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if !strings.Contains(log.String(), tt.log) {
				t.Errorf("log, want %q:\n%s", tt.log, log)
			}
			pub := hub.publishers[0]
			if want := "the sound is left out: " + tt.log; tt.log != "" && pub.left != want {
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

// A reader keeps no more than a frame may have, whatever it is sent.
func TestTSBounds(t *testing.T) {
	var f tsFrames
	r := f.reader()
	if err := r.write(tsClip(t, "picture.flv", "-c copy")); err != nil {
		t.Fatal(err)
	}
	video := r.video
	start := append([]byte{tsSync, 0x40 | byte(video.pid>>8), byte(video.pid), 0x10 | byte(video.count+1)&15, 0, 0, 1, 0xE0, 0, 0, 0x80, 0, 0}, make([]byte, tsSize)...)[:tsSize]
	if err := r.write(start); err != nil {
		t.Fatal(err)
	}
	before := len(f.frames[cmaf.Video])
	for i := range 2 * maxPES / 184 {
		p := slices.Clone(start)
		p[1], p[3] = byte(video.pid>>8), 0x10|byte(video.count+1)&15
		binary.BigEndian.PutUint32(p[4:], uint32(i))
		if err := r.write(p); err != nil {
			t.Fatal(err)
		}
		if len(video.pes) > maxPES || len(r.carry) > tsSize {
			t.Fatalf("%d bytes of a frame are kept, %d beside it", len(video.pes), len(r.carry))
		}
	}
	if err := r.end(); err != nil || len(f.frames[cmaf.Video]) != before {
		t.Errorf("a frame of more than %d bytes was handed on (%v)", maxPES, err)
	}
}

func FuzzTS(f *testing.F) {
	for _, c := range []struct{ name, options string }{{"flv", "-c copy -t 0.2"}, {"sound.flv", "-c copy -t 0.2 -mpegts_flags +latm"}, {"opus.mp4", "-c copy -t 0.2"}} {
		stream := tsClip(f, c.name, c.options)
		f.Add(stream[:min(len(stream), 40*tsSize)], uint16(1316))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		hub := newTestHub()
		p, err := hub.publish(t.Context(), goodKey, source)
		if err != nil {
			t.Fatal(err)
		}
		feed := newFeed(p, slog.New(slog.DiscardHandler))
		r := newTSReader(func(p codec.Packet, at time.Duration) error {
			if p.Composition < 0 || p.Composition > maxShown {
				t.Errorf("shown %v after being decoded", p.Composition)
			}
			return feed.add(t.Context(), p, at)
		}, feed.promise, slog.New(slog.DiscardHandler))
		for piece := range slices.Chunk(stream, int(size)+1) {
			if piece[0] == 0xFE {
				r.lost()
			}
			if err := r.write(piece); err != nil {
				if weir.KindOf(err) != weir.Invalid {
					t.Errorf("error %v, which is not the sender's", err)
				}
				return
			}
			if len(r.carry) >= tsSize || len(r.programs.data) > maxTable+tsSize || len(r.tracks.data) > maxTable+tsSize {
				t.Fatalf("%d, %d and %d bytes are kept", len(r.carry), len(r.programs.data), len(r.tracks.data))
			}
		}
		_ = r.end()
	})
}
