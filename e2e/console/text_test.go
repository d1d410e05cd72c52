package console

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
)

// choose gives the field of a file a file.
func (p *tab) choose(label, path string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		found, err := chromedp.Call(p.ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: fmt.Sprintf("(() => {%s return field(%q)})()", find, label)})
		if err != nil {
			return err
		}
		if found.Result.ObjectID == "" {
			return fmt.Errorf("there is no field %q", label)
		}
		_, err = chromedp.Call(p.ctx, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: []string{path}, ObjectID: found.Result.ObjectID})
		return err
	})
}

// check ticks a box, or takes the tick away.
func (p *tab) check(label string) {
	p.t.Helper()
	p.until(`field(args[0])`, label)
	eval[bool](p, `field(args[0]).click(); return true`, label)
}

// shownText is a track as the API shows it to its owner.
type shownText struct {
	Kind, Language, Name            string
	Default, ClosedCaptions, Forced bool
	Cues                            int
	Status                          struct{ Phase string }
}

// flags are d for the default, c for closed captions, f for forced.
func (s shownText) flags() (flags string) {
	if s.Default {
		flags += "d"
	}
	if s.ClosedCaptions {
		flags += "c"
	}
	if s.Forced {
		flags += "f"
	}
	return flags
}

const germanSRT = "1\n00:00:00,000 --> 00:00:05,000\nGuten Tag!\n\n2\n00:00:05,000 --> 00:00:10,000\nWie geht es Ihnen?\n"

// badSRT has a second cue that ends before it begins.
const badSRT = "1\n00:00:00,000 --> 00:00:05,000\nBonjour !\n\n2\n00:00:09,000 --> 00:00:07,000\nÇa va ?\n"

