//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/wait"
)

var (
	crowdViewers = flag.String("crowd-viewers", "100,1000,5000", "numbers of viewers behind a cache")
	crowdDirect  = flag.Int("crowd-direct", 2000, "viewers of weir itself: it lets one wait for nine files that it may have open")
	crowdEdges   = flag.Int("crowd-edges", 3, "nodes before the origin, which share the viewers")
	crowdSeconds = flag.Int("crowd-seconds", 10, "length of a measurement")
	crowdPart    = flag.Float64("crowd-part", 1, "duration of the parts, in seconds")
	crowdCaches  = flag.String("crowd-caches", "varnish,edge", "what stands between weir and the crowd")
	crowdSilent  = flag.Int("crowd-silent", 20, "how many seconds the encoder pauses")
)

// TestCrowd lets a crowd watch one stream with low latency through Varnish, as packaging/cdn sets it up,
// and through other nodes of weir, public and gated. It measures what reaches the origin and how long
// a part takes to its last viewer, also in the moments when all ask for the same: before the show, while
// the encoder pauses, and when the origin has died. In the end the crowd comes to weir directly.
//
// A viewer here waits for the next part, fetches it, and does not look at it; see crowdviewer_test.go. The
// generator shares the machine with the servers, so its lag is printed.
func TestCrowd(t *testing.T) {
	b := newCrowdBench(t)
	var numbers []int
	for text := range strings.SplitSeq(*crowdViewers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	most := slices.Max(numbers)
	fmt.Printf("%-28s %8s %12s %14s %14s %26s %10s %8s %8s\n", "", "viewers", "requests/s", "at the origin", "CPU s: origin,",
		"part to last byte, ms:", "generator", "failed", "others")
	fmt.Printf("%-28s %8s %12s %14s %14s %26s %10s %8s %8s\n", "", "", "", "a second", "cache / 1,000", "p50 / p95 / p99", "lag p99", "", "%")
	for cache := range strings.SplitSeq(*crowdCaches, ",") {
		for _, gated := range []bool{false, true} {
			for _, n := range numbers {
				t.Run(fmt.Sprintf("%s/%t/%d", cache, gated, n), func(t *testing.T) {
					s := b.start(t, cache, gated)
					defer s.stop()
					name := cache + map[bool]string{false: ", public", true: ", gated"}[gated]
					if n == most {
						c := s.crowd(t, n)
						c.ask(func() string { return s.master })
						b.measure(t, s, c, name+", before the show")
						c.stop()
					}
					s.publish(t)
					c := s.crowd(t, n)
					c.watch()
					b.measure(t, s, c, name)
					if n == most {
						s.pause()
						b.measureFor(t, s, c, name+", the encoder pauses", time.Duration(*crowdSilent)*time.Second)
						s.publish(t)
						b.measure(t, s, c, name+", it is back")
						s.kill(t)
						b.measure(t, s, c, name+", the origin is dead")
					}
					c.stop()
				})
			}
		}
	}
	t.Run("direct", func(t *testing.T) {
		s := b.start(t, "none", false)
		defer s.stop()
		s.publish(t)
		idle := s.origin.megabytes()
		c := s.crowd(t, *crowdDirect)
		c.watch()
		b.measure(t, s, c, "weir itself")
		fmt.Printf("memory: %.1f KB for each of %d viewers\n", 1024*(s.origin.megabytes()-idle)/float64(*crowdDirect), *crowdDirect)
		c.stop()
	})
}

func (b *crowdBench) measure(t *testing.T, s *crowdServers, c *crowd, name string) {
	t.Helper()
	b.measureFor(t, s, c, name, time.Duration(*crowdSeconds)*time.Second)
}

// measureFor prints what a crowd causes.
func (b *crowdBench) measureFor(t *testing.T, s *crowdServers, c *crowd, name string, length time.Duration) {
	t.Helper()
	c.begin()
	arrived, origin, cache := s.arrived(t), s.originCPU(t), s.cacheCPU(t)
	foreign := startForeign(t, func(t *testing.T) float64 { return s.originCPU(t) + s.cacheCPU(t) })
	if err := sleep(t.Context(), length); err != nil {
		t.Fatal(err)
	}
	r := c.end()
	perThousand := func(seconds float64) float64 { return 1000 * seconds / max(1, float64(r.requests)) }
	fmt.Printf("%-28s %8d %12.0f %14.1f %14s %26s %10.1f %8d %8.1f\n", name, len(c.viewers), float64(r.requests)/length.Seconds(),
		(s.arrived(t)-arrived)/length.Seconds(),
		fmt.Sprintf("%.3f, %.3f", perThousand(s.originCPU(t)-origin), perThousand(s.cacheCPU(t)-cache)),
		r.delays(), 1000*r.lag.Seconds(), r.failed, 100*foreign())
}

// countOf adds up a metric of weir, over its labels.
func countOf(t *testing.T, ops, name string) (sum float64) {
	t.Helper()
	response, err := http.Get("http://" + ops + "/metrics")
	if err != nil {
		return 0 // it is dead
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (strings.Contains(rest, `/hls/`) || strings.HasPrefix(rest, " ")) {
			value, _ := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
			sum += value
		}
	}
	return sum
}

// post sends a request to the API.
func post(t *testing.T, method, address string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	wait.NoError(t, func() error {
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, address, strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+apiKey)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			said, _ := io.ReadAll(response.Body)
			return fmt.Errorf("%s %s: %s %s", method, address, response.Status, said)
		}
		if into == nil {
			return nil
		}
		return json.NewDecoder(response.Body).Decode(into)
	})
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
