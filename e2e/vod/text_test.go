package vod

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// A text for a film of numbered frames: a cue from every 50th frame on, for 25 frames.
const (
	cueEvery = 50
	cueFor   = 25
	textFPS  = 25
)

func cueText(language string, frame int) string { return fmt.Sprintf("%s %d", language, frame) }

// numberedCues writes such a text as WebVTT or as SubRip, each cue in two lines.
func numberedCues(language string, seconds int, subRip bool) string {
	var w strings.Builder
	point := "."
	if subRip {
		point = ","
	} else {
		w.WriteString("WEBVTT\n\n")
	}
	clock := func(frame int) string {
		ms := frame * 1000 / textFPS
		return fmt.Sprintf("%02d:%02d:%02d%s%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, point, ms%1000)
	}
	for frame := 0; frame < seconds*textFPS; frame += cueEvery {
		fmt.Fprintf(&w, "%d\n%s --> %s\n<i>%s</i>\n\n", frame/cueEvery+1, clock(frame), clock(frame+cueFor), cueText(language, frame))
	}
	return w.String()
}

// seenText is what a player tells of a text, see player/text.js.
type seenText struct {
	Errors, Texts []string
	Begins        float64
	Shown         []struct {
		Time  float64
		Frame int
		Texts []string
	}
	Cues []struct {
		Start, End float64
		Text       string
	}
}

// text plays something with a player, and jumps to some times.
func text(b *harness.Browser, engine, url, language string, at []float64) (seen seenText) {
	b.T.Helper()
	if strings.HasPrefix(url, "/") {
		url = b.URL + "/files" + url
	}
	request, err := json.Marshal(map[string]any{"engine": engine, "url": url, "language": language, "at": at, "fps": textFPS})
	if err == nil {
		seen, err = chromedp.Run(b.Ctx, chromedp.Evaluate[seenText]("text("+string(request)+")", chromedp.EvalAwaitPromise))
	}
	if err != nil {
		b.T.Fatalf("%s at %s: %v", engine, url, err)
	}
	if len(seen.Errors) > 0 {
		b.T.Errorf("%s at %s: %s", engine, url, strings.Join(seen.Errors, "; "))
	}
	return seen
}

// check judges what a player has shown of a numbered text: each frame the cue that belongs to it, and
// each cue from its frame on, to within one frame.
func (seen seenText) check(t *testing.T, what, language string) (worst float64) {
	t.Helper()
	for _, s := range seen.Shown {
		want := ""
		if first := s.Frame / cueEvery * cueEvery; s.Frame < first+cueFor {
			want = cueText(language, first)
		}
		near := s.Frame%cueEvery == 0 || s.Frame%cueEvery == cueEvery-1 || s.Frame%cueEvery == cueFor || s.Frame%cueEvery == cueFor-1
		if got := strings.Join(s.Texts, "|"); got != want && !near {
			t.Errorf("%s: frame %d at %.2f s has the text %q, want %q", what, s.Frame, s.Time, got, want)
		}
	}
	if len(seen.Cues) == 0 {
		t.Errorf("%s: the player has no cues", what)
	}
	for _, c := range seen.Cues {
		var frame int
		if _, err := fmt.Sscanf(c.Text, language+" %d", &frame); err != nil {
			t.Errorf("%s: a cue has the text %q", what, c.Text)
			continue
		}
		for _, apart := range []float64{c.Start - float64(frame)/textFPS, c.End - float64(frame+cueFor)/textFPS} {
			worst = max(worst, math.Abs(apart))
			if math.Abs(apart) > 1.0/textFPS+0.001 {
				t.Errorf("%s: the cue of frame %d is %.3f s away from it", what, frame, apart)
			}
		}
	}
	t.Logf("%s: %d cues, at most %.3f s away from their frames", what, len(seen.Cues), worst)
	return worst
}

// textPlayers are the players that show text.
var textPlayers = []string{"hls.js", "hls.js 1.5", "shaka"}

// TestText adds texts in two languages to a film, and plays it with text.
func TestText(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	const seconds = 130
	film := harness.MakeFilm(t, harness.FilmKind{FPS: textFPS, BFrames: 2, Key: 2, Seconds: seconds})
	u, _ := sendUpload(w, film.Path)
	w.Completed(u.Task.ID)
	a := ready(w, u.Asset.ID)

	var english, german words.AssetTrack
	w.Must("POST", "/api/asset/"+a.ID+"/track", map[string]any{"type": "text", "language": "en", "name": "English", "text": numberedCues("en", seconds, false)}, &english)
	w.Must("POST", "/api/asset/"+a.ID+"/track", map[string]any{"type": "text", "language": "de", "name": "Deutsch"}, &german)
	w.Must("PUT", "/api/asset/"+a.ID+"/track/"+german.ID+"/file", []byte(numberedCues("de", seconds, true)), &german)
	if english.Status.Phase != words.TrackReady || english.Cues != seconds*textFPS/cueEvery || german.Cues != english.Cues {
		t.Fatalf("the tracks are %+v, %+v", english, german)
	}
	base := w.URL + "/hls/" + a.PlaybackID
	harness.Eventually(t, func() error {
		if _, list := get(w, base+"/index.m3u8"); strings.Count(string(list), "TYPE=SUBTITLES") != 2 {
			return fmt.Errorf("want two texts:\n%s", list)
		}
		return nil
	})

	dir := t.TempDir()
	checkWebVTT(t, w, dir, base, english, german)
	player := harness.NewBrowser(t, dir)
	at := []float64{0.5, 59.9, 60.2, 64.4, 122.2, 3.5, 80.4}
	for _, engine := range textPlayers {
		for _, language := range []string{"en", "de"} {
			seen := text(player, engine, base+"/index.m3u8", language, at)
			if got := strings.Join(seen.Texts, ", "); got != "English en, Deutsch de" {
				t.Errorf("%s lists %s", engine, got)
			}
			seen.check(t, engine+" "+language, language)
		}
	}
}

// checkWebVTT reads all segments of texts with the parser of the W3C.
func checkWebVTT(t *testing.T, w *harness.Weir, dir, base string, tracks ...words.AssetTrack) {
	t.Helper()
	var files []string
	for _, track := range tracks {
		_, list := get(w, base+"/text/"+track.ID+"/index.m3u8")
		for line := range strings.Lines(string(list)) {
			if line = strings.TrimSpace(line); !strings.HasSuffix(line, ".vtt") {
				continue
			}
			file := filepath.Join(dir, line)
			save(w, base+"/text/"+track.ID+"/"+line, file)
			files = append(files, file)
		}
		file := filepath.Join(dir, track.ID+".vtt")
		save(w, base+"/text/"+track.ID+".vtt", file)
		files = append(files, file)
	}
	for i, parsed := range parseWebVTT(t, files) {
		if len(parsed.Complaints) > 0 || len(parsed.Cues) == 0 {
			t.Errorf("%s has %d cues: %v", files[i], len(parsed.Cues), parsed.Complaints)
		}
	}
}

// parsedText is what the parser of the W3C says of a file.
type parsedText struct {
	Cues []struct {
		Start, End float64
		Text       string
	}
	Complaints []string
}

func parseWebVTT(t *testing.T, files []string) (parsed []parsedText) {
	t.Helper()
	request, err := json.Marshal(map[string]any{"files": files})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("..", "player", "webvtt.mjs"))
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(request)), os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &parsed)
	}
	if err != nil {
		t.Fatalf("webvtt-parser: %v\n%s", err, out)
	}
	return parsed
}

