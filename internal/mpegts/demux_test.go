package mpegts

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/codec"
)

// The inputs of clips, for ffmpeg.
const (
	testVideo = " -f lavfi -i testsrc2=s=160x90:r=25:d=2 "
	testAudio = " -f lavfi -i sine=440:r=48000:d=2 "
	h264AAC   = testVideo + testAudio + "-c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac -b:a 64k "
	onlyAAC   = "-f lavfi -i sine=440:r=44100:d=2 -c:a aac -b:a 64k "
	onlyOpus  = "-f lavfi -i sine=440:r=48000:d=1 -c:a libopus -b:a 64k "
	onlyH264  = testVideo + "-c:v libx264 -preset ultrafast -g 25 "
)

var clips sync.Map // options → func() ([]byte, error)

// clip returns a transport stream that ffmpeg made.
func clip(t testing.TB, options string) []byte {
	t.Helper()
	f, _ := clips.LoadOrStore(options, sync.OnceValues(func() ([]byte, error) {
		args := slices.Concat(strings.Fields("-v error -nostdin -threads 1 "+options), strings.Fields("-f mpegts pipe:1"))
		return exec.Command("ffmpeg", args...).Output()
	}))
	data, err := f.(func() ([]byte, error))()
	if err != nil {
		t.Fatalf("ffmpeg %s: %v", options, err)
	}
	return data
}

// frame is a frame that a demuxer handed on.
type frame struct {
	DTS, PTS time.Duration
	Digest   string
}

// received is all that a demuxer handed on.
type received struct {
	frames map[codec.Kind][]frame
	codecs map[codec.Kind]string
	config map[codec.Kind]string
}

func (r *received) demuxer() *Demuxer {
	r.frames, r.codecs, r.config = map[codec.Kind][]frame{}, map[codec.Kind]string{}, map[codec.Kind]string{}
	return NewDemuxer(func(p codec.Packet, at time.Duration) error {
		r.codecs[p.Kind] = p.Codec
		if p.Config {
			r.config[p.Kind] = hex.EncodeToString(p.Data)
			return nil
		}
		digest := md5.Sum(p.Data)
		r.frames[p.Kind] = append(r.frames[p.Kind], frame{at, at + p.Composition, hex.EncodeToString(digest[:])})
		return nil
	}, func(bool, bool) {}, slog.New(slog.DiscardHandler))
}

