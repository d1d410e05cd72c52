package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// picture is what hls.js shows in a browser.
type picture struct {
	mu     sync.Mutex
	played float64
	last   time.Time
	still  time.Duration // since the mark
	marked bool
}

// show lets hls.js play a stream through the balancer.
func (r *rig) show(ctx context.Context, s *stream) *picture {
	r.t.Helper()
	b, p := harness.NewBrowser(r.t, r.t.TempDir()), &picture{}
	address, err := json.Marshal(r.entry.url + "/hls/" + s.playback + "/index.m3u8")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := chromedp.Do(b.Ctx, chromedp.Navigate(b.URL+"/live.html")); err != nil {
		r.t.Fatal(err)
	}
	if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any]("watch("+string(address)+")")); err != nil {
		r.t.Fatal(err)
	}
	r.all.Go(func() {
		for ctx.Err() == nil {
			// Before it is asked: the answer of a busy browser is late.
			now := time.Now()
			if played, err := chromedp.Run(b.Ctx, chromedp.Evaluate[float64]("watched().played")); err == nil {
				p.shown(played, now)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	harness.Eventually(r.t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.played < 3 {
			return fmt.Errorf("hls.js has shown %.1f s", p.played)
		}
		return nil
	})
	return p
}

func (p *picture) shown(played float64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marked {
		p.still = max(p.still, now.Sub(p.last))
	}
	if played > p.played {
		p.played, p.last = played, now
	}
}

// mark begins to measure how long it stands still, unmark ends that.
func (p *picture) mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked, p.still, p.last = true, 0, time.Now()
}

func (p *picture) unmark() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked = false
	return p.still
}
