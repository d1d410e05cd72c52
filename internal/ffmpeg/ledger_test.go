package ffmpeg

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
)

// asking is one request of the property test.
type asking struct {
	came      int
	priority  Priority
	cancel    context.CancelFunc
	release   func() // set when granted
	cancelled bool
}

// In any order of requests, releases and cancellations: no more cores are granted than there are, a
// request waits only when none is free, and no request overtakes another one of its priority.
func TestLedgerRules(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { playLedger(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func playLedger(t *testing.T, random *rand.Rand) {
	total := 1 + random.IntN(6)
	l := newLedger(total)
	var waiting, granted []*asking // waiting in the order they came
	type result struct {
		a       *asking
		release func()
		err     error
	}
	results := make(chan result, 1000)
	settle := func() { // collect the results of this step, and check the rules
		synctest.Wait()
		var now []*asking
		for len(results) > 0 {
			got := <-results
			switch {
			case got.err == nil:
				got.a.release = got.release
				now = append(now, got.a)
			case !got.a.cancelled || !errors.Is(got.err, context.Canceled):
				t.Fatalf("error = %v, but nobody gave up", got.err)
			}
			waiting = slices.DeleteFunc(waiting, func(a *asking) bool { return a == got.a })
		}
		for _, a := range now {
			for _, w := range waiting {
				if w.priority > a.priority || w.priority == a.priority && w.came < a.came {
					t.Fatalf("request %d (%v) overtook %d (%v)", a.came, a.priority, w.came, w.priority)
				}
			}
		}
		granted = append(granted, now...)
		busy := len(granted)
		if busy > total {
			t.Fatalf("%d of %d cores are out", busy, total)
		}
		if s := l.stats(); s.Busy != busy || s.Cores != total || s.Waiting[0]+s.Waiting[1]+s.Waiting[2] != len(waiting) {
			t.Fatalf("stats = %+v, want %d busy and %d waiting", s, busy, len(waiting))
		}
		if len(waiting) > 0 && busy < total {
			t.Fatalf("%d requests wait while %d cores are free", len(waiting), total-busy)
		}
	}
	for came := range 200 {
		switch step := random.IntN(10); {
		case step < 5:
			ctx, cancel := context.WithCancel(t.Context())
			a := &asking{came: came, priority: Priority(random.IntN(3)), cancel: cancel}
			waiting = append(waiting, a)
			go func() {
				release, err := l.acquire(ctx, a.priority)
				results <- result{a, release, err}
			}()
		case step < 8 && len(granted) > 0:
			i := random.IntN(len(granted))
			granted[i].release()
			granted[i].release() // the second one counts for nothing
			granted = slices.Delete(granted, i, i+1)
		case len(waiting) > 0:
			a := waiting[random.IntN(len(waiting))]
			a.cancelled = true
			a.cancel()
		}
		settle()
	}
	for len(granted) > 0 || len(waiting) > 0 {
		for _, a := range granted {
			a.release()
			a.cancel()
		}
		granted = nil
		settle()
	}
	if s := l.stats(); s.Busy != 0 || s.Running != [3]int{} {
		t.Errorf("stats at the end = %+v", s)
	}
}

func TestLedgerOfAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := newLedger(1).acquire(ctx, Live); !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
}