// TestTexts adds captions to an asset in the console, changes and deletes them.
func TestTexts(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	film := importFilm(w, "A long film", longFilm(t))
	p := openConsole(t, w)
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	type text struct {
		kind, language, name string
		flags                string
		cues                 int
		phase                string
	}
	// has waits until the asset has these texts, and the page says the same.
	has := func(want ...text) {
		t.Helper()
		harness.Eventually(t, func() error {
			var list []shownText
			w.Must("GET", "/api/asset/"+film.ID+"/track", nil, &list)
			var got []text
			for _, s := range list {
				got = append(got, text{s.Kind, s.Language, s.Name, s.flags(), s.Cues, s.Status.Phase})
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(text{})); diff != "" {
				return fmt.Errorf("the texts differ (-want +got):\n%s", diff)
			}
			return nil
		})
		var names []string
		for _, each := range want {
			names = append(names, each.name)
		}
		p.until(`JSON.stringify([...document.querySelectorAll('.text-name')].map((e) => e.textContent)) === JSON.stringify(args[0])`, names)
	}

	p.open("assets/" + film.ID)
	p.says("There are none yet")
	p.inspect("texts-empty")
	p.drop(file("film.de.srt", germanSRT))
	p.until(`field('Language')?.value === 'de' && field('Name').value === 'Deutsch' && field('File').files[0].name === 'film.de.srt'`)
	p.inspect("texts-new")
	p.click("Add the text")
	german := text{"subtitles", "de", "Deutsch", "", 2, "ready"}
	has(german)

	p.click("Add a text")
	p.choose("File", file("film.pt-BR.sdh.vtt", "WEBVTT\n\n00:00.000 --> 00:05.000\n[música]\n"))
	p.until(`field('Language').value === 'pt-BR' && field('Name').value === 'Português (Brasil) (CC)' && field('Closed captions').checked`)
	p.fill("Name", "Português")
	p.click("Add the text")
	portuguese := text{"subtitles", "pt-BR", "Português", "c", 1, "ready"}
	has(german, portuguese)

	// What is wrong with a file is said beside it, and nothing is left of its text.
	p.click("Add a text")
	p.choose("File", file("film.fr.srt", badSRT))
	p.until(`field('Language').value === 'fr'`)
	p.fill("Language", "nothing")
	p.click("Add the text")
	p.says("Choose a language from the list")
	p.fill("Language", "french")
	p.click("Add the text")
	p.says("line 6: the cue ends at")
	p.inspect("texts-bad-file")
	has(german, portuguese)
	if eval[bool](p, `return !!field('Character set of the file')`) {
		t.Error("the form asks for a charset, which was not the problem")
	}
	p.choose("File", file("film.fr.old.srt", "1\n00:00:00,000 --> 00:00:05,000\n\xc7a va ?\n"))
	p.click("Add the text")
	p.says("the file is neither UTF-8 nor")
	p.fill("Character set of the file", "windows-1252")
	p.click("Add the text")
	french := text{"subtitles", "fr", "Français", "", 1, "ready"}
	has(german, portuguese, french)
	p.until(`!document.querySelector('dialog[open]')`)
	if got := string(harness.Fetch(t, eval[string](p, `return named('a', '.txt of Français')[0].href`))); got != "Ça va ?\n" {
		t.Errorf("the transcript is %q", got)
	}

	// From a URL, the text is there in a moment, or a sentence that says why not.
	add := func(name, content string) {
		t.Helper()
		p.click("Add a text")
		p.click("From a URL")
		p.fill("URL of the file", harness.NewOrigin(t, file("served", content)).URL+"/"+name)
		p.click("Add the text")
	}
	add("chapters.it.vtt", "WEBVTT\n\n00:00.000 --> 00:15.000\nInizio\n\n00:15.000 --> 00:30.000\nFine\n")
	italian := text{"chapters", "it", "Italiano", "", 2, "ready"}
	has(german, portuguese, french, italian)
	p.until(`squeeze(all('.text-row')[3].textContent).includes('2 chapters') && all('.text-row')[3].textContent.includes('ready')`)
	add("film.en.srt", badSRT)
	has(german, portuguese, french, italian, text{"subtitles", "en", "English", "", 0, "failed"})
	p.says("line 6: the cue ends at")
	p.inspect("texts")

	p.click("Delete English")
	p.says("Players do not offer “English” any more.")
	p.click("Delete")
	has(german, portuguese, french, italian)

	p.click("Edit Deutsch")
	p.fill("Name", "German")
	p.fill("Language", "de-AT")
	p.check("Default")
	p.inspect("texts-edit")
	p.click("Save")
	german = text{"subtitles", "de-AT", "German", "d", 2, "ready"}
	has(german, portuguese, french, italian)
	p.click("Edit Português")
	p.check("Default")
	p.check("Closed captions")
	p.check("Forced")
	p.click("Save")
	german.flags, portuguese.flags = "", "df"
	has(german, portuguese, french, italian)
	p.until(`!all('.text-row')[0].textContent.includes('default') && all('.text-row')[1].textContent.includes('default') && all('.text-row')[1].textContent.includes('forced')`)

	p.click("Replace the file of German")
	p.choose("File", file("bad.srt", badSRT))
	p.click("Send the file")
	p.says("line 6: the cue ends at")
	p.choose("File", file("good.srt", "1\n00:00:00,000 --> 00:00:05,000\nServus!\n"))
	p.click("Send the file")
	p.until(`!field('File') && squeeze(all('.text-row')[0].textContent).includes('1 cue.vtt')`)
	if said := p.complaints("/track"); len(said) > 0 {
		t.Errorf("the browser's console has: %q", said)
	}
	w.Stop()
}