// demux reads a stream in blocks of a size.
func demux(t *testing.T, stream []byte, size int) *received {
	t.Helper()
	var r received
	d := r.demuxer()
	for block := range slices.Chunk(stream, size) {
		if err := d.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	return &r
}

// TestDemuxBlocks: the size of the blocks does not matter, nor what is before the stream, nor null
// packets and duplicates.
func TestDemuxBlocks(t *testing.T) {
	stream := clip(t, h264AAC)
	want := demux(t, stream, len(stream))
	if n := len(want.frames[codec.Video]); n != 50 || len(want.frames[codec.Audio]) < 90 {
		t.Fatalf("%d pictures, %d of audio, want 50 and some 94", n, len(want.frames[codec.Audio]))
	}
	if diff := cmp.Diff(map[codec.Kind]string{codec.Video: codec.H264, codec.Audio: codec.AAC}, want.codecs); diff != "" {
		t.Errorf("codecs (-want +got):\n%s", diff)
	}
	empty := append([]byte{syncByte, 0x1F, 0xFF, 0x10}, make([]byte, PacketSize-4)...)
	var stuffed, twice []byte
	for packet := range slices.Chunk(stream, PacketSize) {
		stuffed = slices.Concat(stuffed, packet, empty)
		twice = slices.Concat(twice, packet, packet)
	}
	for name, tt := range map[string]struct {
		stream []byte
		size   int
	}{
		"seven packets":  {stream, 7 * PacketSize},
		"odd":            {stream, 1000},
		"byte by byte":   {stream, 1},
		"behind garbage": {append(bytes.Repeat([]byte{1, syncByte, 3}, 500), stream...), 1316},
		"stuffed":        {stuffed, 1316},
		"twice":          {twice, 1316},
	} {
		if diff := cmp.Diff(want.frames, demux(t, tt.stream, tt.size).frames); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDemuxLoss: of a stream with losses, frames arrive whole or not at all, and those after a loss
// do arrive.
func TestDemuxLoss(t *testing.T) {
	stream := clip(t, h264AAC)
	want := demux(t, stream, len(stream))
	for _, reported := range []bool{true, false} { // whether the connection knows that something is lost
		var r received
		d := r.demuxer()
		chance := rand.New(rand.NewPCG(1, 2))
		lost := 0
		for block := range slices.Chunk(stream, 7*PacketSize) {
			if chance.IntN(20) == 0 {
				if lost++; reported {
					d.Lost()
				}
				continue
			}
			if err := d.Write(block); err != nil {
				t.Fatal(err)
			}
		}
		for kind, all := range want.frames {
			came := r.frames[kind]
			for _, got := range came {
				// Audio whose time stamp was lost continues at the end of the frames before it.
				near := func(a frame) bool { return a.Digest == got.Digest && (a.DTS-got.DTS).Abs() < time.Second }
				if !slices.ContainsFunc(all, near) {
					t.Errorf("%s at %v was not sent like this", kind, got.DTS)
				}
			}
			if len(came) < len(all)/3 || len(came) == len(all) || lost == 0 {
				t.Errorf("reported=%v: %d frames of %d of %s came although %d blocks were lost", reported, len(came), len(all), kind, lost)
			}
		}
	}
}

// TestDemuxWrap: time stamps wrap after 26.5 hours.
func TestDemuxWrap(t *testing.T) {
	const turn = float64(1<<33) / ClockRate
	plain := demux(t, clip(t, h264AAC+"-muxdelay 0 -muxpreload 0 -output_ts_offset 10"), 1316)
	turned := demux(t, clip(t, fmt.Sprintf(h264AAC+"-muxdelay 0 -muxpreload 0 -output_ts_offset %f", turn-1)), 1316)
	for kind, frames := range turned.frames {
		for i := range frames {
			frames[i].DTS -= codec.Duration(1<<33-11*ClockRate, ClockRate)
			frames[i].PTS -= codec.Duration(1<<33-11*ClockRate, ClockRate)
		}
		near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
		if diff := cmp.Diff(plain.frames[kind], frames, near); diff != "" {
			t.Errorf("%s (-plain +turned):\n%s", kind, diff)
		}
	}
}

// TestDemuxCodecs: which codecs are found, and the names of those that are not supported.
func TestDemuxCodecs(t *testing.T) {
	for _, tt := range []struct {
		name, options string
		want          map[codec.Kind]string
		config        string // of the audio
		frames        int    // of audio; -1 = any number
	}{
		{"LATM", onlyAAC + "-mpegts_flags +latm", map[codec.Kind]string{codec.Audio: codec.AAC}, "1208", 88},
		{"Opus", onlyOpus, map[codec.Kind]string{codec.Audio: codec.Opus}, hex.EncodeToString(codec.OpusHead(1)), 51},
		{"HEVC", testVideo + "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=10", map[codec.Kind]string{codec.Video: codec.H265}, "", 0},
		{"AC-3", testAudio + "-c:a ac3", map[codec.Kind]string{codec.Audio: "AC-3"}, "", -1},
		{"MP3", testAudio + "-c:a libmp3lame", map[codec.Kind]string{codec.Audio: "MP3 or MP2"}, "", -1},
		{"MPEG-2", testVideo + "-c:v mpeg2video", map[codec.Kind]string{codec.Video: "MPEG-2"}, "", 0},
		{"the second is supported", testVideo + testAudio + "-map 0 -map 1 -map 1 -c:v libx264 -preset ultrafast -c:a:0 mp2 -c:a:1 aac", map[codec.Kind]string{codec.Video: codec.H264, codec.Audio: codec.AAC}, "1188", -1},
		{"data beside", h264AAC + "-metadata service_name=x -mpegts_service_id 7", map[codec.Kind]string{codec.Video: codec.H264, codec.Audio: codec.AAC}, "1188", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := demux(t, clip(t, tt.options), 1316)
			if diff := cmp.Diff(tt.want, r.codecs); diff != "" {
				t.Errorf("codecs (-want +got):\n%s", diff)
			}
			if got := r.config[codec.Audio]; got != tt.config {
				t.Errorf("config %s, want %s", got, tt.config)
			}
			if n := len(r.frames[codec.Audio]); tt.frames >= 0 && n != tt.frames {
				t.Errorf("%d frames of audio, want %d", n, tt.frames)
			}
		})
	}
}

// TestDemuxLimits: a demuxer keeps no more than the maximum of a frame, whatever it is sent.
func TestDemuxLimits(t *testing.T) {
	var r received
	d := r.demuxer()
	if err := d.Write(clip(t, onlyH264)); err != nil {
		t.Fatal(err)
	}
	video := d.video
	start := append([]byte{syncByte, 0x40 | byte(video.pid>>8), byte(video.pid), 0x10 | byte(video.counter+1)&15, 0, 0, 1, 0xE0, 0, 0, 0x80, 0, 0}, make([]byte, PacketSize)...)[:PacketSize]
	if err := d.Write(start); err != nil {
		t.Fatal(err)
	}
	before := len(r.frames[codec.Video])
	for i := range 2 * maxPES / 184 {
		p := slices.Clone(start)
		p[1], p[3] = byte(video.pid>>8), 0x10|byte(video.counter+1)&15
		binary.BigEndian.PutUint32(p[4:], uint32(i))
		if err := d.Write(p); err != nil {
			t.Fatal(err)
		}
		if len(video.pes) > maxPES || len(d.carry) > PacketSize {
			t.Fatalf("%d bytes of a frame are kept, %d beside it", len(video.pes), len(d.carry))
		}
	}
	if err := d.Flush(); err != nil || len(r.frames[codec.Video]) != before {
		t.Errorf("a frame of more than %d bytes was handed on (%v)", maxPES, err)
	}
}

func FuzzDemuxer(f *testing.F) {
	for _, options := range []string{h264AAC, onlyAAC + "-mpegts_flags +latm", onlyOpus} {
		stream := clip(f, options)
		f.Add(stream[:min(len(stream), 40*PacketSize)], uint16(1316))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		d := NewDemuxer(func(p codec.Packet, _ time.Duration) error {
			if p.Composition < 0 || p.Composition > maxComposition || len(p.Data) > maxPES {
				t.Errorf("%d bytes, presented %v after being decoded", len(p.Data), p.Composition)
			}
			return nil
		}, func(bool, bool) {}, slog.New(slog.DiscardHandler))
		for block := range slices.Chunk(stream, int(size)+1) {
			if block[0] == 0xFE {
				d.Lost()
			}
			if err := d.Write(block); err != nil {
				t.Fatal(err)
			}
			if len(d.carry) >= PacketSize || len(d.programs.data) > maxSection+PacketSize || len(d.tracks.data) > maxSection+PacketSize {
				t.Fatalf("%d, %d and %d bytes are kept", len(d.carry), len(d.programs.data), len(d.tracks.data))
			}
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkDemuxer(b *testing.B) {
	stream := clip(b, "-f lavfi -i testsrc2=s=1280x720:r=30:d=4,noise=alls=40:allf=t -f lavfi -i sine=440:r=48000:d=4 -c:v libx264 -preset ultrafast -b:v 8M -c:a aac ")
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		d := NewDemuxer(func(codec.Packet, time.Duration) error { return nil }, func(bool, bool) {}, slog.New(slog.DiscardHandler))
		for block := range slices.Chunk(stream, 7*PacketSize) { // as SRT delivers it
			if err := d.Write(block); err != nil {
				b.Fatal(err)
			}
		}
	}
}
