package publish

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/caption"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// manyCues returns a text that fills more of the head of a file than is reserved without it, and how
// ffmpeg reads it.
func manyCues() (text Text, srt string) {
	text = Text{Name: "English", Language: "en", Default: true, Start: time.Hour}
	at := func(ms int) time.Duration { return time.Hour + time.Duration(ms)*time.Millisecond }
	for i := range 2600 {
		text.Cues = append(text.Cues, caption.Cue{Start: at(3 * i), End: at(3*i + 1), Text: fmt.Sprintf("cue %d", i)})
		if 3*i >= testFrames*1000/25 {
			continue // after the end
		}
		srt += fmt.Sprintf("%d\n00:00:%02d,%03d --> 00:00:%02d,%03d\ncue %d\n\n", i+1, 3*i/1000, 3*i%1000, (3*i+1)/1000, (3*i+1)%1000, i)
	}
	return text, srt
}

// MP4 files have the texts inside, also if they are uploaded while they grow and requests fail.
func TestTextInMP4(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	p := testPresentation(t, h264...)
	text, srt := manyCues()
	outputs := Outputs{
		Store: p.store, Formats: weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/"}}, Dir: t.TempDir(),
		Text: []Text{{Name: "Deutsch", Language: "de", Cues: []caption.Cue{{Start: 2 * time.Second, End: time.Minute, Text: "Ende"}}}, text},
	}
	grow := func(dest *mediatest.Destination) {
		outputs.Dest, dest.Parts = dest, 224<<10 // more than the head
		var state State
		for n := range 5 {
			video, audio := []Track{p.video[0].upTo(n)}, []Track{p.audio[0].upTo(n)}
			err := outputs.Publish(t.Context(), &state, video, audio)
			if err != nil {
				err = outputs.Publish(t.Context(), &state, video, audio)
			}
			if err != nil {
				t.Fatal(err)
			}
			state = afterRestart(t, state)
		}
	}
	dir, whole := mediatest.NewDestination(t)
	grow(whole)
	puts := strings.Join(whole.Puts(), "\n")
	if strings.Count(puts, "begin") != 1 || !strings.HasPrefix(puts, "320x180.mp4 begin\n320x180.mp4 part 2: ") {
		t.Errorf("the file is not uploaded once, while it grows:\n%s", puts)
	}
	mediatest.WantFrames(t, dir, testFrames, "320x180.mp4")
	for stream, want := range map[string]string{"0:s:0": srt, "0:s:1": "1\n00:00:02,000 --> 00:00:07,600\nEnde\n\n"} {
		got, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", filepath.Join(dir, "320x180.mp4"), "-map", stream, "-f", "srt", "-").Output()
		if err != nil || string(got) != want {
			t.Errorf("text %s: %v\n%.500s", stream, err, got)
		}
	}
	for fail := 1; fail <= whole.Count(); fail++ {
		_, dest := mediatest.NewDestination(t)
		dest.FailAt = fail
		grow(dest)
		if dest.Contents(t)["320x180.mp4"] != whole.Contents(t)["320x180.mp4"] {
			t.Errorf("after request %d failed, the file differs", fail)
		}
	}
}

// What is stable of a file that grows is in the complete file, whichever track is ahead. Here each frame of
// the video lasts longer than a cue.
func TestStable(t *testing.T) {
	t.Parallel()
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	video := encodeTrack(t, store, "v", append([]string{"-f", "lavfi", "-i", "testsrc2=size=160x90:rate=1:duration=8"}, append(h264, "-g", "2")...))
	audio := encodeTrack(t, store, "a", []string{"-f", "lavfi", "-i", "sine=sample_rate=48000:duration=8", "-c:a", "aac"})
	var text Text
	for i := range 80 {
		at := time.Duration(i) * 100 * time.Millisecond
		text.Cues = append(text.Cues, caption.Cue{Start: at, End: at + 50*time.Millisecond, Text: fmt.Sprint("cue ", i)})
	}
	r := &run{Outputs: &Outputs{Store: store, Text: []Text{text}}}
	texts, _ := r.fileTexts()
	render := func(tracks ...Track) (data []byte, fixed int64) {
		layout, err := cmaf.Progressive([]cmaf.TrackIndex{tracks[0].Index, tracks[1].Index}, media.TextTracks(texts, []cmaf.TrackIndex{tracks[0].Index}), 0)
		if err != nil {
			t.Fatal(err)
		}
		file, err := r.file(layout, tracks)
		if err != nil {
			t.Fatal(err)
		}
		reader := file.Reader(t.Context())
		defer reader.Close()
		if data, err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		head := int64(len(layout.Head))
		return data[head:], stable(layout, tracks) - head
	}
	whole, _ := render(video, audio)
	for v := 1; v <= len(video.Index.Segments); v++ {
		for a := 1; a <= len(audio.Index.Segments); a++ {
			part, fixed := render(video.upTo(v), audio.upTo(a))
			if !bytes.HasPrefix(whole, part[:fixed]) || fixed == 0 {
				t.Errorf("with %d segments of video and %d of audio, %d bytes are not stable", v, a, fixed)
			}
		}
	}
}

// An upload that an earlier version began without text begins again with it.
func TestTextInUploadWithout(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	dest.Parts = smallParts
	outputs := Outputs{Store: p.store, Dest: dest, Formats: weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/"}}, Dir: t.TempDir()}
	var state State
	if err := outputs.Publish(t.Context(), &state, []Track{p.video[0].upTo(3)}, p.audio); err != nil {
		t.Fatal(err)
	}
	outputs.Text = []Text{{Language: "en", Cues: []caption.Cue{{End: time.Second, Text: "early"}}}}
	if err := outputs.Publish(t.Context(), &state, p.video[:1], p.audio); err != nil {
		t.Fatal(err)
	}
	mediatest.WantFrames(t, dir, testFrames, "320x180.mp4")
	if file := dest.Contents(t)["320x180.mp4"]; strings.Count(strings.Join(dest.Puts(), "\n"), "begin") != 2 || !strings.Contains(file, "early") {
		t.Errorf("the upload did not begin again: %q", dest.Puts())
	}
}

// Signed files have no text inside.
func TestSignedMP4WithoutText(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	sign, _ := signing(t)
	_, dest := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Dest: dest, Formats: weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/"}}, Dir: t.TempDir(), Sign: sign}
	text, _ := manyCues()
	outputs.Text = []Text{text}
	if err := outputs.Publish(t.Context(), new(State), p.video[:1], p.audio); err != nil {
		t.Fatal(err)
	}
	if file := dest.Contents(t)["320x180.mp4"]; file == "" || strings.Contains(file, "cue 1") || strings.Contains(file, "tx3g") {
		t.Errorf("a signed file of %d bytes has text, or there is none", len(file))
	}
}
