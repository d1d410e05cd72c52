package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"weir/internal/account"
)

// person uses a real browser on the account pages with
// the API beside them.
type person struct {
	t    *testing.T
	ctx  context.Context
	base string
}

// newPerson starts a browser. Whatever it complains about, such as a script that
// the page forbids, fails the test.
func newPerson(t *testing.T, base string) *person {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Fatal("there is no browser; install chromium")
	}
	allocated, stop := chromedp.NewExecAllocator(
		context.WithoutCancel(t.Context()),
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute),
	)
	ctx, cancel := chromedp.NewContext(allocated)
	// The browser runs as long as the context that it was started with.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1200, 900)); err != nil {
		t.Fatal(err)
	}
	p := &person{t, ctx, base}
	complaints, exceptions := chromedp.Events(ctx, log.EntryAdded), chromedp.Events(ctx, runtime.ExceptionThrown)
	var listening sync.WaitGroup
	listening.Go(func() {
		for e, err := range complaints {
			// An answer that is not 200 is what some steps are about.
			if err == nil && e.Entry.Source != log.EntrySourceNetwork {
				t.Errorf("the browser complains at %s: %s", e.Entry.URL, e.Entry.Text)
			}
		}
	})
	listening.Go(func() {
		for e, err := range exceptions {
			if err == nil {
				t.Errorf("a script fails: %s", e.ExceptionDetails.Text)
			}
		}
	})
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended
		cancel()
		stop()
		listening.Wait()
	})
	return p
}

// timeout bounds each step, so that a page that is not as expected shows as a
// failed test and not as a hanging one.
const timeout = time.Minute

// step runs an action of the browser and returns what it gives.
func step[T any](p *person, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		last, cancel := context.WithTimeout(p.ctx, 5*time.Second)
		defer cancel()
		text, _ := chromedp.Run(last, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
		p.t.Fatalf("%v; the page shows:\n%s", err, text)
	}
	return v
}

func (p *person) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	step(p, chromedp.Steps(actions...))
}

func (p *person) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base+path), chromedp.WaitVisible(chromedp.CSS("h1")))
}

// see waits for a page with this heading.
func (p *person) see(heading string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(fmt.Sprintf(`//h1[normalize-space()=%q]`, heading)))
}

// wait waits until something is there.
func (p *person) wait(selector string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS(selector)))
}

// fill types into the fields with the ids, as ids and values in turn.
func (p *person) fill(fields ...string) {
	p.t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		empty := fmt.Sprintf("document.getElementById(%q).value = ''", fields[i])
		p.do(chromedp.Evaluate[chromedp.Void](empty), chromedp.SendKeys(chromedp.ID(fields[i]), fields[i+1]))
	}
}

// press clicks on a button, a link or a choice with this text.
func (p *person) press(text string) {
	p.t.Helper()
	p.do(chromedp.Click(fmt.Sprintf(`//button[normalize-space()=%[1]q] | //a[normalize-space()=%[1]q] | //summary[normalize-space()=%[1]q] |
		//label[.//b[normalize-space()=%[1]q]] | //a[.//span[normalize-space()=%[1]q]]`, text)))
}

func (p *person) text(selector string) string {
	p.t.Helper()
	return step(p, chromedp.Text(chromedp.CSS(selector)))
}

