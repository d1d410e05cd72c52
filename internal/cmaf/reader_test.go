package cmaf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/weir"
)

// codings are streams of every coding that weir meets, and what they must read as.
var codings = []struct {
	name    string
	options string
	want    []Track
}{
	{
		"H.264 with B-frames and AAC", videoInput + " " + audio + " -c:v libx264 -preset veryfast -bf 3 -g 25 -pix_fmt yuv420p -c:a aac -metadata:s:a:0 language=deu",
		[]Track{
			{Kind: Video, Codec: "avc1.64000b", Timescale: 12800, Width: 160, Height: 90},
			{Kind: Audio, Codec: "mp4a.40.2", Timescale: 44100, Channels: 1, SampleRate: 44100, Language: "deu", Default: true},
		},
	},
	{
		"open GOP", videoInput + " -c:v libx264 -preset veryfast -bf 3 -g 25 -x264-params open-gop=1:keyint=12:scenecut=0 -pix_fmt yuv420p -video_track_timescale 90000",
		[]Track{{Kind: Video, Codec: "avc1.64000b", Timescale: 90000, Width: 160, Height: 90}},
	},
	{
		"HEVC", videoInput + " -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25:bframes=3:open-gop=0 -pix_fmt yuv420p -tag:v hvc1",
		[]Track{{Kind: Video, Codec: "hvc1.1.6.L30.90", Timescale: 12800, Width: 160, Height: 90}},
	},
	{
		"VP9 and Opus", videoInput + " " + audio + " -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 25 -c:a libopus",
		[]Track{
			{Kind: Video, Codec: "vp09.00.10.08", Timescale: 12800, Width: 160, Height: 90},
			{Kind: Audio, Codec: "opus", Timescale: 48000, Channels: 1, SampleRate: 48000, Default: true},
		},
	},
	{
		"AV1", videoInput + " -c:v libaom-av1 -usage realtime -cpu-used 8 -g 25 -pix_fmt yuv420p",
		[]Track{{Kind: Video, Codec: "av01.0.00M.08", Timescale: 12800, Width: 160, Height: 90}},
	},
	{
		"MPEG-4 and MP3", videoInput + " " + audio + " -c:v mpeg4 -g 25 -c:a libmp3lame -ac 2",
		[]Track{
			{Kind: Video, Codec: "mp4v.20.1", Timescale: 12800, Width: 160, Height: 90},
			{Kind: Audio, Codec: "mp4a.6B", Timescale: 44100, Channels: 2, SampleRate: 44100, Default: true},
		},
	},
	{
		"AC-3", audio + " -c:a ac3 -ac 6",
		[]Track{{Kind: Audio, Codec: "ac-3", Timescale: 44100, Channels: 6, SampleRate: 44100, Default: true}},
	},
	{
		"E-AC-3", audio + " -c:a eac3 -ac 2",
		[]Track{{Kind: Audio, Codec: "ec-3", Timescale: 44100, Channels: 2, SampleRate: 44100, Default: true}},
	},
	{
		"FLAC", audio + " -c:a flac -ac 2 -strict -2 -ar 96000",
		[]Track{{Kind: Audio, Codec: "fLaC", Timescale: 96000, Channels: 2, SampleRate: 96000, Default: true}},
	},
}

