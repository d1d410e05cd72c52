package api

import (
	"context"
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

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"weir/internal/account"
	"weir/internal/wait"
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
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(wait.Limit),
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
			// A response that is not 200 is what some steps are about.
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

// step runs an action of the browser and returns what it gives.
func step[T any](p *person, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, wait.Limit)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		last, cancel := context.WithTimeout(p.ctx, wait.Limit)
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

// TestAccountPages follows a user who has just got a link: from setting the password to the log-out.
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
	p.see("Account")
	p.press("Log out")

	p.see("Log in")
	p.fill("email", ann.User.Email, "password", "not the password")
	p.press("Log in")
	p.wait(".error")
	p.keep("login-error")
	p.fill("password", pagePassword)
	p.press("Log in")
	p.see("Account")
	p.fill("old", pagePassword, "password", pagePassword+"2", "repeat", pagePassword+"2")
	p.press("Change password")
	p.wait(".notice")
	p.keep("account")

	p.press("Log out")
	p.see("Log in")
	p.open("/account")
	p.see("Log in")
}

// A page of another site can't use the log-in of a user's browser.
func TestForeignPage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	base, ann := newPages(t)
	// The same host, so that the browser sends the cookie along.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><h1>Nice kittens</h1><form method="post" action="`+base+`/logout"><button>Kittens</button></form>`)
	}))
	t.Cleanup(evil.Close)
	p := newPerson(t, base)
	p.enter(ann)
	p.do(chromedp.Navigate(evil.URL), chromedp.Click(chromedp.CSS("button")))
	p.see("That did not work")
	if text := p.text("main"); !strings.Contains(text, "came from another site") {
		t.Errorf("the page says %q", text)
	}
	p.open("/account")
	p.see("Account")
}

// enter sets the password, which logs in.
func (p *person) enter(who account.First) {
	p.t.Helper()
	p.open("/set-password?token=" + who.LinkToken.Reveal())
	p.fill("password", pagePassword, "repeat", pagePassword)
	p.press("Set password")
	p.see("Account")
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
		small := step(p, chromedp.Evaluate[[]string](`[...document.querySelectorAll("button, nav a, .button, .brand, input:not([type=hidden])")]
			.filter(e => e.offsetParent && e.getBoundingClientRect().height < 44).map(e => e.outerHTML.slice(0, 80))`))
		unnamed := step(p, chromedp.Evaluate[[]string](`[...document.querySelectorAll("input:not([type=hidden], [hidden])")].filter(e => !e.labels.length).map(e => e.outerHTML)`))
		if len(small) > 0 || len(unnamed) > 0 {
			t.Errorf("%s has what is too small for a thumb %q, or has no label %q", name, small, unnamed)
		}
	}
	for name, path := range map[string]string{"login": "/login", "signup": "/signup", "missing": "/nowhere", "set-password": "/set-password?token=" + ann.LinkToken.Reveal()} {
		p.open(path)
		fits(name)
	}
	p.enter(ann)
	fits("account")
}
