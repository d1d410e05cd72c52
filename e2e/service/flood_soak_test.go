//go:build soak

package service

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestFloodSoak is TestFlood for a minute, with the memory and the good client's
// waiting measured. `make soak-flood` runs it.
func TestFloodSoak(t *testing.T) {
	plain := harness.Shipped(t)
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Binary = plain
		ops := harness.FreeAddr(t)
		w.Start("--ops", ops)
		soak(t, newFlood(t, w, load{conns: 50, rate: 500, slow: 200}), "http://"+ops)
		w.Stop()
	})
}

const soakLong = time.Minute

func soak(t *testing.T, f *flood, ops string) {
	t.Helper()
	f.calm(15 * time.Second) // warm up
	quiet := f.calm(soakLong)
	before := harness.Memory(t, f.w)
	harness.Profile(t, ops, "heap", "before")
	began := time.Now()
	var profiling sync.WaitGroup
	profiling.Go(func() { harness.Profile(t, ops, "profile?seconds=30", "flood") })
	flooded := f.run(soakLong, true)
	profiling.Wait()
	// The slow clients have taken longer than the flood to go.
	if rest := time.Until(began.Add(2 * soakLong)); rest > 0 {
		time.Sleep(rest)
	}
	after := harness.Memory(t, f.w)
	harness.Profile(t, ops, "heap", "after")
	t.Logf("memory %d MiB before, %d MiB %v after the flood (%.2f times)", before>>20, after>>20, time.Since(began.Add(soakLong)).Round(time.Second), float64(after)/float64(before))
	if after > before*12/10 {
		t.Errorf("memory grew from %d to %d bytes, more than 1.2 times", before, after)
	}
	if want := int(soakLong.Seconds()) * f.load.rate; f.sent < want*9/10 {
		t.Errorf("only %d of %d requests of the flood could be sent", f.sent, want)
	}
	for _, request := range append(goodRequests, "") {
		t.Logf("the good client waited for %-6s (p50, p99, most): without the flood %v, with it %v", cmp.Or(request, "all"), quantiles(quiet, request), quantiles(flooded, request))
	}
	limit := max(3*quantile(quiet, "", 0.99), 20*time.Millisecond)
	if p99 := quantile(flooded, "", 0.99); p99 > limit {
		t.Errorf("p99 of the good client is %v in the flood, want at most %v", p99, limit)
	}
}

// calm is the good client alone.
func (f *flood) calm(long time.Duration) []goodReply {
	ctx, cancel := context.WithTimeout(f.t.Context(), long)
	defer cancel()
	return f.good(ctx)
}

// quantile is of all waits for a request; "" = for any.
func quantile(all []goodReply, request string, q float64) time.Duration {
	var took []time.Duration
	for _, w := range all {
		if request == "" || w.request == request {
			took = append(took, w.took)
		}
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

func quantiles(all []goodReply, request string) []time.Duration {
	var few []time.Duration
	for _, q := range []float64{0.5, 0.99, 1} {
		few = append(few, quantile(all, request, q).Round(10*time.Microsecond))
	}
	return few
}