// numberedTTML writes a numbered text as TTML, with times in frames.
func numberedTTML(language string, seconds int) string {
	var w strings.Builder
	w.WriteString(`<?xml version="1.0" encoding="UTF-8"?><tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter" ttp:frameRate="25" xml:lang="` + language + `"><body><div>`)
	for frame := 0; frame < seconds*textFPS; frame += cueEvery {
		fmt.Fprintf(&w, "<p begin=\"%df\" end=\"%df\">%s</p>\n", frame, frame+cueFor, cueText(language, frame))
	}
	return w.String() + "</div></body></tt>"
}

// checkFile reads a text as a file, and compares each cue with its frame.
func checkFile(t *testing.T, what, file, language string, seconds int) {
	t.Helper()
	parsed := parseWebVTT(t, []string{file})[0]
	if len(parsed.Complaints) > 0 || len(parsed.Cues) != seconds*textFPS/cueEvery {
		t.Errorf("%s: %d cues, want %d: %v", what, len(parsed.Cues), seconds*textFPS/cueEvery, parsed.Complaints)
	}
	worst := 0.0
	for i, c := range parsed.Cues {
		frame := i * cueEvery
		apart := max(math.Abs(c.Start-float64(frame)/textFPS), math.Abs(c.End-float64(frame+cueFor)/textFPS))
		worst = max(worst, apart)
		plain := strings.NewReplacer("<i>", "", "</i>", "").Replace(c.Text)
		if apart > 0.0105 || plain != cueText(language, frame) { // ASS has hundredths of a second
			t.Errorf("%s: cue %d is %+v, want that of frame %d", what, i, c, frame)
		}
	}
	t.Logf("| %s | %d | %.3f s |", what, len(parsed.Cues), worst)
}

