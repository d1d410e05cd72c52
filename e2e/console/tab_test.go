package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// tab is a tab of the browser, with what it wrote to its console.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string // of the console, with a slash at its end

	inspected int // pages

	mu       sync.Mutex
	messages []chromedp.ConsoleMessage
}

// newTab opens a tab beside the others of the browser.
func newTab(t *testing.T, b *harness.Browser, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.Ctx)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, base: base}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.messages = append(p.messages, m)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + (document.querySelector('main, body')?.innerText ?? '')`))
			t.Logf("the tab shows %s %v", harness.Tail(text), err)
			videos, err := tryEval[string](p, `const ranges = (r) => Array.from({length: r.length}, (_, i) => [r.start(i), r.end(i)]);
				return JSON.stringify(all('video').map((v) => ({at: v.currentTime, paused: v.paused, seeking: v.seeking, ready: v.readyState,
					buffered: ranges(v.buffered), seekable: ranges(v.seekable)})))`)
			t.Logf("its videos are %s %v", videos, err)
		}
	})
	return p
}

// enter sets the password on the page of the link, which leads to the console.
func (p *tab) enter() {
	p.t.Helper()
	p.fill("E-mail address", email)
	p.fill("New password", password)
	p.fill("New password once more", password)
	p.click("Set password")
	p.says("Overview")
	p.settled()
}

// logIn logs in on the page for that.
func (p *tab) logIn() {
	p.t.Helper()
	p.fill("E-mail address", email)
	p.fill("Password", password)
	p.click("Log in")
	p.says("Overview")
	p.settled()
}

// screenshot writes a picture of the whole page into the folder for screenshots, if there is one.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Logf("no screenshot: %v", err)
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// complaints are the errors and warnings of the browser's console, but those that contain one of some
// texts. Violations of the content security policy are among them.
func (p *tab) complaints(allowed ...string) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, m := range p.messages {
		if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning && m.Type != chromedp.ConsoleException {
			continue
		}
		text := fmt.Sprintf("%s (%s)", m, m.URL)
		for _, a := range allowed {
			if strings.Contains(text, a) {
				continue next
			}
		}
		all = append(all, text)
	}
	return all
}

// find has what the other expressions use. A dialog hides what is below it.
const find = `
const squeeze = (text) => text.replace(/\s+/g, ' ').trim();
const within = () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document;
const all = (selector) => [...within().querySelectorAll(selector)].filter((e) => e.checkVisibility({visibilityProperty: true}));
const named = (selector, name) => all(selector).filter((e) => squeeze(e.getAttribute('aria-label') ?? e.textContent) === name);
const field = (label) => {
	const l = all('label').find((l) => l.control && squeeze(l.querySelector('span')?.firstChild?.textContent ?? l.textContent) === label);
	return l?.control;
};
`

// eval evaluates the body of an async function that has the helpers of find.
func eval[T any](p *tab, body string, args ...any) T {
	p.t.Helper()
	v, err := tryEval[T](p, body, args...)
	if err != nil {
		p.t.Fatalf("%s: %v", body, err)
	}
	return v
}

func tryEval[T any](p *tab, body string, args ...any) (T, error) {
	text, err := json.Marshal(append([]any{}, args...))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, wait.Limit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T]("(async (...args) => {"+find+body+"})(..."+string(text)+")", chromedp.EvalAwaitPromise))
}

// until waits until an expression is true. A page that is replaced meanwhile is asked again.
func (p *tab) until(expression string, args ...any) {
	p.t.Helper()
	var failed string // what the page said last of something that failed: it does so for seconds only
	harness.Eventually(p.t, func() error {
		said, err := tryEval[string](p, "return ("+expression+") ? 'yes' : all('.toast.bad').map((e) => e.textContent).join()", args...)
		if err != nil {
			return err
		}
		if said != "yes" {
			failed = cmp.Or(said, failed)
			return fmt.Errorf("never true: %s %v; the page said %q", expression, args, failed)
		}
		return nil
	})
}

// open shows a page of the console by its path, and waits until it has its heading.
func (p *tab) open(path string) {
	p.t.Helper()
	p.navigate(p.base + path)
	p.settled()
}

// withScript runs a script before those of each page that is loaded from now on.
func (p *tab) withScript(script string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		p.t.Fatal(err)
	}
}

// navigate shows any address.
func (p *tab) navigate(url string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(url)); err != nil {
		p.t.Fatalf("%s: %v", url, err)
	}
}

// settled waits until nothing on the page is being loaded for the first time.
func (p *tab) settled() {
	p.t.Helper()
	p.until(`document.readyState === 'complete' && all('h1, h2').length > 0 && all('.loading').length === 0`)
}

// click clicks on a button or a link when it can be clicked.
func (p *tab) click(name string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		done, err := tryEval[bool](p, `const e = named('button, a, summary', args[0]).find((e) => !e.disabled); e?.click(); return !!e`, name)
		if err == nil && !done {
			err = fmt.Errorf("there is no button or link %q", name)
		}
		return err
	})
}

// fill sets a field by its label.
func (p *tab) fill(label, value string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		done, err := tryEval[bool](p, `const e = field(args[0]);
			if (!e) return false;
			Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, args[1]);
			e.dispatchEvent(new Event('input', {bubbles: true}));
			e.dispatchEvent(new Event('change', {bubbles: true}));
			return e.value === args[1]`, label, value)
		if err == nil && !done {
			err = fmt.Errorf("there is no field %q that takes %q", label, value)
		}
		return err
	})
}

// says waits until a text is on the page.
func (p *tab) says(text string) {
	p.t.Helper()
	p.until(`squeeze(within().body?.innerText ?? within().innerText).includes(args[0])`, text)
}

// reaches waits until the tab is at a path with a prefix, and returns the rest.
func (p *tab) reaches(prefix string) (rest string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		here, err := tryEval[string](p, `return location.href`)
		if err != nil {
			return err
		}
		var found bool
		if rest, found = strings.CutPrefix(here, p.base+prefix); !found {
			return fmt.Errorf("the tab is at %s, want %s", here, p.base+prefix)
		}
		return nil
	})
	return rest
}

// moves is an expression: whether a video shows new pictures. It needs a variable that outlasts it.
const moves = `(() => {
	const v = document.querySelector('video#video');
	if (!v) return false;
	const frames = v.getVideoPlaybackQuality().totalVideoFrames;
	v.weirFirst ??= frames > 0 ? {frames, at: v.currentTime} : undefined;
	return v.weirFirst && frames > v.weirFirst.frames + 10 && v.currentTime > v.weirFirst.at;
})()`

// drop drops a file onto the middle of the page.
func (p *tab) drop(path string) {
	p.t.Helper()
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1}
	for _, kind := range []input.DispatchDragEventType{input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop} {
		if _, err := chromedp.Call(p.ctx, input.DispatchDragEvent, input.DispatchDragEventParams{Type: kind, X: 700, Y: 400, Data: data}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// inFrame waits until an expression is true in the first frame of the page, whatever its origin.
func (p *tab) inFrame(expression string) {
	p.t.Helper()
	var world *page.CreateIsolatedWorldResult // the same one each time, for what the expression remembers
	harness.Eventually(p.t, func() (err error) {
		if world == nil {
			if world, err = p.frame(); err != nil {
				return err
			}
		}
		response, err := chromedp.Call(p.ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: "!!" + expression, ContextID: world.ExecutionContextID})
		if err != nil { // the frame has another page by now
			world = nil
			return err
		}
		if string(response.Result.Value) != "true" {
			return fmt.Errorf("never true in the frame: %s", expression)
		}
		return nil
	})
}

// frame returns a world for scripts in the first frame of the page.
func (p *tab) frame() (*page.CreateIsolatedWorldResult, error) {
	tree, err := chromedp.Call(p.ctx, page.GetFrameTree, cdp.Empty{})
	if err != nil {
		return nil, err
	}
	if len(tree.FrameTree.ChildFrames) == 0 {
		return nil, errors.New("the page has no frame")
	}
	world, err := chromedp.Call(p.ctx, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: tree.FrameTree.ChildFrames[0].Frame.ID})
	return &world, err
}
