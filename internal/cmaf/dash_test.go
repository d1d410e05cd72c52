package cmaf

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/Eyevinn/hls-m3u8/m3u8"
)

// files lays out tracks as files.
func files(t *testing.T, video, audio []TrackIndex) Files {
	t.Helper()
	list := func(kind Kind, tracks []TrackIndex) (list []TrackFile) {
		for i, index := range tracks {
			layout, err := SingleFile(index)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, TrackFile{Name: fmt.Sprintf("%s%d", kind, i), Number: FileNumber(kind, i, len(video)), Index: index, Layout: layout})
		}
		return list
	}
	return Files{Video: list(Video, video), Audio: list(Audio, audio)}
}

// later moves a track on the timeline.
func later(t TrackIndex, ticks int64) TrackIndex {
	for _, s := range t.Segments {
		for i := range s.Parts {
			s.Parts[i].Start += ticks
		}
	}
	return t
}

func TestDASH(t *testing.T) {
	entry := func(t Track) Track { return withPixels(t, 1, 1) }
	small, big := madeUp(entry(rung(640, 360)), 1001, 3000, 180, 180, 47), madeUp(entry(rung(1280, 720)), 1001, 9000, 180, 180, 47)
	hevc := madeUp(entry(rung(1280, 720)), 1000, 5000, 180, 180, 47)
	hevc.Track.Codec = "hvc1.1.6.L93.90"
	wide := madeUp(withPixels(rung(720, 576), 64, 45), 1234, 5000, 180, 180)
	audio := func(language, name string) TrackIndex {
		return madeUp(entry(speech(language, name)), 1024, 372, 259, 259, 68)
	}
	for name, f := range map[string]Files{
		"dash":           files(t, []TrackIndex{small, big}, []TrackIndex{audio("eng", "")}),
		"dash-languages": files(t, []TrackIndex{small, hevc}, []TrackIndex{audio("eng", ""), audio("deu", "Regie & <Kommentar>")}),
		"dash-late":      files(t, []TrackIndex{later(madeUp(entry(rung(640, 360)), 1000, 3000, 60), 45000)}, []TrackIndex{later(audio("", ""), 3*44100)}),
		"dash-silent":    files(t, []TrackIndex{wide}, nil),
		"dash-sound":     files(t, nil, []TrackIndex{audio("eng", "")}),
	} {
		t.Run(name, func(t *testing.T) {
			text := checkGolden(t, name+".mpd", dash(f))
			var doc mpd
			if err := xml.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range doc.Period.Sets {
				n += len(s.Representations)
			}
			if n != len(f.Video)+len(f.Audio) {
				t.Errorf("%d representations", n)
			}
		})
	}
}

func TestSingleFilePlaylist(t *testing.T) {
	f := files(t, []TrackIndex{madeUp(withPixels(rung(640, 360), 1, 1), 1001, 3000, 180, 180, 47)}, nil)
	text := checkGolden(t, "single-file.m3u8", raw(f.Video[0].Media().Text()))
	list, err := m3u8.NewMediaPlaylist(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`BYTERANGE="(.*?)"`).ReplaceAllString(text, "BYTERANGE=$1") // RFC 8216 wants the quotes, the library does not
	if err := list.DecodeFrom(strings.NewReader(text), true); err != nil {
		t.Fatal(err)
	}
	segments := list.GetAllSegments()
	if last := segments[len(segments)-1]; last.Offset+last.Limit != f.Video[0].Layout.Size {
		t.Errorf("the last segment ends at %d of %d", last.Offset+last.Limit, f.Video[0].Layout.Size)
	}
}

// encoded is a clip as its segments are stored.
type encoded struct {
	index TrackIndex
	data  [][]byte
}

// encode writes the segments of a track. Samples before 0 are left out: players
// get nothing of it.
func (c clip) encode(t *testing.T, kind Kind) encoded {
	t.Helper()
	e := encoded{index: TrackIndex{Track: *c.video}}
	if kind == Audio {
		e.index.Track = *c.audio
	}
	for n, s := range c.segments {
		f := s.video[0]
		if kind == Audio {
			f = s.audio[0]
		}
		if f.Start < 0 {
			list := cutFragment(f, func(at int64, s Sample) bool { return at >= 0 && at < int64(s.Duration) })
			f = list[len(list)-1]
		}
		part, data := EncodePart(uint32(n+1), e.index.Track, f)
		e.index.Segments = append(e.index.Segments, Segment{Parts: []Part{part}})
		e.data = append(e.data, data)
	}
	return e
}

// TestPlayers writes a presentation in all forms and lets ffmpeg play them.
func TestPlayers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, name := range []string{"h264-aac", "late-sound"} {
		t.Run(name, func(t *testing.T) { testPlayers(t, name) })
	}
}