func TestReaderKnowsCodings(t *testing.T) {
	for _, tt := range codings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := generate(t, tt.options)
			tracks, frags := readAll(t, data)
			if diff := cmp.Diff(tt.want, tracks, cmpopts.IgnoreFields(Track{}, "Entry")); diff != "" {
				t.Errorf("tracks (-want +got):\n%s", diff)
			}
			file := writeFile(t, data)
			for i, track := range tracks {
				want := packets(t, file, fmt.Sprint(i))
				if diff := cmp.Diff(want, fromFragments(track, frags[i])); diff != "" {
					t.Errorf("samples of track %d as ffprobe has them (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// fromFragments returns samples in the form of packets.
func fromFragments(track Track, frags []Fragment) []packet {
	var all []packet
	for _, f := range frags {
		data := f.Data
		for i, pts := range f.PTS() {
			size := f.Samples[i].Size
			p := packet{PTS: fmt.Sprintf("%.6f", float64(pts)/float64(track.Timescale)), Flags: "__", Size: fmt.Sprint(size)}
			if f.Samples[i].Sync {
				p.Flags = "K_"
			}
			p.Digest = digest(data[:size])
			data = data[size:]
			all = append(all, p)
		}
	}
	return all
}

// The same frames with an edit list instead of absolute times.
func TestReaderAppliesEditList(t *testing.T) {
	options := append(strings.Fields(videoInput+" "+audio+" -c:v libx264 -preset veryfast -bf 3 -g 25 -c:a aac"),
		strings.Fields("-output_ts_offset 10 -movie_timescale 44100 -movflags delay_moov+default_base_moof -frag_duration 400000 -f mp4 pipe:1")...)
	data := ffmpeg(t, options...)
	if !bytes.Contains(data, []byte("elst")) {
		t.Fatal("ffmpeg wrote no edit list")
	}
	tracks, frags := readAll(t, data)
	for i, track := range tracks {
		run, err := retime(frags[i]...)
		if err != nil {
			t.Fatal(err)
		}
		want := 10 * float64(track.Timescale)
		if track.Kind == Audio {
			want -= 1024 // the encoder's delay
		}
		// The list counts in 1/44100 s.
		if off := float64(run.Start) - want; off > 1 || off < -1 {
			t.Errorf("%s starts at tick %d, want %v", track.Codec, run.Start, want)
		}
	}
}

func TestReaderSkipsOtherTracks(t *testing.T) {
	subtitles := filepath.Join(t.TempDir(), "words.srt")
	if err := os.WriteFile(subtitles, []byte("1\n00:00:00,000 --> 00:00:02,000\nhello\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := generate(t, "-i "+subtitles+" "+audio+" -map 0 -map 1 -c:s mov_text -c:a aac")
	tracks, frags := readAll(t, data)
	if len(tracks) != 1 || tracks[0].Kind != Audio || len(frags[0]) == 0 {
		t.Errorf("tracks = %+v, %d fragments; want the audio alone", tracks, len(frags[0]))
	}
}

// ProRes has no place in MP4: it comes as QuickTime, whose boxes differ a little.
func TestReaderKnowsQuickTime(t *testing.T) {
	options := strings.Fields(videoInput + " " + audio + " -t 1 -c:v prores_ks -profile:v 0 -c:a pcm_s16le")
	quicktime := append(options, fragmented...)
	quicktime[len(quicktime)-2] = "mov"
	data := ffmpeg(t, quicktime...)
	tracks, frags := readAll(t, data)
	want := []Track{
		{Kind: Video, Codec: "apco", Timescale: 12800, Width: 160, Height: 90},
		{Kind: Audio, Codec: "sowt", Timescale: 44100, Channels: 1, SampleRate: 44100, Default: true},
	}
	if diff := cmp.Diff(want, tracks, cmpopts.IgnoreFields(Track{}, "Entry")); diff != "" {
		t.Fatalf("tracks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(packets(t, writeFile(t, data), "0"), fromFragments(tracks[0], frags[0])); diff != "" {
		t.Errorf("frames as ffprobe has them (-want +got):\n%s", diff)
	}
	var bytes int64
	for _, f := range frags[1] {
		bytes += Bytes(f.Samples)
	}
	first, last := frags[1][0], frags[1][len(frags[1])-1]
	if first.Start != 441000 || last.End() != 485100 || bytes != 88200 {
		t.Errorf("audio from %d to %d, %d bytes; want 441000 to 485100, 88200", first.Start, last.End(), bytes)
	}
}

// The offsets of samples have three forms; ffmpeg writes the absolute one unless it is
// set to count from the moof box.
func TestReaderKnowsAbsoluteOffsets(t *testing.T) {
	options := strings.Fields(videoInput + " " + audio + " -c:v libx264 -preset veryfast -g 25 -c:a aac -movflags frag_keyframe+empty_moov -f mp4 pipe:1")
	data := ffmpeg(t, options...)
	file := writeFile(t, data)
	tracks, frags := readAll(t, data)
	for i, track := range tracks {
		want, got := packets(t, file, fmt.Sprint(i)), fromFragments(track, frags[i])
		if len(want) != len(got) {
			t.Fatalf("%d samples, want %d", len(got), len(want))
		}
		for n := range want {
			if want[n].Digest != got[n].Digest {
				t.Fatalf("sample %d of track %d has other bytes", n, i)
			}
		}
	}
}

func TestReaderRefusesBrokenStreams(t *testing.T) {
	good := generate(t, videoInput+" -t 1 -c:v libx264 -preset veryfast -g 25")
	box := func(name string, size uint32, body ...byte) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, size), name...), body...)
	}
	moov := bytes.Index(good, []byte("moov")) - 4
	head := good[:moov+int(binary.BigEndian.Uint32(good[moov:]))]
	after := func(boxes ...[]byte) []byte { return append(bytes.Clone(head), bytes.Join(boxes, nil)...) }
	patched := func(name string, at int, value uint32) []byte {
		b := bytes.Clone(good)
		binary.BigEndian.PutUint32(b[bytes.Index(b, []byte(name))+at:], value)
		return b
	}
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "no moov box"},
		{"text", []byte("<!DOCTYPE html><html></html>"), "ends inside a box"},
		{"no moov", box("mdat", 8), "before the moov box"},
		{"box smaller than its head", box("free", 3), "invalid size of 3 bytes"},
		{"huge moov", box("moov", 1<<31), "the maximum is"},
		{"huge mdat", after(good[len(head):len(head)+int(binary.BigEndian.Uint32(good[len(head):]))], box("mdat", 1<<31)), "the maximum is"},
		{"lying mdat", after(good[len(head):len(head)+int(binary.BigEndian.Uint32(good[len(head):]))], box("mdat", 200<<20, 1, 2, 3)), "ends inside a box"},
		{"moof without mdat", after(good[len(head) : len(head)+int(binary.BigEndian.Uint32(good[len(head):]))]), "ends after a moof box"},
		{"second moov", after(head[moov:]), "second moov"},
		{"unknown track", patched("tfhd", 8, 77), "track 77"},
		{"four billion samples", patched("trun", 8, 1<<32-1), "more than 1048576 samples"},
		{"too many samples for the box", patched("trun", 8, 5000), "damaged trun"},
		{"samples elsewhere", patched("trun", 12, 1<<30), "not in the mdat box"},
		{"samples before the file", patched("trun", 12, 1<<32-1000), "not in the mdat box"},
		{"no time", patched("tfdt", 8, 1<<31-1), "invalid start time"},
		{"other handler data", patched("stsd", 12, 1<<30), "has no sample entry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, behind runtime.MemStats
			runtime.ReadMemStats(&before)
			err := drain(tt.data)
			runtime.ReadMemStats(&behind)
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one of kind invalid about %q", err, tt.want)
			}
			if used := behind.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("took %d bytes of memory", used)
			}
		})
	}
	for n := len(good) - 1; n > 0; n -= 97 {
		if err := drain(good[:n]); err != nil && weir.KindOf(err) != weir.Invalid {
			t.Fatalf("cut after byte %d: error = %v, want one of kind invalid", n, err)
		}
	}
}

