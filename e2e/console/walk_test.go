package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
)

const (
	email    = "ada@example.com"
	password = "four words are enough"
)

// allowed are the messages of the browser's console that are no faults.
var allowed = []string{
	"net::ERR_",   // the network was cut: the browser logs each request that failed, and nobody can stop it
	"/poster.jpg", // what plays already may not have its picture yet
	"/index.m3u8", // the player of a stream asks for its playlist until it is there
}

// TestConsole goes through the console from the first start on: live, clip, upload, webhook, transcode,
// embed, log-out.
func TestConsole(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	front := newLine(t)
	b := harness.NewBrowser(t, t.TempDir())
	c := &walk{t: t, w: w, b: b, front: front, tab: newTab(t, b, front.url()+"/")}
	c.args = []string{"--rtmp", harness.FreeAddr(t), "--webrtc", harness.FreeAddr(t), "--public-url", front.url()}

	c.startWeir()
	c.setPassword()
	stream := c.createStream()
	c.goLive(stream)
	asset := c.upload()
	c.webhook()
	c.transcode()
	c.project()
	c.embed(asset)
	c.logOut(stream)
	for _, said := range c.tab.complaints(allowed...) {
		t.Errorf("the browser's console has: %s", said)
	}
	w.Stop()
}

type walk struct {
	t     *testing.T
	w     *harness.Weir
	b     *harness.Browser
	front *line
	args  []string // of weir
	*tab
}

func (c *walk) startWeir() {
	c.w.Start(c.args...)
	c.front.leadTo(strings.TrimPrefix(c.w.URL, "http://"))
}

// step prints how long a part of the walk took.
func (c *walk) step(name string) func() {
	start := time.Now()
	return func() { c.t.Logf("%-14s %5.1f s", name, time.Since(start).Seconds()) }
}

func (c *walk) setPassword() {
	defer c.step("set password")()
	link := harness.Match(c.t, c.w.Greeting.String(), `set password +(\S+)`)
	if !strings.HasPrefix(link, c.base) {
		c.t.Fatalf("the link is %s, want it below %s", link, c.base)
	}
	c.navigate(link)
	c.enter()
}

func (c *walk) createStream() (id string) {
	defer c.step("create stream")()
	c.click("Streams")
	c.click("Create a stream")
	c.fill("Name", "The show")
	c.fill("Renditions", "none")
	c.click("Create the stream")
	c.says("Send to it")
	return c.reaches("streams/")
}

// stuck makes the first player of a stream wait for ever for what it appended.
const stuck = `if (location.pathname.startsWith('/streams/')) {
	const append = SourceBuffer.prototype.appendBuffer;
	let first;
	SourceBuffer.prototype.appendBuffer = function (data) {
		first ??= this;
		if (this !== first) append.call(this, data);
	};
}`

// goLive sends the fake camera, watches it, and cuts a clip out of it in a second tab, whose player gets
// stuck at first.
func (c *walk) goLive(stream string) {
	defer c.step("go live, clip")()
	c.click("Go live from here")
	c.reaches("streams/" + stream + "/live")
	start := time.Now()
	c.click("Start the broadcast")
	c.says("You are on air.")
	onAir := time.Since(start)
	c.until(moves)
	c.screenshot("walk-live")
	c.t.Logf("on air after %.1f s, plays in the page after %.1f s", onAir.Seconds(), time.Since(start).Seconds())

	second := newTab(c.t, c.b, c.base)
	second.withScript(stuck)
	second.open("streams/" + stream)
	second.until(moves)
	second.until(`all('video')[0].getAttribute('aria-label') === 'Player of The show'`)
	second.screenshot("walk-stream-on-air")
	second.click("Edit")
	second.fill("Name", "The late show")
	second.click("Save")
	second.until(`all('h1')[0].textContent === 'The late show'`)
	second.click("Clip the last 30 s")
	second.until(`all('[role=status]').some((e) => squeeze(e.textContent).startsWith('The clip') && e.textContent.includes('ready'))`)
	// Beside it there may be a word about the health of the stream, with a link of its own.
	link := eval[string](second, `return all('[role=status]').find((e) => squeeze(e.textContent).startsWith('The clip')).querySelector('a').getAttribute('href')`)
	second.navigate(c.base + link)
	second.click("Play")
	second.until(moves)
	for _, said := range second.complaints(allowed...) {
		c.t.Errorf("the console of the second tab has: %s", said)
	}
	c.says("You are on air.")
	c.restartWeir()
	c.click("Stop")
	c.says("Nobody sees this yet.")
}