func testPlayers(t *testing.T, clipName string) {
	dir := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	c := makeClip(t, tsClips[clipName])
	video, audio := c.encode(t, Video), c.encode(t, Audio)
	writeFMP4(t, filepath.Join(dir, "fmp4"), video, audio)
	writeHLS(t, dir, c, video, audio)

	for _, path := range []string{"fmp4/index.mpd", "fmp4/master.m3u8", "cmaf/index.m3u8", "ts/index.m3u8"} {
		audioIndex := audio.index
		if path == "ts/index.m3u8" {
			if clipName == "late-sound" {
				continue // ffmpeg gives the first two packets of late audio one time, also when it wrote the segments itself
			}
			audioIndex = c.index(Audio) // with samples before 0
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			file := server.URL + "/" + path
			checkDecodes(t, "-i", file)
			for stream, want := range map[string]int{"v:0": video.index.Frames(), "a:0": audioIndex.Frames()} {
				if got := len(probeTimes(t, file, stream)); got != want {
					t.Errorf("%d packets of %s, want %d", got, stream, want)
				}
			}
			if start := probeStart(t, file, "v:0"); strings.HasPrefix(path, "fmp4/") && math.Abs(start) > 0.0001 {
				t.Errorf("the video starts at %f s, want 0", start)
			}
			late := probeStart(t, file, "a:0") - probeStart(t, file, "v:0")
			want := float64(audioIndex.Start())/float64(c.audio.Timescale) - float64(video.index.Start())/float64(c.video.Timescale)
			if math.Abs(late-want) > 0.0001 {
				t.Errorf("audio starts %f s after video, want %f", late, want)
			}
		})
	}
}

// writeFMP4 writes files of fragments, with DASH and HLS over them.
func writeFMP4(t *testing.T, dir string, video, audio encoded) {
	t.Helper()
	fmp4 := files(t, []TrackIndex{video.index}, []TrackIndex{audio.index})
	for i, f := range []TrackFile{fmp4.Video[0], fmp4.Audio[0]} {
		data := [][]byte{f.Layout.Head}
		for _, segment := range [][][]byte{video.data, audio.data}[i] {
			data = append(data, fromZero(t, f.Index, segment))
		}
		put(t, dir, f.File(), raw(data...))
		put(t, dir, f.Playlist(), raw(f.Media().Text()))
	}
	put(t, dir, "index.mpd", dash(fmp4))
	put(t, dir, "master.m3u8", raw(fmp4.Master().Playlist().Text()))
}

// fromZero returns a stored segment of one part as it is handed out.
func fromZero(t *testing.T, index TrackIndex, segment []byte) []byte {
	t.Helper()
	segment = bytes.Clone(segment)
	if err := ShiftPart(segment, index.ZeroShift()); err != nil {
		t.Fatal(err)
	}
	return segment
}

// writeHLS writes CMAF and MPEG-TS segments, with HLS over them.
func writeHLS(t *testing.T, dir string, c clip, video, audio encoded) {
	t.Helper()
	const name = "größe 1+1"
	for i, e := range []encoded{video, audio} {
		folder := filepath.Join(dir, "cmaf", []string{name, "audio0"}[i])
		put(t, folder, "init.mp4", raw(Init(e.index.Track)))
		for n, data := range e.data {
			put(t, folder, strconv.Itoa(n)+".m4s", raw(data))
		}
		put(t, folder, "index.m3u8", raw(vod(e.index, numbered("m4s"), constant("init.mp4")).Text()))
	}
	folder := filepath.Join(dir, "ts", name)
	for n, data := range c.transport(t) {
		put(t, folder, strconv.Itoa(n)+".ts", raw(data))
	}
	put(t, folder, "index.m3u8", raw(vod(video.index, numbered("ts"), nil).Text()))
	for _, form := range []string{"cmaf", "ts"} {
		master := Master{
			Video: []Rendition{{Name: name, URI: name + "/index.m3u8", Index: video.index}},
			Audio: []Rendition{{Name: "audio0", URI: "audio0/index.m3u8", Index: audio.index}},
			TS:    form == "ts",
		}
		put(t, filepath.Join(dir, form), "index.m3u8", raw(master.Playlist().Text()))
	}
}

func dash(f Files) func(io.Writer) error {
	return func(w io.Writer) error {
		text, err := DASH(f)
		return errors.Join(err, raw(text)(w))
	}
}

// put writes a file.
func put(t *testing.T, dir, name string, write func(io.Writer) error) {
	t.Helper()
	var data bytes.Buffer
	if err := errors.Join(write(&data), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func raw(data ...[]byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(bytes.Join(data, nil))
		return err
	}
}

// probeStart returns when the first packet of a stream is shown, in seconds.
func probeStart(t *testing.T, file, stream string) float64 {
	t.Helper()
	first := math.Inf(1)
	for field := range strings.FieldsSeq(string(run(t, "ffprobe", "-v", "error", "-select_streams", stream, "-show_entries", "packet=pts_time", "-of", "csv=p=0", file))) {
		at, err := strconv.ParseFloat(strings.Trim(field, ","), 64)
		if err != nil {
			t.Fatal(err)
		}
		first = min(first, at)
	}
	return first
}
