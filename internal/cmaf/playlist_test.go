package cmaf

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/hls-m3u8/m3u8"
	gocmp "github.com/google/go-cmp/cmp"

	"weir/internal/hls"
)

var update = flag.Bool("update", false, "write the playlists and manifests of testdata again")

// checkGolden compares what write writes with a file.
func checkGolden(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update and read the diff:\n%s", name, diff)
	}
	return got.String()
}

// madeUp returns a track of segments with so many samples each. A sample of
// segment i has size·(i+1) bytes.
func madeUp(t Track, sample uint32, size int, segments ...int) TrackIndex {
	index := TrackIndex{Track: t}
	var at int64
	for i, n := range segments {
		p := Part{Start: at, Head: 200}
		for j := range n {
			p.Samples = append(p.Samples, Sample{Duration: sample, Size: uint32(size * (i + 1)), Sync: t.Kind == Audio || j == 0})
		}
		at = p.End()
		index.Segments = append(index.Segments, Segment{Parts: []Part{p}})
	}
	return index
}

func rung(width, height int) Track {
	return Track{Kind: Video, Codec: "avc1.64001f", Timescale: 30000, Width: width, Height: height}
}

func speech(language, name string) Track {
	return Track{Kind: Audio, Codec: "mp4a.40.2", Timescale: 44100, Channels: 2, SampleRate: 44100, Language: language, Name: name}
}

// withPixels adds a sample entry with pixels of that form.
func withPixels(t Track, across, down byte) Track {
	t.Entry = append(make([]byte, 86), 0, 0, 0, 16, 'p', 'a', 's', 'p', 0, 0, 0, across, 0, 0, 0, down)
	t.Entry[3] = byte(len(t.Entry))
	copy(t.Entry[4:], "avc1")
	return t
}

func numbered(extension string) func(int) string {
	return func(n int) string { return fmt.Sprintf("%d.%s", n, extension) }
}

func constant(name string) func(int) string { return func(int) string { return name } }

// vod returns the playlist of a track that is complete.
func vod(index TrackIndex, segment, init func(int) string, extra ...time.Duration) hls.Media {
	return hls.Media{Type: hls.VOD, Ended: true, Segments: index.Entries(segment, init, extra...)}
}