// bilingual is longFilm with a second audio.
func bilingual(t *testing.T) string {
	t.Helper()
	return harness.MakeClip(t, "bilingual.mp4", append(harness.Pictures("320x180", 25, 30), "-f", "lavfi", "-i", "sine=frequency=880:sample_rate=48000:duration=30",
		"-map", "0:v", "-map", "1:a", "-map", "2:a", "-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=deu",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-c:a", "aac")...)
}

// showsText is an expression: whether the player shows a text at the moment, ” = none.
const showsText = `(() => {
	const tracks = [...document.querySelector('video#video')?.textTracks ?? []].filter((t) => t.mode === 'showing');
	return tracks.map((t) => t.activeCues?.[0]?.text ?? '').join() === args[0] && (args[0] !== '' || tracks.length === 0);
})()`

// TestWatchTexts plays a film with captions, chapters and a transcript.
func TestWatchTexts(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	film := importFilm(w, "A film in two languages", bilingual(t))
	add := func(text map[string]any) {
		t.Helper()
		text["type"] = "text"
		w.Must("POST", "/api/asset/"+film.ID+"/track", text, nil)
	}
	add(map[string]any{"language": "en", "name": "English", "default": true, "text": "WEBVTT\n\n" +
		"00:00.000 --> 00:10.000\nHello!\n\n00:10.000 --> 00:20.000\n<v Ada>How are <i>you</i>?\n\n00:20.000 --> 00:30.000\n1 &lt; 2, &lt;b&gt;goodbye&lt;/b&gt;\n"})
	add(map[string]any{"language": "de", "name": "Deutsch", "text": "WEBVTT\n\n00:00.000 --> 00:10.000\nGuten Tag!\n\n00:10.000 --> 00:30.000\nWie geht es Ihnen?\n"})
	add(map[string]any{"kind": "chapters", "language": "en", "name": "Chapters", "text": "WEBVTT\n\n00:00.000 --> 00:10.000\nBeginning\n\n00:10.000 --> 00:20.000\nMiddle\n\n00:20.000 --> 00:30.000\nEnd\n"})

	p := newTab(t, harness.NewBrowser(t, t.TempDir()), w.URL+"/")
	play := w.URL + "/play/" + film.PlaybackID + "?muted"
	shows := func(text string) {
		t.Helper()
		p.until(showsText, text)
	}
	// still opens the page and stops the video at the start. The player has its controls then.
	still := func(address string) {
		t.Helper()
		p.navigate(address)
		p.until(`(() => {
			const v = document.querySelector('video#video');
			return v && v.readyState >= 2 && named('button', 'Captions').length > 0;
		})()`)
		eval[bool](p, `const v = document.querySelector('video#video'); v.pause(); v.currentTime = 1; return true`)
		p.at(1)
	}

	// The default is shown; c turns it off and on, also on the next page.
	still(play)
	shows("Hello!")
	p.until(`named('button', 'Captions')[0].getAttribute('aria-pressed') === 'true'`)
	p.press("c")
	shows("")
	still(play)
	p.until(`named('button', 'Captions')[0].getAttribute('aria-pressed') === 'false'`)
	shows("")
	p.press("c")
	shows("Hello!")

	// What was chosen is remembered by its language, and so is how it looks.
	p.click("Settings")
	p.until(`JSON.stringify([...field('Captions').options].map((o) => o.textContent)) === '["Off","English","Deutsch"]'`)
	p.fill("Captions", "1")
	shows("Guten Tag!")
	p.fill("Text size", "large")
	p.fill("Contrast", "plain")
	p.until(`JSON.stringify([...field('Audio').options].map((o) => o.textContent)) === '["English","Deutsch"]'`)
	p.fill("Audio", "1")
	p.inspect("watch-settings")
	p.press("c")
	p.press("c")
	shows("Guten Tag!")
	still(play)
	shows("Guten Tag!")
	p.click("Settings")
	p.until(`field('Captions').value === '1' && field('Text size').value === 'large' && field('Contrast').value === 'plain' && field('Audio').value === '1'`)
	p.until(`document.querySelector('.stage.text-large.text-plain')`)
	p.fill("Captions", "0")
	shows("Hello!")
	p.fill("Captions", "-1")
	shows("")
	p.click("Settings")

	// Chapters are on the timeline and in the page.
	p.until(`all('.chapters span').length === 2`)
	p.click("0:10 Middle")
	p.at(10)
	p.until(`all('.text-lines [aria-current=true]').map((e) => squeeze(e.textContent)).join() === '0:10 Middle'`)
	eval[bool](p, `const seek = document.querySelector('.seek');
		const box = seek.getBoundingClientRect();
		seek.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * 0.8, clientY: box.top, bubbles: true}));
		return true`)
	p.until(`squeeze(document.querySelector('.preview')?.textContent ?? '') === '0:24 · End'`)

	// The transcript is that of the language that was chosen last, though nothing is shown.
	p.click("Transcript")
	line := func(current string) {
		t.Helper()
		p.until(`all('#transcript [aria-current=true]').map((e) => squeeze(e.textContent)).join() === args[0]`, current)
	}
	line("0:10 How are you?")
	p.inspect("watch-transcript")
	p.click("0:20 1 < 2, <b>goodbye</b>")
	p.at(20)
	line("0:20 1 < 2, <b>goodbye</b>")
	p.until(`all('#transcript li [tabindex="0"]').map((e) => squeeze(e.textContent)).join() === '0:20 1 < 2, <b>goodbye</b>'`)
	eval[bool](p, `all('#transcript li [tabindex="0"]')[0].focus(); return true`)
	p.press(kb.ArrowUp) // within the list, not the volume
	p.press(kb.Enter)
	p.at(10)
	p.press(kb.Home)
	p.press(kb.Enter)
	p.at(0)
	p.fill("Search the transcript", "BYE")
	p.until(`all('#transcript .text-lines button').length === 1 && all('#transcript mark').map((e) => e.textContent).join() === 'bye'`)
	p.says("1 line")
	p.fill("Search the transcript", "nothing of this")
	p.says("No line has this.")
	p.fill("Search the transcript", "")
	p.press("c")
	p.press("c")
	p.click("Settings")
	p.fill("Captions", "1")
	p.says("Wie geht es Ihnen?")
	p.click("Transcript")
	p.until(`all('#transcript').length === 0`)
	if said := p.complaints(); len(said) > 0 {
		t.Errorf("the browser's console has: %q", said)
	}

	// Without storage it is the same until the page is left.
	p.withScript(`Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('blocked', 'SecurityError') }})`)
	still(play)
	shows("Hello!")
	p.press("c")
	shows("")
	p.click("Settings")
	p.fill("Captions", "1")
	shows("Guten Tag!")
	p.press("c")
	p.press("c")
	shows("Guten Tag!")
	w.Stop()
}

// TestGatedTexts shows the texts of a film to a viewer with a token, and those of a film that has none.
func TestGatedTexts(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	var made struct {
		Asset madeAsset
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{
		"name": "For members", "url": harness.NewOrigin(t, longFilm(t)).URL + "/film.mp4", "playbackPolicy": map[string]any{"type": "jwt"},
	}, &made)
	w.Completed(made.Task.ID)
	for _, text := range []map[string]any{
		{"language": "en", "text": "WEBVTT\n\n00:00.000 --> 00:30.000\nA secret\n"}, {"kind": "chapters", "text": "WEBVTT\n\n00:05.000 --> 00:30.000\nThe only one\n"},
	} {
		text["type"] = "text"
		w.Must("POST", "/api/asset/"+made.Asset.ID+"/track", text, nil)
	}
	open := importFilm(w, "Without text", harness.TinyClip(t))

	p := newTab(t, harness.NewBrowser(t, t.TempDir()), w.URL+"/")
	p.navigate(w.URL + "/play/" + made.Asset.PlaybackID + "?muted&jwt=" + url.QueryEscape(permit(w, made.Asset.PlaybackID)))
	p.click("Transcript")
	p.says("A secret")
	p.says("The only one")
	p.click("0:05 The only one")
	p.until(`document.querySelector('video#video').currentTime > 4.9`)

	p.navigate(w.URL + "/play/" + open.PlaybackID + "?muted")
	p.until(moves)
	p.until(`performance.getEntriesByType('resource').some((e) => e.name.includes('/api/playback/') && e.responseEnd > 0)`)
	if there := eval[[]string](p, `return [...named('button', 'Transcript'), ...named('button', 'Captions'), ...all('h2')].map((e) => e.outerHTML)`); len(there) > 0 {
		t.Errorf("a film without text has %q", there)
	}
	if said := p.complaints(); len(said) > 0 {
		t.Errorf("the browser's console has: %q", said)
	}
	w.Stop()
}

// permit returns the token of a viewer.
func permit(w *harness.Weir, playbackID string) string {
	w.T.Helper()
	var key struct{ PublicKey, PrivateKey string }
	w.Must("POST", "/api/access-control/signing-key", map[string]any{"name": "of the page"}, &key)
	text, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		w.T.Fatal(err)
	}
	private, err := jwt.ParseECPrivateKeyFromPEM(text)
	if err != nil {
		w.T.Fatal(err)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": playbackID, "pub": key.PublicKey, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(private)
	if err != nil {
		w.T.Fatal(err)
	}
	return token
}
