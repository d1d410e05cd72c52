package cmaf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// textTrack makes a track of timed text: pairs of milliseconds and text.
func textTrack(name, language string, isDefault bool, shown ...any) TextTrack {
	w := new(boxWriter)
	w.container("tx3g", func() {
		w.data = append(w.data, 0, 0, 0, 0, 0, 0, 0, 1)
		w.data = append(w.data, 0, 0, 0, 0, 1, 0xff, 0, 0, 0, 0)                                // in the middle at the bottom
		w.data = append(w.data, 0, 0, 0, 0, 0, 0, 0, 0)                                         // box
		w.data = append(w.data, 0, 0, 0, 0, 0, 1, 0, 16, 0xff, 0xff, 0xff, 0xff)                // style
		w.container("ftab", func() { w.data = append(w.data, "\x00\x01\x00\x01\x05Arial"...) }) // fonts
	})
	t := TextTrack{Name: name, Language: language, Default: isDefault, Entry: w.data}
	for i := 0; i < len(shown); i += 2 {
		text := shown[i+1].(string)
		data := append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
		t.Samples = append(t.Samples, TextSample{Duration: uint32(shown[i].(int)), Data: data})
	}
	return t
}

func someTexts() []TextTrack {
	return []TextTrack{
		textTrack("Deutsch", "de-CH", true, 500, "", 1001, "Grüße", 499, "", 1000, "Ende"),
		textTrack("", "en", false, 250, "one", 2750, ""),
	}
}

func TestProgressiveText(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	plain, err := Progressive(indices(tracks...), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := Progressive(indices(tracks...), someTexts(), 0)
	if err != nil {
		t.Fatal(err)
	}
	data := render(t, layout, tracks...)
	file, before := writeFile(t, data), writeFile(t, render(t, plain, tracks...))
	ffmpeg(t, "-xerror", "-err_detect", "explode", "-i", file, "-map", "0", "-c:s", "copy", "-f", "null", "-")
	for _, stream := range []string{"0", "1"} {
		if diff := cmp.Diff(packets(t, before, stream), packets(t, file, stream)); diff != "" {
			t.Errorf("the samples of track %s differ (-without text +with text):\n%s", stream, diff)
		}
	}
	if diff := cmp.Diff(probe(t, before, "0", "format=duration,start_time"), probe(t, file, "0", "format=duration,start_time")); diff != "" {
		t.Errorf("the times of the file differ (-without text +with text):\n%s", diff)
	}
	for n, want := range []string{
		"1\n00:00:00,500 --> 00:00:01,501\nGrüße\n\n2\n00:00:02,000 --> 00:00:03,000\nEnde\n\n", "1\n00:00:00,000 --> 00:00:00,250\none\n\n",
	} {
		got := ffmpeg(t, "-i", file, "-map", fmt.Sprint("0:s:", n), "-f", "srt", "-")
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("text %d (-want +got):\n%s", n, diff)
		}
	}
	checkTextStreams(t, file)
	checkTextTracks(t, data)
}

func checkTextStreams(t *testing.T, file string) {
	t.Helper()
	type stream struct {
		Codec       string            `json:"codec_name"`
		Type        string            `json:"codec_type"`
		Frames      string            `json:"nb_frames"`
		Disposition map[string]int    `json:"disposition"`
		Tags        map[string]string `json:"tags"`
	}
	var got struct{ Streams []stream }
	out := run(t, "ffprobe", "-v", "error", "-select_streams", "s", "-of", "json",
		"-show_entries", "stream=codec_name,codec_type,nb_frames:stream_tags=language,handler_name:stream_disposition=default", file)
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := []stream{
		{"mov_text", "subtitle", "4", map[string]int{"default": 1}, map[string]string{"language": "deu", "handler_name": "Deutsch"}},
		{"mov_text", "subtitle", "2", map[string]int{"default": 0}, map[string]string{"language": "eng", "handler_name": "SubtitleHandler"}},
	}
	if diff := cmp.Diff(want, got.Streams); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
}

// checkTextTracks reads the boxes of someTexts.
func checkTextTracks(t *testing.T, file []byte) {
	t.Helper()
	type track struct {
		Handler, Language string
		Flags             uint32
		Group             int16
		Length            uint64
		Edited, Null      bool
		Text              []string
	}
	var got []track
	moov := decodeMoov(t, file)
	for _, trak := range moov.Traks[2:] {
		x := track{trak.Mdia.Hdlr.HandlerType, trak.Mdia.Mdhd.GetLanguage(), trak.Tkhd.Flags, trak.Tkhd.AlternateGroup, trak.Mdia.Mdhd.Duration, trak.Edts != nil, false, nil}
		for _, child := range trak.Mdia.Minf.Children {
			x.Null = x.Null || child.Type() == "nmhd"
		}
		for n := range chunks(trak.Mdia.Minf.Stbl) {
			at, samples := chunkAt(t, trak.Mdia.Minf.Stbl, n)
			size := trak.Mdia.Minf.Stbl.Stsz.GetSampleSize(n + 1)
			if samples != 1 || int(binary.BigEndian.Uint16(file[at:])) != int(size)-2 {
				t.Fatalf("chunk %d has %d samples, and there is %q", n, samples, file[at:at+int64(size)])
			}
			x.Text = append(x.Text, string(file[at+2:at+int64(size)]))
		}
		got = append(got, x)
	}
	want := []track{
		{"sbtl", "deu", 3, 2, 3000, true, true, []string{"", "Grüße", "", "Ende"}}, {"sbtl", "eng", 2, 2, 3000, true, true, []string{"one", ""}},
	}
	if diff := cmp.Diff(want, got); diff != "" || moov.Mvhd.NextTrackID != 5 {
		t.Errorf("tracks, and then %d (-want +got):\n%s", moov.Mvhd.NextTrackID, diff)
	}
}

