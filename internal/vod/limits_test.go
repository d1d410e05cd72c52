package vod

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// jump returns a filter that shifts what comes after the first second by so many seconds.
func jump(kind, by string) []string {
	return []string{map[string]string{"asetpts": "-af", "setpts": "-vf"}[kind], kind + "='PTS+gte(T,1)*" + by + "/TB'", "-fps_mode", "passthrough"}
}

// patched returns a copy of a file whose bytes were changed.
func patched(t *testing.T, file string, change func(data []byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = change(data)
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// claimSecond makes a Matroska file claim that it lasts a second.
func claimSecond(t *testing.T, data []byte) []byte {
	at := bytes.Index(data, []byte{0x44, 0x89, 0x88}) // Duration, a number of eight bytes
	if at < 0 {
		t.Fatal("the file has no duration")
	}
	binary.BigEndian.PutUint64(data[at+3:], math.Float64bits(1000))
	return data
}

// repeated returns an MP4 file with one track of bytes as samples, changed so that its index names the
// first chunk again and again.
func repeated(t *testing.T, data []byte, times int) []byte {
	t.Helper()
	// find returns the box that is reached by its name in each of the boxes before.
	find := func(path ...string) (at, size int) {
		from, to := 0, len(data)
		for depth, name := range path {
			at, size = from, 0
			for ; at+8 <= to && string(data[at+4:at+8]) != name; at += size {
				size = max(int(binary.BigEndian.Uint32(data[at:])), 8)
			}
			if at+8 > to {
				t.Fatalf("the file has no %v", path[:depth+1])
			}
			size = int(binary.BigEndian.Uint32(data[at:]))
			from, to = at+8, at+size
		}
		return at, size
	}
	put := func(at int, numbers ...uint32) {
		for i, n := range numbers {
			binary.BigEndian.PutUint32(data[at+4*i:], n)
		}
	}
	table := []string{"moov", "trak", "mdia", "minf", "stbl", "stco"}
	in := func(name string) int { at, _ := find(append(slices.Clone(table[:5]), name)...); return at }
	stsc := in("stsc")
	samples := binary.BigEndian.Uint32(data[stsc+20:]) // of a chunk
	put(stsc+12, 1)
	put(in("stts")+12, 1, samples*uint32(times), 1)
	put(in("stsz")+12, 1, samples*uint32(times))
	edits, _ := find("moov", "trak", "edts")
	copy(data[edits+4:], "free")
	at, size := find(table...)
	chunk := binary.BigEndian.Uint32(data[at+16:])
	grown := 16 + 4*times - size
	for depth := range table {
		box, old := find(table[:depth+1]...)
		put(box, uint32(old+grown))
	}
	data = slices.Concat(data[:at+16], make([]byte, 4*times), data[at+size:])
	put(at+12, uint32(times))
	for i := range times {
		put(at+16+4*i, chunk)
	}
	return data
}

// Every hostile file is refused by Import with its own sentence, and for good.
func TestHostileSources(t *testing.T) {
	sine := []string{"-f", "lavfi", "-i", "sine=d=2:r=48000"}
	pattern := []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=10:d=2"}
	opus, wave := []string{"-c:a", "libopus", "-b:a", "16k"}, []string{"-c:a", "pcm_s16le"}
	h264, vp8 := []string{"-c:v", "libx264", "-pix_fmt", "yuv420p", "-qp", "1"}, []string{"-c:v", "libvpx", "-b:v", "8M"}
	const (
		little = "of media; send the whole file"
		hole   = "no track has packets from 1s to 2h0m1s; gaps of at most 1h0m0s are allowed"
		long   = "the file lasts longer than the 24h0m0s that are allowed"
	)
	for _, tt := range []struct {
		name  string // of the file
		make  []string
		patch func(*testing.T, []byte) []byte
		max   time.Duration
		want  string
	}{
		{name: "silence.flac", make: []string{"-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", "36000", "-c:a", "flac", "-frame_size", "65535"}, want: "for 10h0m0s " + little},
		{name: "bomb.m4a", make: with(sine, jump("asetpts", "36000"), []string{"-c:a", "aac", "-b:a", "16k"}), want: "for 10h0m2s " + little},
		{name: "bomb.mka", make: with(sine, jump("asetpts", "36000"), opus), want: little},
		{name: "lying-bomb.mka", make: with(sine, jump("asetpts", "36000"), opus), patch: claimSecond, want: "no track has packets from 1s to 10h0m1s"},
		{name: "lying-bomb.webm", make: with(pattern, jump("setpts", "36000"), vp8), patch: claimSecond, want: "no track has packets from 1s to 10h0m1s"},
		{name: "hole.mka", make: with(sine, jump("asetpts", "7200"), wave), want: hole},
		{name: "hole.mp4", make: with(pattern, jump("setpts", "7200"), h264), want: hole},
		{name: "hole.webm", make: with(pattern, jump("setpts", "7200"), vp8), want: hole},
		{name: "hole-aac.mp4", make: with([]string{"-f", "lavfi", "-i", "anoisesrc=d=4:r=48000"}, jump("asetpts", "7200"), []string{"-c:a", "aac", "-b:a", "500k"}), want: hole},
		{name: "late.mkv", make: with(pattern, []string{"-itsoffset", "7200"}, sine, []string{"-map", "0", "-map", "1"}, h264, wave), want: "no track has packets from 2s to 2h0m0s"},
		{name: "million-segments.mka", make: with(sine, jump("asetpts", "2000000"), wave), want: long},
		{name: "lying-long.mka", make: with(sine, jump("asetpts", "100000"), wave), patch: claimSecond, want: long},
		{name: "repeated.mov", make: []string{"-f", "lavfi", "-i", "sine=d=1:r=8000", "-c:a", "pcm_u8"}, patch: func(t *testing.T, data []byte) []byte {
			return repeated(t, data, 3000)
		}, want: "at most 4 times the size of the file is allowed"},
		{name: "long.mp4", make: with(av, x264), max: time.Second, want: "the file lasts longer than the 1s that are allowed"},
		{name: "long.ts", make: with(av, x264), max: time.Second, want: "the file lasts longer than the 1s that are allowed"},
		{name: "long.ogg", make: with(tone, []string{"-c:a", "libvorbis"}), max: time.Second, want: "the file lasts longer than the 1s that are allowed"},
		{name: "tracks.mka", make: with([]string{"-f", "lavfi", "-i", "sine=d=0.1:r=8000"}, slices.Repeat([]string{"-map", "0"}, 300), []string{"-c:a", "pcm_u8"}), want: "the file has 300 tracks; at most 64 are allowed"},
		{name: "large.gif", make: []string{"-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=1"}, patch: func(_ *testing.T, data []byte) []byte {
			binary.LittleEndian.PutUint16(data[6:], 16000)
			binary.LittleEndian.PutUint16(data[8:], 16000)
			return data
		}, want: "its frames have 16000x16000 pixels; at most 36 million are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := mediatest.Film(t, "hostile-"+tt.name, tt.make...)
			if tt.patch != nil {
				file = patched(t, file, func(data []byte) []byte { return tt.patch(t, data) })
			}
			e := newEngine(t)
			e.MaxDuration = tt.max
			_, err := e.Import(t.Context(), ImportOptions{File: file, Prefix: "work/1"})
			if weir.KindOf(err) != weir.Invalid || !strings.HasPrefix(err.Error(), badSource+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v of kind %q, want one that says %q", err, weir.KindOf(err), tt.want)
			}
		})
	}
}

// A slideshow with half an hour for a picture, and a file whose tracks end at different times, are no
// hostile files.
func TestSparseSources(t *testing.T) {
	for name, args := range map[string][]string{
		"slides.mp4":    {"-f", "lavfi", "-i", "testsrc2=s=640x360:r=1:d=4", "-vf", "setpts=PTS*1800", "-fps_mode", "passthrough", "-c:v", "libx264", "-qp", "1", "-pix_fmt", "yuv420p"},
		"slides.webm":   {"-f", "lavfi", "-i", "testsrc2=s=640x360:r=1:d=4", "-vf", "setpts=PTS*1800", "-fps_mode", "passthrough", "-c:v", "libvpx", "-b:v", "50M", "-qmax", "4"},
		"one-image.mov": {"-f", "lavfi", "-i", "testsrc2=s=640x360:r=1:d=1", "-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", "5400", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "pcm_u8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := newEngine(t).Import(t.Context(), ImportOptions{File: mediatest.Film(t, "sparse-"+name, args...), Prefix: "work/1"})
			if err != nil || src.Duration < 5300 {
				t.Errorf("%.0f seconds, %v", src.Duration, err)
			}
		})
	}
}