// restartWeir lets the broadcast come back after the page has asked for it in vain.
func (c *walk) restartWeir() {
	defer c.step("restart of weir")()
	c.w.Kill()
	c.says("connecting again")
	time.Sleep(3 * time.Second) // the first attempts fail
	c.startWeir()
	c.says("You are on air.")
}

// upload drops a film, cuts the network in the middle, and plays it.
func (c *walk) upload() (path string) {
	defer c.step("upload, play")()
	film := filepath.Join(c.t.TempDir(), "film.mp4")
	harness.FFmpeg(c.t, append(append(harness.Pictures("320x180", 25, 6), "-vf", "noise=alls=60:allf=t"),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-b:v", "6M", "-c:a", "aac", "-movflags", "+faststart", film)...)
	c.click("Assets")
	c.reaches("assets")
	c.says("Import from a URL")
	c.settled()
	c.front.set(false, true)
	c.drop(film)
	c.until(`all('section[aria-label=Uploads] progress, section[aria-label=Uploads] [role=progressbar]').some((e) => Number(e.value ?? e.getAttribute('aria-valuenow')) > 0)`)
	c.front.set(true, false)
	c.says("No connection. It continues by itself.")
	c.screenshot("walk-upload-cut")
	c.front.set(false, false)
	c.says("All files are uploaded")
	c.click("film.mp4")
	id := c.reaches("assets/")
	c.click("Play")
	c.until(moves)
	want := harness.FileSize(c.t, film)
	harness.Eventually(c.t, func() error { // it plays before it is ready
		var asset struct{ Size int64 }
		if c.w.Must("GET", "/api/asset/"+id, nil, &asset); asset.Size != want {
			return fmt.Errorf("the asset has %d bytes, the film has %d", asset.Size, want)
		}
		return nil
	})
	return "assets/" + id
}

// webhook makes one in front of a real receiver, and sends a test to it. The network is cut when the
// script of the page is loaded.
func (c *walk) webhook() {
	defer c.step("webhook")()
	c.front.set(true, false)
	c.click("Webhooks")
	c.says("This page is not loaded")
	c.click("Try again") // still without a network
	c.says("The server does not answer")
	c.screenshot("walk-page-cut")
	c.front.set(false, false)
	c.click("Try again")
	got := make(chan *http.Request, 8)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	c.t.Cleanup(receiver.Close)
	c.click("Create a webhook")
	c.fill("Name", "my shop")
	c.fill("URL", receiver.URL+"/hook")
	c.click("Generate a secret")
	c.click("Create the webhook")
	c.reaches("webhooks/")
	c.says("Deliveries")
	c.click("Send a test")
	c.says("The test arrived.")
	c.screenshot("walk-webhook-test")
	r := <-got
	if r.URL.Path != "/hook" || r.Method != http.MethodPost || r.Header.Get("Livepeer-Signature") == "" {
		c.t.Errorf("the receiver got %s %s %v", r.Method, r.URL, r.Header)
	}
}

// transcode fills the form for a transcode into a bucket.
func (c *walk) transcode() {
	defer c.step("transcode")()
	bucket := s3test.Start(c.t)
	films := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(harness.SmallClip(c.t)))))
	c.t.Cleanup(films.Close)
	c.click("Tasks")
	for _, ends := range []string{"upload → film.mp4", "broadcast → "} { // what was uploaded, and the clip of the stream
		c.until(`all('.ends').some((e) => squeeze(e.textContent).startsWith(args[0].trim()))`, ends)
	}
	c.click("Transcode to a bucket")
	c.fill("URL of the video", films.URL+"/"+filepath.Base(harness.SmallClip(c.t)))
	c.fill("Endpoint", bucket.Endpoint)
	c.fill("Bucket", bucket.Name)
	c.fill("Access key", s3test.Key)
	c.fill("Secret key", s3test.Secret)
	if code := eval[string](c.tab, `return document.body.innerText`); strings.Contains(code, s3test.Secret) {
		c.t.Error("the secret key is shown as code")
	}
	c.click("Start the task")
	c.until(`/\/tasks\/(?!new)/.test(location.pathname)`)
	c.says("completed")
	c.screenshot("walk-transcode")
	hasPlaylist := func(folder string) {
		c.t.Helper()
		playlist, err := os.ReadFile(filepath.Join(bucket.Dir, folder, "index.m3u8"))
		if err != nil || !bytes.Contains(playlist, []byte("#EXT-X-STREAM-INF")) {
			c.t.Errorf("the bucket has no playlist in %s: %v %s", folder, err, playlist)
		}
	}
	hasPlaylist("hls")

	var saved struct{ ID string }
	c.w.Must("POST", "/api/object-store", map[string]any{"name": "archive", "url": bucket.URL()}, &saved)
	c.open("tasks/new")
	c.fill("URL of the video", films.URL+"/"+filepath.Base(harness.SmallClip(c.t)))
	c.fill("Write to", "object-store")
	c.fill("Object store", saved.ID)
	c.fill("Folder for HLS", "/saved")
	c.click("Start the task")
	c.until(`/\/tasks\/(?!new)/.test(location.pathname)`)
	c.says("completed")
	hasPlaylist("saved")
}