// keep saves a screenshot of the page, if the test runs with -artifacts.
func (p *person) keep(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), step(p, chromedp.FullScreenshot(100)), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// curl does what the command line says.
func curl(t *testing.T, line string) (status int, body string) {
	t.Helper()
	words := shellWords(line)
	if len(words) == 0 || words[0] != "curl" {
		t.Fatalf("%q is no curl line", line)
	}
	method, address, data, header := http.MethodGet, "", "", http.Header{}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			header.Add(name, value)
		case "-d":
			i++
			method, data = http.MethodPost, words[i]
		default:
			address = words[i]
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// shellWords splits a command; the only quotes are single ones.
func shellWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// newPages serves the account pages and the API as the program does.
func newPages(t *testing.T) (base string, first account.First) {
	t.Helper()
	f := newFixture(t)
	accounts, err := account.New(t.Context(), f.store, account.Options{Signup: true})
	if err != nil {
		t.Fatal(err)
	}
	opt := f.server.Options
	opt.Accounts, opt.PublicURL = accounts, ""
	h, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", h)
	mux.Handle("/", accounts.Pages())
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	link, err := accounts.NewLink(t.Context(), f.vars["ann.id"])
	if err != nil {
		t.Fatal(err)
	}
	user, err := f.store.User(t.Context(), f.vars["ann.id"])
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, account.First{User: user, LinkToken: link}
}

const pagePassword = "a weir across the stream"

// TestAccountPages follows a user who has just got a link: from setting
// the password to a key that is used, restricted and revoked.
func TestAccountPages(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	base, ann := newPages(t)
	p := newPerson(t, base)

	p.open("/set-password?token=" + ann.LinkToken.Reveal())
	p.see("Set your password")
	p.keep("set-password")
	p.fill("password", pagePassword, "repeat", pagePassword+"!")
	p.press("Set password")
	p.wait(".error")
	p.fill("password", pagePassword, "repeat", pagePassword)
	p.press("Set password")

	p.see("Log in")
	p.fill("email", ann.User.Email, "password", "not the password")
	p.press("Log in")
	p.wait(".error")
	p.keep("login-error")
	p.fill("password", pagePassword)
	p.press("Log in")
	p.see("Overview")
	p.keep("overview")

	p.press("New key")
	p.see("New API key")
	p.fill("name", "from the page")
	p.press("Create key")
	p.see("Your new API key")
	p.keep("key-made")
	key, line := p.text("#key"), p.text("#curl")
	if !strings.Contains(line, key) {
		t.Errorf("the curl line %q has another key than %q", line, key)
	}
	status, body := curl(t, line)
	var streams []any
	if err := json.Unmarshal([]byte(body), &streams); err != nil || status != http.StatusOK || len(streams) == 0 {
		t.Errorf("the curl line answers %d %s; want ann's streams", status, body)
	}
	p.copies("Copy key", key)

	// It is shown once: a reload leads to the list, which does not have it.
	p.do(chromedp.Reload())
	p.see("API keys")
	p.keep("keys")
	if text := p.text("main"); !strings.Contains(text, "from the page") || strings.Contains(text, key) {
		t.Errorf("the list shows %q; want the name and not the key", text)
	}

	p.restrict(line)

	p.press("renamed")
	p.see("renamed")
	p.press("Revoke this key")
	p.press("Revoke for good")
	p.wait(".notice")
	if text := p.text("main"); strings.Contains(text, "renamed") {
		t.Errorf("the revoked key is in the list: %s", text)
	}
	if status, body := curl(t, line); status != http.StatusUnauthorized {
		t.Errorf("the revoked key answers %d %s, want 401", status, body)
	}

	p.press("Log out")
	p.see("Log in")
	p.open("/keys")
	p.see("Log in")
}

// copies presses a copy button and looks into the clipboard.
func (p *person) copies(button, want string) {
	p.t.Helper()
	if _, err := chromedp.CallBrowser(p.ctx, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "clipboard-read"}, Setting: browser.PermissionSettingGranted,
	}); err != nil {
		p.t.Fatal(err)
	}
	p.press(button)
	p.see("Your new API key")
	p.do(chromedp.WaitVisible(`//button[normalize-space()="Copied"]`))
	got := step(p, chromedp.Evaluate[string]("navigator.clipboard.readText()", chromedp.EvalAwaitPromise))
	if got != want {
		p.t.Errorf("the clipboard has %q, want %q", got, want)
	}
}

