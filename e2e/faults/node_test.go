package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/store/pgtest"
)

// node is a weir and what is between it and the others.
type node struct {
	*harness.Weir
	name      string
	rtmp, ops string
	args      []string
	database  [2]link
	bucket    link
	inbound   link // of the other nodes to it
}

var nodeNames = []string{"a", "b", "c"}

// startNode starts one.
func (r *rig) startNode(t *testing.T, i int) *node {
	t.Helper()
	n := &node{Weir: harness.NewWeir(t), name: nodeNames[i], rtmp: harness.FreeAddr(t), ops: harness.FreeAddr(t)}
	n.Binary = r.binary
	for j, server := range []*pgtest.Server{r.pair.Primary, r.pair.Standby} {
		n.database[j] = r.proxy.to(fmt.Sprintf("%s-database-%d", n.name, j), server.Address())
	}
	n.bucket = r.proxy.to(n.name+"-bucket", strings.TrimPrefix(r.store.Endpoint, "http://"))
	n.Database = r.pair.URL(n.database[0].addr, n.database[1].addr)
	n.Env = append(n.Env, "WEIR_STORAGE="+strings.Replace(r.store.URL(), strings.TrimPrefix(r.store.Endpoint, "http://"), n.bucket.addr, 1))
	// The address behind the proxy is known when the node has started, and the proxy before.
	n.inbound = link{r.proxy, n.name + "-inbound", harness.FreeAddr(t)}
	n.args = []string{"--rtmp", n.rtmp, "--ops", n.ops, "--node-url", "http://" + n.inbound.addr, "--workers", "1"}
	n.Start(n.args...)
	r.proxy.do(http.MethodPost, "/proxies", map[string]any{
		"name": n.inbound.name, "listen": n.inbound.addr, "upstream": strings.TrimPrefix(n.URL, "http://"), "enabled": true,
	})
	return n
}

// cutDatabase loses all bytes between the node and the database, and keeps the connections.
func (n *node) cutDatabase() {
	for _, l := range n.database {
		l.swallow(there, back)
	}
}

func (n *node) mendDatabase() {
	for _, l := range n.database {
		l.heal("swallow", there, back)
	}
}

// loops returns how many goroutines there are by what they run and who started them.
func (n *node) loops(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/debug/pprof/goroutine?debug=2", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return goroutines(string(text)), nil
}

var arguments = regexp.MustCompile(`\([^()]*\)$`)

// goroutines counts those of a dump.
func goroutines(dump string) map[string]int {
	count := map[string]int{}
	for stack := range strings.SplitSeq(dump, "\n\n") {
		lines := strings.Split(strings.TrimSpace(stack), "\n")
		runs, by := "", ""
		for _, line := range lines[1:] {
			if rest, ok := strings.CutPrefix(line, "created by "); ok {
				by, _, _ = strings.Cut(rest, " in goroutine")
				break
			}
			if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "sync.(*WaitGroup).Go") {
				runs = arguments.ReplaceAllString(line, "")
			}
		}
		if runs != "" {
			count[runs+" < "+by]++
		}
	}
	return count
}

// steady returns the goroutines that were there each time: those of requests come and go.
func (n *node) steady(t *testing.T, times int) map[string]int {
	t.Helper()
	var least map[string]int
	for range times {
		var now map[string]int
		harness.Eventually(t, func() (err error) {
			now, err = n.loops(t.Context())
			return err
		})
		if least == nil {
			least = now
		}
		for what, count := range least {
			if least[what] = min(count, now[what]); least[what] == 0 {
				delete(least, what)
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	return least
}

// passing are goroutines of which there may be fewer or more: those of connections and requests, and
// tickers, whose loops are counted.
var passing = regexp.MustCompile(`TickerWithInitialTick|serviceutil\.CancellableSleep|net/http|internal/poll|os/exec|pprof|database/sql|minio|playback\.\(\*(edge|Server)|context\.|rtmp\.|runtime\.|singleflight|pgxpool|ingest\.\(\*.*(serve|conn)`)

// elected are goroutines of which one node has all: the leader of those that run jobs.
var elected = regexp.MustCompile(`river/internal/maintenance`)

// ofLeader adds up the goroutines of the leader over nodes, whichever it is.
func ofLeader(nodes []map[string]int) map[string]int {
	sum := map[string]int{}
	for _, count := range nodes {
		for what, n := range count {
			if elected.MatchString(what) && !strings.Contains(what, "QueueMaintainerLeader") { // of which each has one
				sum[what] += n
				delete(count, what)
			}
		}
	}
	return sum
}

// gone returns which goroutines were there before and are not now.
func gone(before, now map[string]int) (list []string) {
	for what, n := range before {
		if now[what] < n && !passing.MatchString(what) {
			list = append(list, fmt.Sprintf("%s: %d of %d", what, now[what], n))
		}
	}
	return list
}

// writer changes a stream at a node again and again.
type writer struct {
	n      *node
	stream string

	mu        sync.Mutex
	succeeded []time.Time
	failed    map[int]int // by status; 0 = no response
}

func (w *writer) run(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for i := 0; ctx.Err() == nil; i++ {
		status := 0
		r, err := http.NewRequestWithContext(ctx, http.MethodPatch, w.n.URL+"/api/stream/"+w.stream, strings.NewReader(fmt.Sprintf(`{"name":"%s %d"}`, w.n.name, i)))
		if err == nil {
			r.Header.Set("Authorization", "Bearer "+w.n.Key)
			r.Header.Set("Content-Type", "application/json")
			if response, err := client.Do(r); err == nil {
				status = response.StatusCode
				_ = response.Body.Close()
			}
		}
		w.mu.Lock()
		if status/100 == 2 {
			w.succeeded = append(w.succeeded, time.Now())
		} else if ctx.Err() == nil {
			w.failed[status]++
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// since returns the first success after a moment; zero = there was none.
func (w *writer) since(at time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ok := range w.succeeded {
		if ok.After(at) {
			return ok
		}
	}
	return time.Time{}
}

// refused returns the writes that failed, by status, and forgets them.
func (w *writer) refused() map[int]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.failed
	w.failed = map[int]int{}
	return failed
}
