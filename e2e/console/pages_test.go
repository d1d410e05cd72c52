package console

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
)

// look is a size of the window and a color scheme.
type look struct {
	name          string
	width, height int64
	scheme        string
}

var allLooks = []look{
	{"desktop-light", 1280, 900, "light"},
	{"desktop-dark", 1280, 900, "dark"},
	{"phone-light", 390, 844, "light"},
	{"phone-dark", 390, 844, "dark"},
}

// looks are all of them for screenshots, and otherwise the first or the last, in turn: a look of
// axe-core at a page takes a second.
func (p *tab) looks() []look {
	if os.Getenv("WEIR_SCREENSHOTS") != "" {
		return allLooks
	}
	p.inspected++
	if p.inspected%2 == 1 {
		return allLooks[3:]
	}
	return allLooks[:1]
}

// TestPages opens every page below a prefix of a proxy, follows the links, and lets axe-core look.
func TestPages(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	proxy := newPrefix(t)
	base := proxy.URL + prefix + "/"
	w.Start("--rtmp", harness.FreeAddr(t), "--public-url", strings.TrimSuffix(base, "/"))
	proxy.to(w.URL)
	p := newTab(t, harness.NewBrowser(t, t.TempDir()), base)
	p.firstLoad("login")
	p.inspect("login")
	p.navigate(harness.Match(t, w.Greeting.String(), `set password +(\S+)`))
	p.inspect("set-password")
	p.enter()
	p.inspect("overview-empty")
	p.firstLoad("")

	found := map[string]string{} // links, and where
	pages := fill(w)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		path := pages[name]
		p.open(path)
		p.inspect(name)
		for _, link := range eval[[]string](p, `return [...document.links].map((a) => a.href.split('#')[0])`) {
			if strings.HasPrefix(link, proxy.URL) && !strings.HasPrefix(link, base) {
				t.Errorf("%s leads out of the prefix: %s", path, link)
			} else if strings.HasPrefix(link, base) && !strings.Contains(path, "docs") {
				found[link] = path
			}
		}
	}
	links := slices.Sorted(maps.Keys(found))
	for _, broken := range eval[[]string](p, `const bad = [];
		for (const link of args[0]) {
			const response = await fetch(link);
			if (!response.ok) bad.push(link + ' ' + response.status);
		}
		return bad`, links) {
		t.Errorf("a link leads nowhere: %s, on the page %q", broken, found[strings.Fields(broken)[0]])
	}
	t.Logf("%d links of the console lead somewhere", len(links))
	for _, said := range p.complaints() {
		t.Errorf("the browser's console has: %s", said)
	}
	p.withoutScripts(pages)
	// Browsers have six connections to a server. The page before may not be gone at once.
	if n := proxy.followers.Load(); n > 3 {
		t.Errorf("%d pages followed the events at the same time; only one was shown", n)
	}
	w.Stop()
}

// withoutScripts opens pages whose player and charts can't be loaded, and tries again when they can.
func (p *tab) withoutScripts(pages map[string]string) {
	p.t.Helper()
	block := func(block bool) {
		p.setCache(!block)
		if _, err := chromedp.Call(p.ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{
			{URLPattern: "*://*:*/*/stage.js", Block: block}, {URLPattern: "*://*:*/*/uPlot.esm.js", Block: block},
		}}); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, part := range []struct{ page, name, there string }{
		{"asset", "player", `document.querySelector('video')`},
		{"usage", "chart", `document.querySelector('canvas')`},
	} {
		block(true)
		p.open(pages[part.page])
		p.says("The " + part.name + " could not be loaded.")
		p.screenshot("without-" + part.name)
		block(false)
		p.click("Try again")
		p.until(part.there)
	}
}