// The text begins with the first track, also if another one begins earlier.
func TestProgressiveTextKeepsInStep(t *testing.T) {
	tracks := store(t, generate(t, codings[0].options))
	for _, tt := range []struct {
		video, audio float64 // when they start
		want         string
	}{
		{0, 0, "00:00:00,500 --> 00:00:01,501"},
		{100.25, 100, "00:00:00,750 --> 00:00:01,751"},
		{100, 100.25, "00:00:00,500 --> 00:00:01,501"},
	} {
		video, audio := moved(tracks[0], tt.video), moved(tracks[1], tt.audio)
		layout, err := Progressive(indices(video, audio), someTexts(), 0)
		if err != nil {
			t.Fatal(err)
		}
		file := writeFile(t, render(t, layout, video, audio))
		if got := ffmpeg(t, "-i", file, "-map", "0:s:0", "-f", "srt", "-"); !strings.HasPrefix(string(got), "1\n"+tt.want) {
			t.Errorf("video from %v s, audio from %v s: the text is\n%s", tt.video, tt.audio, got)
		}
	}
}

// Text is where the tables say also in large and long files: among the frames with which it is shown, so
// that who reads the file in order has it in time. It never makes a file longer.
func TestProgressiveTextHuge(t *testing.T) {
	const size, each, cue = 617284, 1.0 / 3, 2.16           // bytes and seconds of a frame, seconds of a cue and its pause
	video := synthetic(Video, 90000, 2160, 30, 30000, size) // six hours, 40 GB
	text := textTrack("", "und", false)
	for range 10_000 {
		text.Samples = append(text.Samples, textTrack("", "", false, 1000, "text", 1160, "").Samples...)
	}
	layout, err := Progressive([]TrackIndex{video}, []TextTrack{text}, 0)
	if err != nil {
		t.Fatal(err)
	}
	moov := decodeMoov(t, layout.Head)
	stbl := moov.Traks[1].Mdia.Minf.Stbl
	before := int64(len(layout.Head)) // bytes of other things than frames
	for n := range chunks(stbl) {
		offset, _ := chunkAt(t, stbl, n)
		if e := extentAt(layout, offset); e.At != offset || !bytes.Equal(e.Bytes, text.Samples[n].Data) {
			t.Fatalf("sample %d should be at %d, where %+v is", n, offset, e)
		}
		shown, frames := float64(n/2)*cue+float64(n%2), float64(offset-before)/size*each
		if ahead := frames - shown; ahead < 0 || ahead > interleave+each {
			t.Fatalf("text of %v s comes after frames of %v s", shown, frames)
		}
		before += int64(len(text.Samples[n].Data))
	}
	if want := 21600 * uint64(moov.Mvhd.Timescale); moov.Mvhd.Duration != want || moov.Traks[1].Tkhd.Duration != want {
		t.Errorf("duration = %d, of the text %d, want %d", moov.Mvhd.Duration, moov.Traks[1].Tkhd.Duration, want)
	}
}

// Players of segments skip the time between connections in which there is only audio.
func TestTextSpans(t *testing.T) {
	video, audio := synthetic(Video, 90000, 4, 25, 3600, 10), synthetic(Audio, 48000, 5, 25, 1920, 10)
	for i := range video.Segments {
		video.Segments[i].Parts[0].Start += 900 // it starts after the audio
		if i >= 2 {
			video.Segments[i].Parts[0].Start += 98 * 90000
		}
	}
	video.Segments[2].Discontinuity = true
	want := []TextSpan{{From: 0, To: 2 * time.Second}, {From: 2 * time.Second, To: 4 * time.Second, At: 5*time.Second - 10*time.Millisecond}}
	if diff := cmp.Diff(want, TextSpans([]TrackIndex{video, audio})); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestLanguageCode(t *testing.T) {
	for tag, want := range map[string]string{
		"de": "deu", "DE-at": "deu", "fr": "fra", "zh-Hant": "zho", "cs": "ces", "sk": "slk", "ro": "ron", "sq": "sqi", "mi": "mri", "gsw": "gsw", "": "", "xx": "",
	} {
		if got := languageCode(tag); got != want {
			t.Errorf("%q: got %q, want %q", tag, got, want)
		}
	}
	for pair := range strings.FieldsSeq(languages) {
		_, tag, _ := strings.Cut(pair, ":")
		if got := LanguageTag(languageCode(tag)); got != tag {
			t.Errorf("%q becomes %q", tag, got)
		}
	}
}