// restrict gives the key another name and rules, and sees them work.
func (p *person) restrict(line string) {
	t := p.t
	t.Helper()
	p.press("from the page")
	p.see("from the page")
	p.fill("name", "renamed")
	p.press("Only what the rules below allow.")
	p.fill("rules", "get stream/:id\nfetch asset")
	p.keep("key")
	p.press("Save")
	p.wait(".error")
	p.fill("rules", "get stream/:id")
	p.press("Save")
	p.see("API keys")
	if text := p.text("main"); !strings.Contains(text, "renamed") || !strings.Contains(text, "1 rule, from servers") {
		t.Errorf("the list shows %q; want the new name and the rule", text)
	}
	if status, body := curl(t, line); status != http.StatusForbidden || !strings.Contains(body, "insufficent privileges") {
		t.Errorf("the restricted key lists streams: %d %s", status, body)
	}
	if status, body := curl(t, line+"/unknown"); status != http.StatusNotFound {
		t.Errorf("the restricted key may not read a stream: %d %s", status, body)
	}
}

// A page of another site can't use the log-in of a visitor's browser.
func TestForeignPage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	base, ann := newPages(t)
	// The same host, so that the browser sends the cookie along.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><h1>Nice kittens</h1><form method="post" action="`+base+
			`/keys/new"><input name="name" value="stolen"><input name="where" value="servers"><input name="what" value="all"><button>Kittens</button></form>`)
	}))
	t.Cleanup(evil.Close)
	p := newPerson(t, base)
	p.enter(ann)
	p.do(chromedp.Navigate(evil.URL), chromedp.Click(chromedp.CSS("button")))
	p.see("That did not work")
	if text := p.text("main"); !strings.Contains(text, "came from another site") {
		t.Errorf("the page says %q", text)
	}
	p.open("/keys")
	if text := p.text("main"); strings.Contains(text, "stolen") || !strings.Contains(text, "ann's key") {
		t.Errorf("the list shows %q", text)
	}
}

// enter sets the password and logs in.
func (p *person) enter(who account.First) {
	p.t.Helper()
	p.open("/set-password?token=" + who.LinkToken.Reveal())
	p.fill("password", pagePassword, "repeat", pagePassword)
	p.press("Set password")
	p.see("Log in")
	p.fill("email", who.User.Email, "password", pagePassword)
	p.press("Log in")
	p.see("Overview")
}

// On a phone nothing is wider than the screen and everything can be hit with a
// thumb, in every page.
func TestAccountPagesOnPhone(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	base, ann := newPages(t)
	p := newPerson(t, base)
	p.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch))
	fits := func(name string) {
		t.Helper()
		p.keep("phone-" + name)
		if wide := step(p, chromedp.Evaluate[int]("document.documentElement.scrollWidth - document.documentElement.clientWidth")); wide > 0 {
			t.Errorf("%s is %d pixels wider than the screen", name, wide)
		}
		small := step(p, chromedp.Evaluate[[]string](`[...document.querySelectorAll("button, summary, select, textarea, label.choice, nav a, .button, .brand, .key, input:not([type=hidden]):not([type=radio])")]
			.filter(e => e.offsetParent && e.getBoundingClientRect().height < 44).map(e => e.outerHTML.slice(0, 80))`))
		unnamed := step(p, chromedp.Evaluate[[]string](`[...document.querySelectorAll("input:not([type=hidden], [hidden]), textarea, select")].filter(e => !e.labels.length).map(e => e.outerHTML)`))
		if len(small) > 0 || len(unnamed) > 0 {
			t.Errorf("%s has what is too small for a thumb %q, or has no label %q", name, small, unnamed)
		}
	}
	for name, path := range map[string]string{"login": "/login", "signup": "/signup", "missing": "/nowhere", "set-password": "/set-password?token=" + ann.LinkToken.Reveal()} {
		p.open(path)
		fits(name)
	}
	p.enter(ann)
	fits("overview")
	p.open("/account")
	fits("account")
	p.open("/keys/new")
	p.fill("name", strings.Repeat("a-very-long-name", 6))
	p.press("Also in web pages")
	p.fill("origins", "https://"+strings.Repeat("sub.", 30)+"example.com")
	fits("key-new")
	p.press("Create key")
	p.see("Your new API key")
	fits("key-made")
	p.open("/keys")
	fits("keys")
	p.do(chromedp.Click(chromedp.CSS(".key")), chromedp.WaitVisible(chromedp.CSS("details")))
	p.press("Revoke this key")
	fits("key")
}