// TestTextInFiles imports films that have text, in all forms that are read, and texts of all formats.
func TestTextInFiles(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	const seconds = 20
	film := harness.MakeFilm(t, harness.FilmKind{FPS: textFPS, BFrames: 2, Key: 2, Seconds: seconds})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	english, german := write("en.srt", numberedCues("en", seconds, true)), write("de.srt", numberedCues("de", seconds, true))
	both := []string{"-i", film.Path, "-i", english, "-i", german, "-map", "0", "-map", "1", "-map", "2", "-c", "copy"}
	tags := []string{
		"-metadata:s:s:0", "language=eng", "-metadata:s:s:1", "language=deu", "-metadata:s:s:1", "title=Deutsch für alle",
		"-disposition:s:0", "default", "-disposition:s:1", "hearing_impaired",
	}
	sources := []struct{ name, file, codec string }{
		{"mkv with SubRip", "srt.mkv", "srt"}, {"mkv with ASS", "ass.mkv", "ass"}, {"mp4 with tx3g", "tx3g.mp4", "mov_text"}, {"mkv with WebVTT", "vtt.mkv", "webvtt"},
	}
	for _, s := range sources {
		path := filepath.Join(dir, s.file)
		harness.FFmpeg(t, append(append(append([]string{"-y"}, both...), append(tags, "-c:s", s.codec)...), path)...)
		u, _ := sendUpload(w, path)
		task := w.Completed(u.Task.ID)
		a := ready(w, u.Asset.ID)
		var tracks []words.AssetTrack
		w.Must("GET", "/api/asset/"+a.ID+"/track", nil, &tracks)
		if len(tracks) != 2 || len(task.Status.Warnings) > 0 {
			t.Fatalf("%s: the tracks are %+v, warnings %q", s.name, tracks, task.Status.Warnings)
		}
		for i, want := range []words.AssetTrack{{Language: "en", Name: "en", Default: true}, {Language: "de", Name: "Deutsch für alle", ClosedCaptions: true}} {
			got := tracks[i]
			if s.codec == "mov_text" { // MP4 has no such titles and flags
				want.Name, want.ClosedCaptions, got.ClosedCaptions, got.Default, want.Default = got.Name, false, false, false, false
			}
			if got.Language != want.Language || got.Name != want.Name || got.Default != want.Default || got.ClosedCaptions != want.ClosedCaptions {
				t.Errorf("%s: track %d is %+v, want %+v", s.name, i, got, want)
			}
			file := filepath.Join(dir, got.ID+".vtt")
			save(w, got.URL, file)
			checkFile(t, s.name, file, want.Language, seconds)
		}
	}

	u, _ := sendUpload(w, film.Path)
	w.Completed(u.Task.ID)
	a := ready(w, u.Asset.ID)
	for name, text := range map[string]string{"WebVTT": numberedCues("en", seconds, false), "SubRip": numberedCues("en", seconds, true), "TTML": numberedTTML("en", seconds)} {
		var track words.AssetTrack
		w.Must("POST", "/api/asset/"+a.ID+"/track", map[string]any{"type": "text", "language": "en"}, &track)
		w.Must("PUT", "/api/asset/"+a.ID+"/track/"+track.ID+"/file", []byte(text), &track)
		file := filepath.Join(dir, track.ID+".vtt")
		save(w, track.URL, file)
		checkFile(t, name, file, "en", seconds)
	}
	clipText(t, w, a, dir)
	captionsInFrames(t, w, dir, base(w, a))
}

func base(w *harness.Weir, a words.Asset) string { return w.URL + "/hls/" + a.PlaybackID }

// captionsInFrames imports a film with closed captions in its frames, which become a text. plain is the
// address of a film that has none.
func captionsInFrames(t *testing.T, w *harness.Weir, dir, plain string) {
	t.Helper()
	const seconds = 20
	film := harness.MakeFilm(t, harness.FilmKind{FPS: textFPS, BFrames: 2, Key: 2, Seconds: seconds, CC: true})
	u, _ := sendUpload(w, film.Path)
	w.Completed(u.Task.ID)
	a := ready(w, u.Asset.ID)
	var tracks []words.AssetTrack
	w.Must("GET", "/api/asset/"+a.ID+"/track", nil, &tracks)
	if len(tracks) != 1 || tracks[0].Name != "CC1" || !tracks[0].ClosedCaptions || tracks[0].Cues != seconds*textFPS/harness.CaptionEvery-1 {
		t.Fatalf("the tracks are %+v", tracks)
	}
	signalled := func(address, want string) {
		t.Helper()
		if _, list := get(w, address+"/index.m3u8"); strings.Count(string(list), want) != strings.Count(string(list), "#EXT-X-STREAM-INF") {
			t.Errorf("want %s with each variant:\n%s", want, list)
		}
	}
	signalled(plain, "CLOSED-CAPTIONS=NONE")
	signalled(base(w, a), "CLOSED-CAPTIONS=NONE") // players would show them twice
	player := harness.NewBrowser(t, dir)
	for _, engine := range textPlayers {
		seen := text(player, engine, base(w, a)+"/index.m3u8", "und", []float64{2.4, 14.4})
		seen.check(t, engine+", closed captions", "en")
	}
	w.Must("DELETE", "/api/asset/"+a.ID+"/track/"+tracks[0].ID, nil, nil)
	signalled(base(w, a), `CLOSED-CAPTIONS="cc"`)
}