// project makes and changes a stream in another project, which has none of the first one's, and goes
// back.
func (c *walk) project() {
	defer c.step("project")()
	id := eval[string](c.tab, `const {token} = await (await fetch('session/token', {method: 'POST'})).json();
		const made = await fetch('api/project', {
			method: 'POST',
			headers: {Authorization: 'JWT ' + token, 'Content-Type': 'application/json'},
			body: JSON.stringify({name: 'Elsewhere'}),
		});
		return (await made.json()).id`)
	c.open("streams")
	first := eval[string](c.tab, `return field('Project').value`)
	c.fill("Project", id)
	c.says("No streams yet")
	c.click("Create a stream")
	c.fill("Name", "The other show")
	c.click("Create the stream")
	c.reaches("streams/")
	c.click("Edit")
	c.fill("Name", "The other late show")
	c.click("Save")
	c.until(`all('h1')[0].textContent === 'The other late show'`)
	c.open("streams")
	c.fill("Project", first)
	c.says("The late show")
}

// embed puts the snippet of the asset's page into a page of another server.
func (c *walk) embed(asset string) {
	defer c.step("embed")()
	c.open(asset)
	snippet := eval[string](c.tab, `return all('pre').find((e) => e.textContent.includes('<iframe')).textContent`)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><title>Another site</title>%s`, snippet)
	}))
	c.t.Cleanup(other.Close)
	c.navigate(other.URL)
	c.inFrame(`document.querySelector('.big-play')`)
	// A real click: browsers play sound in a frame only after one.
	if err := chromedp.Do(c.ctx, chromedp.MouseClickXY(320, 180)); err != nil {
		c.t.Fatal(err)
	}
	c.inFrame(moves)
}

// logOut ends the session: the token of the console stops working, and pages lead to the log-in.
func (c *walk) logOut(stream string) {
	defer c.step("log out")()
	c.open("keys")
	const me = `return (await fetch('api/user/me', {headers: {Authorization: 'JWT ' + args[0]}})).status`
	token := eval[string](c.tab, `return (await (await fetch('session/token', {method: 'POST'})).json()).token`)
	if status := eval[int](c.tab, me, token); status != http.StatusOK {
		c.t.Errorf("a token of the session is answered with %d", status)
	}
	c.click("Log out")
	c.reaches("login")
	c.says("Log in")
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.w.URL+"/api/user/me", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "JWT "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		c.t.Errorf("after the log-out the token is answered with %d", response.StatusCode)
	}
	for _, path := range []string{"", "streams/" + stream, "account"} {
		c.navigate(c.base + path)
		c.reaches("login")
	}
	c.logIn()
}
