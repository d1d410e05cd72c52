package console

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/e2e/harness"
)

// longFilm is half a minute of pictures and sound.
func longFilm(t *testing.T) string {
	t.Helper()
	return harness.MakeClip(t, "long.mp4", append(harness.Pictures("320x180", 25, 30), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-c:a", "aac")...)
}

// madeAsset is an asset, of which the test knows the addresses.
type madeAsset struct{ ID, PlaybackID string }

// importFilm makes an asset of a file, and waits until it is ready.
func importFilm(w *harness.Weir, name, file string) (made madeAsset) {
	w.T.Helper()
	var answer struct {
		Asset madeAsset
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{"name": name, "url": harness.NewOrigin(w.T, file).URL + "/film.mp4"}, &answer)
	w.Completed(answer.Task.ID)
	return answer.Asset
}

// openConsole starts a browser in front of weir, and logs in for the first time.
func openConsole(t *testing.T, w *harness.Weir) *tab {
	t.Helper()
	return firstLogIn(t, harness.NewBrowser(t, t.TempDir()), w)
}

// firstLogIn sets the password in a new tab, which shows the console then.
func firstLogIn(t *testing.T, b *harness.Browser, w *harness.Weir) *tab {
	t.Helper()
	p := newTab(t, b, w.URL+"/")
	p.navigate(harness.Match(t, w.Greeting.String(), `set password +(\S+)`))
	p.enter()
	return p
}

// sliderFollows is an expression: whether the slider of the player, and what it says to screen readers,
// are at most a second behind the video, which has played for more than two.
const sliderFollows = `(() => {
	const v = document.querySelector('video#video');
	const slider = document.querySelector('input[aria-label=Position]');
	if (!v || !slider || v.paused || v.currentTime < 2) return false;
	const seconds = (text) => text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0);
	const said = seconds(slider.getAttribute('aria-valuetext').split(' of ')[0]);
	return Math.abs(slider.value - v.currentTime) < 1 && Math.abs(said - v.currentTime) < 1.5 && slider.max > 29;
})()`

// TestScrubber reads the slider of a film while it plays, with the pointer elsewhere.
func TestScrubber(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	film := importFilm(w, "A long film", longFilm(t))
	p := openConsole(t, w)

	p.navigate(w.URL + "/play/" + film.PlaybackID + "?muted")
	p.until(sliderFollows)
	p.screenshot("scrubber-watch-page")

	p.open("assets/" + film.ID)
	p.click("Play")
	p.until(sliderFollows)
	p.screenshot("scrubber-console")
	w.Stop()
}

// press presses a key, as a person does.
func (p *tab) press(key string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(key)); err != nil {
		p.t.Fatal(err)
	}
}

// at waits until the video shows a time, in seconds.
func (p *tab) at(seconds float64) {
	p.t.Helper()
	p.until(`all('video#video').some((v) => !v.seeking && Math.abs(v.currentTime - args[0]) < 0.2)`, seconds)
}

// TestKeys plays a film with the keyboard.
func TestKeys(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	film := importFilm(w, "A long film", longFilm(t))
	p := openConsole(t, w)
	const video = `document.querySelector('video#video')`
	is := func(condition string, args ...any) {
		t.Helper()
		p.until(`(({video}) => `+condition+`)({video: `+video+`})`, args...)
	}
	p.navigate(w.URL + "/play/" + film.PlaybackID + "?muted")
	is(`video && !video.paused && video.currentTime > 0 && video.buffered.length > 0`)
	p.press("k")
	is(`video.paused`)
	p.press("5")
	p.at(15)
	p.press("l")
	p.at(25)
	p.press("j")
	p.at(15)
	p.press(kb.ArrowRight)
	p.at(20)
	p.press(kb.ArrowLeft)
	p.at(15)
	p.press("0")
	p.at(0)
	p.press("j") // not before the start
	p.at(0)
	p.press(" ")
	is(`!video.paused`)
	p.press(" ")
	is(`video.paused`)
	p.press("m")
	is(`!video.muted`)
	p.press("m")
	is(`video.muted`)
	p.press(kb.ArrowDown) // scrolls the page
	eval[bool](p, `document.querySelector('video#video').focus(); return true`)
	p.press(kb.ArrowDown)
	is(`video.volume === 0.95`)
	p.press(kb.ArrowUp)
	is(`video.volume === 1`)
	p.press("f")
	is(`document.fullscreenElement !== null`)
	p.press("f")
	is(`document.fullscreenElement === null`)
	p.press("?")
	is(`document.querySelector('dialog[open]')?.getAttribute('aria-label') === 'Keys of the player'`)
	p.screenshot("keys")
	p.look(allLooks[2])
	p.screenshot("keys-phone")
	p.look(allLooks[0])
	p.press("9") // the dialog is in front
	p.press(kb.Escape)
	is(`!document.querySelector('dialog[open]')`)
	eval[bool](p, `document.querySelector('input[aria-label=Position]').focus(); return true`)
	p.press(kb.ArrowRight) // no tenth of a second
	p.at(5)

	p.open("assets/" + film.ID)
	p.until(`named('button', 'Play').length > 0`)
	p.press("k")
	p.until(moves)
	eval[bool](p, `field('Name of the clip').focus(); return true`)
	p.press("k")
	p.until(`field('Name of the clip').value === 'k'`)
	is(`!video.paused`)
	w.Stop()
}