func TestMediaPlaylist(t *testing.T) {
	ntsc := madeUp(rung(1280, 720), 1001, 1000, 180, 180, 180, 47)
	recorded := madeUp(rung(1280, 720), 1000, 1000, 60, 60, 60)
	for i := range recorded.Segments {
		recorded.Segments[i].Wall = time.Date(2026, 3, 4, 5, 6, 7+2*i, 89e6, time.FixedZone("", 3600))
	}
	broken := madeUp(rung(1280, 720), 1000, 1000, 60, 60, 60, 60)
	broken.Segments[0].Discontinuity, broken.Segments[2].Discontinuity = true, true

	for name, media := range map[string]hls.Media{
		"vod-cmaf":          vod(ntsc, numbered("m4s"), constant("init.mp4")),
		"vod-ts":            vod(ntsc, numbered("ts"), nil, 6*time.Second, 1500*time.Millisecond),
		"vod-discontinuity": vod(broken, numbered("ts"), nil),
		"event": {
			Type: hls.Event, Target: 10 * time.Second, Segments: recorded.Entries(numbered("m4s"), constant("größe 1+1/init.mp4")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := checkGolden(t, name+".m3u8", raw(media.Text()))
			list, err := m3u8.NewMediaPlaylist(0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := list.DecodeFrom(strings.NewReader(text), true); err != nil {
				t.Fatal(err)
			}
			if n := len(media.Segments); int(list.Count()) != n || list.SeqNo != 0 || list.Closed != media.Ended {
				t.Errorf("%d segments from %d, closed = %v; want %d", list.Count(), list.SeqNo, list.Closed, n)
			}
			for _, s := range list.GetAllSegments() {
				if int64(s.Duration+0.5) > int64(list.TargetDuration) {
					t.Errorf("%s has a duration of %f, target %d", s.URI, s.Duration, list.TargetDuration)
				}
			}
			if v, reason := list.CalcMinVersion(); v > list.Version() {
				t.Errorf("version %d, want %d: %s", list.Version(), v, reason)
			}
		})
	}
}

// TestPlaylistDrift adds up the durations of a long list, as a player does that
// wants to know where in the film it is.
func TestPlaylistDrift(t *testing.T) {
	for _, sample := range []uint32{1001, 1, 7, 29999} {
		segments := make([]int, 5000)
		for i := range segments {
			segments[i] = 50 + i%7
		}
		index := madeUp(rung(1, 1), sample, 0, segments...)
		var sum int64
		for n, e := range index.Entries(numbered("m4s"), nil) {
			s := index.Segments[n]
			sum += e.Duration.Microseconds()
			if d := math.Abs(float64(sum) - float64(s.End())/float64(index.Track.Timescale)*1e6); d > 1.5 {
				t.Fatalf("samples of %d ticks: %f µs off at %d", sample, d, s.End())
			}
		}
	}
}

func TestMasterPlaylist(t *testing.T) {
	video := func(name string, width, height, size int) Rendition {
		return Rendition{Name: name, URI: name + "/index.m3u8", Index: madeUp(rung(width, height), 1001, size, 180, 180, 47)}
	}
	audio := func(name, language, title string, fallback bool) Rendition {
		track := speech(language, title)
		track.Default = fallback
		return Rendition{Name: name, URI: name + "/index.m3u8", Index: madeUp(track, 1024, 372, 259, 259, 68)}
	}
	ladder := []Rendition{video("360p0", 640, 360, 3000), video("1080p0", 1920, 1080, 20000), video("720p0", 1280, 720, 10000)}
	english := audio("audio0", "eng", "", false)
	measured := ladder[0]
	measured.Bandwidth, measured.AverageBandwidth = 1_234_567, 1_000_000
	odd := video(`Größe 1+1 "x"`, 720, 576, 3000)
	odd.Index.Track = withPixels(odd.Index.Track, 64, 45)
	odd.URI = "Größe 1+1\"\n#EXT/ü.m3u8"
	jitter := video("jitter", 640, 360, 3000)
	for _, s := range jitter.Index.Segments {
		for j := range s.Parts[0].Samples {
			s.Parts[0].Samples[j].Duration = uint32(1000 + 10*(j%2) - 5)
		}
	}

	for name, m := range map[string]Master{
		"master-cmaf":         {Video: ladder, Audio: []Rendition{english}},
		"master-ts":           {Video: ladder, Audio: []Rendition{english}, TS: true},
		"master-measured":     {Video: []Rendition{measured}, Audio: []Rendition{english}, TS: true},
		"master-languages":    {Video: ladder[:1], Audio: []Rendition{english, audio("audio1", "ger", "Deutsch", true), audio("audio2", "eng", "", false), audio("audio3", "und", "", false)}},
		"master-languages-ts": {Video: ladder[:1], Audio: []Rendition{english, audio("audio1", "fra", "", false)}, TS: true},
		"master-silent":       {Video: ladder[:2]},
		"master-sound":        {Audio: []Rendition{english}},
		"master-sounds":       {Audio: []Rendition{english, audio("audio1", "gsw", "", false)}},
		"master-odd":          {Video: []Rendition{odd, jitter}, Audio: []Rendition{audio("a\"b", "xx\"", "Kom\"men\ntar", false)}},
	} {
		t.Run(name, func(t *testing.T) {
			text := checkGolden(t, name+".m3u8", raw(m.Playlist().Text()))
			list := m3u8.NewMasterPlaylist()
			if err := list.DecodeFrom(strings.NewReader(text), true); err != nil {
				t.Fatal(err)
			}
			if want := max(1, len(m.Video)); len(list.Variants) != want {
				t.Errorf("%d variants, want %d", len(list.Variants), want)
			}
			known := map[string]bool{}
			for _, r := range slices.Concat(m.Video, m.Audio) {
				known[r.URI] = true
			}
			for _, v := range list.Variants {
				if path, err := url.PathUnescape(v.URI); err != nil || !known[path] {
					t.Errorf("URI %q: %v", v.URI, err)
				}
				if v.Bandwidth < v.AverageBandwidth || v.AverageBandwidth == 0 {
					t.Errorf("%s: bandwidth %d, average %d", v.URI, v.Bandwidth, v.AverageBandwidth)
				}
			}
		})
	}
}

// TestTSSize: what a playlist says of a transport stream that nobody has written
// yet comes true, and rather too much than too little.
func TestTSSize(t *testing.T) {
	for _, name := range []string{"h264-aac", "hevc", "5.1", "vfr"} {
		t.Run(name, func(t *testing.T) {
			c := makeClip(t, tsClips[name])
			video, audio := c.index(Video), c.index(Audio)
			ofVideo, ofAudio := tsSize(video.Track), tsSize(audio.Track)
			var reckoned, written float64
			for i, s := range c.transport(t) {
				written += float64(len(s))
				reckoned += float64(ofVideo(video.Segments[i]) + ofAudio(audio.Segments[i]))
			}
			if reckoned < written*0.995 || reckoned > written*1.06 {
				t.Errorf("%.0f bytes reckoned, %.0f written", reckoned, written)
			}
		})
	}
}

func TestLanguageTag(t *testing.T) {
	for code, want := range map[string]string{"deu": "de", "ger": "de", "eng": "en", "zul": "zu", "aar": "aa", "gsw": "gsw", "ENG": "en", "und": "", "": "", "en": "", `e"x`: ""} {
		if got := LanguageTag(code); got != want {
			t.Errorf("LanguageTag(%q) = %q, want %q", code, got, want)
		}
	}
}

// TestPlaylistsRoundTrip: what the parser makes of a playlist of ours is written byte for byte again.
func TestPlaylistsRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/*.m3u8")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d playlists, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(text), rewrite(t, text)); diff != "" {
			t.Errorf("%s (-read +written):\n%s", file, diff)
		}
	}
}

// rewrite reads a playlist and writes it again.
func rewrite(t *testing.T, text []byte) string {
	t.Helper()
	master, media, err := hls.Parse(text)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if master != nil {
		return string(master.Text())
	}
	return string(media.Text())
}