// clipText cuts a clip of a film with text: its text has the times of the clip.
func clipText(t *testing.T, w *harness.Weir, a words.Asset, dir string) {
	t.Helper()
	var made struct {
		Asset words.Asset
		Task  struct{ ID string }
	}
	const from, to = 50, 350 // frames
	w.Must("POST", "/api/clip", map[string]any{"playbackId": a.PlaybackID, "startTime": from * 1000 / textFPS, "endTime": to * 1000 / textFPS}, &made)
	w.Completed(made.Task.ID)
	clip := ready(w, made.Asset.ID)
	var tracks []words.AssetTrack
	w.Must("GET", "/api/asset/"+clip.ID+"/track", nil, &tracks)
	if len(tracks) != 3 {
		t.Fatalf("the clip has the tracks %+v", tracks)
	}
	player := harness.NewBrowser(t, dir)
	for _, engine := range textPlayers {
		seen := text(player, engine, w.URL+"/hls/"+clip.PlaybackID+"/index.m3u8", "en", []float64{2.6, 8.6}) // of the film
		if len(seen.Cues) != (to-from)/cueEvery {
			t.Errorf("%s shows %d cues of the clip", engine, len(seen.Cues))
		}
		seen.check(t, engine+", a clip", "en")
	}
}

// TestTextInOutputs transcodes a film with text to a bucket, in all forms, and plays those with text.
func TestTextInOutputs(t *testing.T) {
	t.Parallel()
	const seconds = 70 // more than a segment of text
	film := harness.MakeFilm(t, harness.FilmKind{FPS: textFPS, BFrames: 2, Key: 2, Seconds: seconds})
	dir := t.TempDir()
	texts := map[string]string{}
	for _, language := range []string{"en", "de"} {
		texts[language] = filepath.Join(dir, language+".srt")
		if err := os.WriteFile(texts[language], []byte(numberedCues(language, seconds, true)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := filepath.Join(dir, "film.mkv")
	harness.FFmpeg(t, "-y", "-i", film.Path, "-i", texts["en"], "-i", texts["de"], "-map", "0", "-map", "1", "-map", "2", "-c", "copy", "-c:s", "srt",
		"-metadata:s:s:0", "language=eng", "-metadata:s:s:0", "title=English", "-metadata:s:s:1", "language=deu", "-metadata:s:s:1", "title=Deutsch", source)
	w, o := harness.NewWeir(t), harness.NewOrigin(t, source)
	w.Start()
	for _, form := range []struct {
		name string
		more map[string]any
	}{{"HLS TS", nil}, {"HLS CMAF", map[string]any{"c2pa": true}}, {"without text", map[string]any{"text": false}}} {
		b := s3test.Start(t)
		body := harness.Transcode(o.URL+"/film.mkv", b, harness.Rung("full", "h264", 256, 144, 400_000))
		maps.Copy(body, form.more)
		var posted words.Task
		w.Must("POST", "/api/transcode", body, &posted)
		out := w.Completed(posted.ID).Output.Transcode
		if _, err := os.Stat(filepath.Join(b.Dir, filepath.Dir(out.HLS.Path), "text")); os.IsNotExist(err) != (form.name == "without text") {
			t.Errorf("%s: the folder of text: %v", form.name, err)
		}
		if form.name == "without text" {
			continue
		}
		player, at := harness.NewBrowser(t, b.Dir), []float64{0.4, 59.8, 60.6, 66.2}
		for _, engine := range textPlayers {
			text(player, engine, out.HLS.Path, "de", at).check(t, form.name+", "+engine, "de")
			text(player, engine, out.FMP4.Path, "en", at).check(t, "fMP4 beside "+form.name+", "+engine, "en")
		}
		text(player, "shaka", out.FMP4.DASH, "de", at).check(t, "DASH", "de")
	}
}