// drain reads all there is and returns the error that ended it; nil = the clean end.
func drain(data []byte) error {
	r := NewReader(bytes.NewReader(data))
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// An error of the stream itself is passed on, not blamed on the media.
func TestReaderPassesErrorsOn(t *testing.T) {
	good := generate(t, videoInput+" -t 1 -c:v libx264 -preset veryfast")
	lost := errors.New("connection lost")
	for _, n := range []int{0, 10, 600, len(good) - 5} {
		r := NewReader(io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(lost)))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, lost) {
			t.Errorf("after %d bytes: error = %v, want %v", n, err, lost)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, options := range []string{
		videoInput + " " + audio + " -t 0.2 -c:v libx264 -preset veryfast -bf 2 -c:a aac",
		videoInput + " -t 0.1 -c:v libvpx-vp9 -deadline realtime -cpu-used 8",
		audio + " -t 0.1 -c:a ac3",
	} {
		f.Add(generate(f, options))
	}
	edited := strings.Fields(videoInput + " -t 0.2 -c:v libx264 -preset veryfast -bf 2 -output_ts_offset 1 -movflags delay_moov -frag_duration 100000 -f mp4 pipe:1")
	f.Add(ffmpeg(f, edited...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		tracks, err := r.Tracks()
		for err == nil {
			var frag Fragment
			if frag, err = r.Next(); err != nil {
				break
			}
			if Bytes(frag.Samples) != int64(len(frag.Data)) {
				t.Fatalf("samples of %d bytes, but %d bytes", Bytes(frag.Samples), len(frag.Data))
			}
			part, data := EncodePart(1, tracks[frag.Track], frag)
			if part.Size() != int64(len(data)) {
				t.Fatalf("part of %d bytes says it has %d", len(data), part.Size())
			}
			if run, err := retime(frag); err == nil && len(run.Samples) != len(frag.Samples) {
				t.Fatalf("%d of %d samples are left", len(run.Samples), len(frag.Samples))
			}
		}
		if !errors.Is(err, io.EOF) && weir.KindOf(err) != weir.Invalid {
			t.Errorf("error = %v, want one of kind invalid", err)
		}
	})
}