// fill makes something for every page to show, and returns the pages.
func fill(w *harness.Weir) map[string]string {
	w.T.Helper()
	create := func(path string, body map[string]any) string {
		var made struct {
			ID   string
			Task struct{ ID string }
		}
		w.Must("POST", path, body, &made)
		return made.ID + made.Task.ID
	}
	bucket := s3test.Start(w.T)
	origin := harness.NewOrigin(w.T, harness.TinyClip(w.T))
	task := create("/api/asset/upload/url", map[string]any{"name": "A film", "url": origin.URL + "/film.mp4"})
	stream := create("/api/stream", map[string]any{"name": "The show"})
	webhook := create("/api/webhook", map[string]any{"name": "my shop", "url": origin.URL + "/hook", "events": []string{"asset.ready"}})
	create("/api/multistream/target", map[string]any{"name": "Elsewhere", "url": "rtmp://203.0.113.1/live/key"})
	create("/api/object-store", map[string]any{"name": "archive", "url": bucket.URL()})
	w.Must("POST", "/api/access-control/signing-key", nil, nil)
	w.Completed(task)
	var assets []struct{ ID, PlaybackID string }
	w.Must("GET", "/api/asset", nil, &assets)
	asset := assets[0]
	for _, text := range []map[string]any{
		{"language": "en", "default": true, "text": "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"},
		{"kind": "chapters", "language": "en", "text": "WEBVTT\n\n00:00.000 --> 00:01.000\nThe only one\n"},
	} {
		text["type"] = "text"
		w.Must("POST", "/api/asset/"+asset.ID+"/track", text, nil)
	}
	return map[string]string{
		"overview": "", "streams": "streams", "stream-new": "streams?create=1", "stream": "streams/" + stream, "live": "streams/" + stream + "/live",
		"stream-health": "streams/" + stream + "?tab=health", "stream-targets": "streams/" + stream + "?tab=targets",
		"stream-sessions": "streams/" + stream + "?tab=sessions", "stream-clips": "streams/" + stream + "?tab=clips", "stream-events": "streams/" + stream + "?tab=events",
		"assets": "assets", "asset": "assets/" + asset.ID, "tasks": "tasks", "task-new": "tasks/new", "task": "tasks/" + task,
		"webhooks": "webhooks", "webhook-new": "webhooks?create=1", "webhook": "webhooks/" + webhook, "access": "access", "keys": "keys",
		"targets": "targets", "stores": "stores", "usage": "usage", "users": "users", "nodes": "nodes", "queue": "queue",
		"account": "account", "docs": "docs", "docs-page": "docs/webhooks", "docs-api": "docs/api", "play": "play/" + asset.PlaybackID,
	}
}

// inspect lets axe-core look at the page in several looks, and keeps a picture of each.
func (p *tab) inspect(name string) {
	p.t.Helper()
	axe, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		p.t.Fatalf("axe-core is not installed; run: make test: %v", err)
	}
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[any](string(axe)+"; null")); err != nil {
		p.t.Fatal(err)
	}
	for _, l := range p.looks() {
		p.look(l)
		p.screenshot(l.name + "-" + name)
		for _, finding := range eval[[]string](p, `const {violations} = await axe.run(document, {resultTypes: ['violations']});
			return violations.filter((v) => ['serious', 'critical'].includes(v.impact))
				.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).join('; '))`) {
			p.t.Errorf("%s, %s: axe-core finds %s", name, l.name, finding)
		}
		if wide := eval[string](p, `const over = document.documentElement.scrollWidth - innerWidth; return over > 0 ? over + ' px' : ''`); wide != "" {
			p.t.Errorf("%s, %s: the page is %s wider than the window", name, l.name, wide)
		}
	}
	p.look(allLooks[0])
}

// look sets the size of the window and the color scheme.
func (p *tab) look(l look) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(l.width, l.height)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}); err != nil {
		p.t.Fatal(err)
	}
}

// timed makes pages note when they have their content: a heading, and nothing that is loading.
func (p *tab) timed() {
	p.t.Helper()
	p.withScript(`{
		let had = false;
		new MutationObserver(() => {
			const has = document.querySelector('main h1') !== null && document.querySelector('.loading') === null;
			if (has && !had) globalThis.weirContent = performance.now();
			had = has;
		}).observe(document, {subtree: true, childList: true});
		new PerformanceObserver((list) => list.getEntries().forEach((e) => globalThis.weirBusy = e.startTime + e.duration)).observe({type: 'longtask', buffered: true});
	}`)
}

// content is when the page had its content, in milliseconds after the browser began to load it.
func (p *tab) content() float64 {
	p.t.Helper()
	p.settled()
	return eval[float64](p, `return globalThis.weirContent ?? 0`)
}

// setCache sets whether the browser uses its cache.
func (p *tab) setCache(on bool) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: !on}); err != nil {
		p.t.Fatal(err)
	}
}

// firstLoad prints what a page costs somebody who comes for the first time with a slow machine.
func (p *tab) firstLoad(path string) {
	p.t.Helper()
	slow := func(rate float64, cache bool) {
		p.setCache(cache)
		if _, err := chromedp.Call(p.ctx, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: rate}); err != nil {
			p.t.Fatal(err)
		}
	}
	p.timed()
	slow(4, false)
	p.open(path)
	content := p.content()
	sum := eval[struct{ Page, API, Files, Requests, Paint, Busy float64 }](p, `
		const loads = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
		const size = (list) => list.reduce((sum, e) => sum + e.transferSize, 0);
		const api = loads.filter((e) => /\/(api|session)\//.test(e.name));
		return {page: size(loads), api: size(api), files: size(loads) - size(api), requests: loads.length, busy: globalThis.weirBusy ?? 0,
			paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0}`)
	p.t.Logf("first load of /%s: %.1f KiB (files %.1f, API %.1f) in %.0f requests; at 4x CPU slowdown: first paint %.0f ms, content %.0f ms, interactive %.0f ms",
		path, sum.Page/1024, sum.Files/1024, sum.API/1024, sum.Requests, sum.Paint, content, max(content, sum.Busy, sum.Paint))
	slow(1, true)
}
