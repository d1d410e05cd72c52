package media

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/caption"
	"weir/internal/cmaf"
)

// A file of 6 s has the cues that are shown in it, from its start on, and can be read from any byte.
func TestTextInFile(t *testing.T) {
	store, err := blob.NewDisk(t.TempDir())
	must(t, err)
	defer store.Close()
	var tracks []*Track
	for i, kind := range []cmaf.Kind{cmaf.Video, cmaf.Audio} {
		described, segments := testTrack(kind, uint64(7+i))
		putTrack(t, store, described.Codec, described, segments)
		tracks = append(tracks, openTrack(t, store, described.Codec))
	}
	cue := func(start, end int, text string) caption.Cue {
		return caption.Cue{Start: time.Duration(start) * time.Millisecond, End: time.Duration(end) * time.Millisecond, Text: text}
	}
	plain, err := Progressive(tracks, nil)
	must(t, err)
	file, err := Progressive(tracks, []Text{
		{Name: "English", Language: "en", Start: 100 * time.Second, Cues: []caption.Cue{
			cue(0, 99_999, "before"), cue(99_500, 100_250, "cut"), cue(101_000, 103_000, "<i>one</i> &amp;"), cue(102_001, 102_500, "two"), cue(105_500, 200_000, "end"), cue(106_000, 107_000, "after"),
		}},
		{Name: "Deutsch", Language: "de", Default: true, Cues: []caption.Cue{cue(0, 6000, "immer")}},
		{Name: "Rien", Language: "fr"},
	})
	must(t, err)
	if file.Memory() <= plain.Memory() {
		t.Errorf("with text the file takes %d bytes of memory, without %d", file.Memory(), plain.Memory())
	}
	data := readAll(t, file.Reader(t.Context()), file.Size(), nil)
	reader := file.Reader(t.Context())
	defer reader.Close()
	if err := iotest.TestReader(reader, data); err != nil {
		t.Error(err)
	}

	name := filepath.Join(t.TempDir(), "film.mp4")
	must(t, os.WriteFile(name, data, 0o600))
	for stream, want := range map[string]string{
		"0:s:m:language:deu": "1\n00:00:00,000 --> 00:00:06,000\nimmer\n\n",
		"0:s:m:language:eng": "1\n00:00:00,000 --> 00:00:00,250\ncut\n\n2\n00:00:01,000 --> 00:00:02,001\n<i>one</i> &\n\n" +
			"3\n00:00:02,001 --> 00:00:02,500\n<i>one</i> &\ntwo\n\n4\n00:00:02,500 --> 00:00:03,000\n<i>one</i> &\n\n5\n00:00:05,500 --> 00:00:06,000\nend\n\n",
		"0:s:m:language:fra": "",
	} {
		got, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", name, "-map", stream, "-f", "srt", "-").Output()
		must(t, err)
		if diff := cmp.Diff(want, strings.ReplaceAll(string(got), "\r", "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", stream, diff)
		}
	}
}

// The head of a file with a text of 1,000 cues. Its track is of no matter.
func BenchmarkTextTracks(b *testing.B) {
	track := cmaf.TrackIndex{Track: cmaf.Track{Kind: cmaf.Video, Timescale: 1}, Segments: []cmaf.Segment{{Parts: []cmaf.Part{{Samples: []cmaf.Sample{{Duration: 7200}}}}}}}
	var cues []caption.Cue
	for i := range 1000 {
		at := time.Duration(i) * 7200 * time.Millisecond
		cues = append(cues, caption.Cue{Start: at + time.Second, End: at + 4*time.Second, Text: "<i>a line of a film,</i>\nand another line"})
	}
	bytes := 0
	for b.Loop() {
		bytes = 0
		for _, s := range TextTracks([]Text{{Cues: cues}}, []cmaf.TrackIndex{track})[0].Samples {
			bytes += len(s.Data)
		}
	}
	b.ReportMetric(float64(bytes), "text-B")
}
