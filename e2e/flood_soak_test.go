//go:build soak

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFloodSoak is TestFlood for a minute, with the memory and the good client's
// waiting measured. `make soak-flood` runs it.
func TestFloodSoak(t *testing.T) {
	plain := shipped(t)
	eachEngine(t, func(t *testing.T, w *weir) {
		w.binary = plain
		ops := freeAddr(t)
		w.start("--ops", ops)
		soak(t, newFlood(t, w), "http://"+ops)
		w.stop()
	})
}

const soakLong = time.Minute

func soak(t *testing.T, f *flood, ops string) {
	t.Helper()
	f.calm(15 * time.Second) // warm up
	quiet := f.calm(soakLong)
	before := memory(t, f.w)
	profile(t, ops, "heap", "before")
	began := time.Now()
	var profiling sync.WaitGroup
	profiling.Go(func() { profile(t, ops, "profile?seconds=30", "flood") })
	flooded := f.run(soakLong, true)
	profiling.Wait()
	// The slow clients have taken longer than the flood to go.
	if rest := time.Until(began.Add(2 * soakLong)); rest > 0 {
		time.Sleep(rest)
	}
	after := memory(t, f.w)
	profile(t, ops, "heap", "after")
	t.Logf("memory %d MiB before, %d MiB %v after the flood (%.2f times)", before>>20, after>>20, time.Since(began.Add(soakLong)).Round(time.Second), float64(after)/float64(before))
	if after > before*12/10 {
		t.Errorf("memory grew from %d to %d bytes, more than 1.2 times", before, after)
	}
	if want := int(soakLong.Seconds()) * floodRate; f.sent < want*9/10 {
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
func (f *flood) calm(long time.Duration) []wait {
	ctx, cancel := context.WithTimeout(f.t.Context(), long)
	defer cancel()
	return f.good(ctx)
}

// quantile is of all waits for a request; "" = for any.
func quantile(all []wait, request string, q float64) time.Duration {
	var took []time.Duration
	for _, w := range all {
		if request == "" || w.request == request {
			took = append(took, w.took)
		}
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

func quantiles(all []wait, request string) []time.Duration {
	var few []time.Duration
	for _, q := range []float64{0.5, 0.99, 1} {
		few = append(few, quantile(all, request, q).Round(10*time.Microsecond))
	}
	return few
}

// memory is how much of the machine's memory the process holds, in bytes.
func memory(t *testing.T, w *weir) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// profile keeps a profile in the folder WEIR_E2E_PROFILES, if that is set, for
// whoever wants to know where the memory and the time go.
func profile(t *testing.T, ops, kind, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_E2E_PROFILES")
	if dir == "" {
		return
	}
	answer, err := http.Get(ops + "/debug/pprof/" + kind)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+name), text, 0o600); err != nil {
		t.Error(err)
	}
}