func TestProbeLimits(t *testing.T) {
	audio := func(hours, kilobits float64) ffmpeg.Probe {
		length := time.Duration(hours * float64(time.Hour))
		return ffmpeg.Probe{
			Demuxer: "mov,mp4,m4a", Duration: length, Size: int64(hours * 3600 * kilobits * 125),
			Audio: []ffmpeg.Track{{Kind: "audio", Codec: "aac", Duration: length}},
		}
	}
	video := func(hours float64, width, height int, frames int64) ffmpeg.Probe {
		p := audio(hours, 500)
		p.Video = []ffmpeg.Track{{Kind: "video", Codec: "h264", Width: width, Height: height, Frames: frames, Duration: p.Duration}}
		return p
	}
	guessed := audio(1000, 1)
	guessed.Demuxer = "mpegts"
	subtitled := video(2, 1920, 1080, 0)
	subtitled.Other = make([]ffmpeg.Track, maxTracks-2)
	attached := subtitled
	attached.Stills = make([]ffmpeg.Track, 1)
	languages := audio(20, 0.5)
	languages.Audio = slices.Repeat(languages.Audio, 10)
	for _, tt := range []struct {
		name    string
		probe   ffmpeg.Probe
		segment float64
		want    string // in the error; "" = none
	}{
		{name: "book of ten hours", probe: audio(10, 24)},
		{name: "speech in few bits", probe: audio(23, 4.75)},
		{name: "recording of twelve hours", probe: video(12, 1920, 1080, 12*3600*60)},
		{name: "a whole day", probe: video(24, 1920, 1080, maxFrames)},
		{name: "8K", probe: video(1, 8192, 4320, 0)},
		{name: "a duration that is guessed", probe: guessed},
		{name: "many subtitles", probe: subtitled},
		{name: "ten minutes of nothing", probe: audio(1.0/6, 0)},
		{name: "one track more", probe: attached, want: "the file has 65 tracks; at most 64 are allowed"},
		{name: "too long", probe: audio(24.01, 128), want: "longer than the 24h0m0s"},
		{name: "too many frames", probe: video(1, 64, 64, maxFrames+1), want: "more than the 5184000 frames"},
		{name: "too many pixels", probe: video(1, 8192, 8192, 0), want: "8192x8192 pixels; at most 36 million"},
		{name: "too few bytes", probe: audio(4, 0.05), want: "the file has only 90000 bytes for 4h0m0s of media"},
		{name: "too few bytes for ten tracks", probe: languages, want: "of media; send the whole file"},
		{name: "too many segments", probe: audio(20, 128), segment: 0.5, want: "the file would have 144000 segments of 0.5 seconds; at most 86400 are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Engine{}.limits(cmp.Or(tt.segment, 2)).checkProbe(tt.probe)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestPacketLimits(t *testing.T) {
	every := func(step time.Duration, n int) (list []ffmpeg.Packet) {
		for i := range n {
			list = append(list, ffmpeg.Packet{Start: time.Duration(i) * step, Duration: step})
		}
		return list
	}
	other := func(list []ffmpeg.Packet) []ffmpeg.Packet {
		list = slices.Clone(list)
		for i := range list {
			list[i].Track = 1
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		packets []ffmpeg.Packet
		size    int64  // of the file; 0 = large
		want    string // in the error; "" = none
	}{
		{name: "bytes twice", packets: slices.Repeat([]ffmpeg.Packet{{Size: 1 << 20}}, 200), size: 100 << 20},
		{name: "bytes again and again", packets: slices.Repeat([]ffmpeg.Packet{{Size: 1 << 20}}, 420), size: 100 << 20, want: "the file has 104857600 bytes, but its packets have more than 421527552"},
		{name: "frames without an end", packets: every(time.Millisecond, maxFrames+1), want: "more than the 5184000 frames"},
		{name: "as much sound", packets: other(every(time.Millisecond, maxFrames+1))},
		{name: "packets of an hour", packets: every(time.Hour, 3)},
		{name: "packets of two hours", packets: every(2*time.Hour, 3), want: "no track has packets from 0s to 2h0m0s"},
		{name: "last packet of two hours", packets: []ffmpeg.Packet{{Start: time.Second, Duration: 2 * time.Hour}}, want: "no track has packets from 1s to 2h0m1s"},
		{name: "another track fills the hole", packets: slices.Concat(other(every(time.Minute, 180)), []ffmpeg.Packet{{}, {Start: 3 * time.Hour}})},
		{name: "beyond a day", packets: every(30*time.Minute, 50), want: "longer than the 24h0m0s"},
		{name: "before the start", packets: []ffmpeg.Packet{{Start: -time.Second, Duration: time.Second}, {}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := packets{limits: Engine{}.limits(10), hasVideo: true, size: cmp.Or(tt.size, 1<<30), starts: make([]time.Duration, 2), ends: make([]time.Duration, 2)}
			var err error
			for i := 0; i < len(tt.packets) && err == nil; i++ {
				err = p.check(tt.packets[i])
			}
			if err == nil {
				err = p.checkComplete()
			}
			if (err == nil) != (tt.want == "") || err != nil && (weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// What is decoded has bounds too, because packets can have more in them than they say.
func TestDecodedLimits(t *testing.T) {
	add := func(cmaf.Fragment) error { return nil }
	sample := cmaf.Sample{Duration: 1000, Size: 1}
	video := func() cmaf.Track { return cmaf.Track{Kind: cmaf.Video, Timescale: 1000} }
	l := limits{duration: time.Hour, segment: 2}
	if err := l.decoded(video, add)(cmaf.Fragment{Start: 3600_000, Samples: []cmaf.Sample{sample}}); err != nil {
		t.Error(err)
	}
	err := l.decoded(video, add)(cmaf.Fragment{Start: 3700_000, Samples: []cmaf.Sample{sample}})
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "longer than the 1h0m0s") {
		t.Errorf("error %v", err)
	}
	sample.Duration = 0
	err = l.decoded(video, add)(cmaf.Fragment{Samples: slices.Repeat([]cmaf.Sample{sample}, 2*maxFrames+1)})
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "frames that are allowed") {
		t.Errorf("error %v", err)
	}
}

func TestRenditionLimits(t *testing.T) {
	src, index := evenSource(240, 24, 24, 2)
	src.Duration = 24 * 3600
	_, err := newPlan(src, index, Request{Profiles: []weir.Profile{{Name: "fast", Width: 640, Height: 360, Bitrate: 500_000, FPS: new(120)}}})
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "rendition fast: 120.00 frames a second of a video of 24h0m0s") {
		t.Errorf("error %v", err)
	}
}
