//go:build bench

package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/wait"
	"weir/internal/weir"
)

var (
	rows    = flag.Int("rows", 1_000_000, "streams in the large database")
	seconds = flag.Int("seconds", 5, "length of one measurement")
	rounds  = flag.Int("rounds", 3, "measurements of each kind, of which the median counts")
	engines = flag.String("engines", "sqlite,postgres", "databases to measure on")
)

const (
	smallRows   = 1000
	distinctIDs = 10_000
	creator     = "creator-7"
	apiKey      = "weir_benchmark_key_of_sufficient_length_0001"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(s3test.Runner{M: m})) }

// TestAPI measures, in turn, a bare net/http handler that answers a stored body,
// and weir's reads, lists and writes, on both engines, with few and with many
// rows. Everything that a request passes in service is on: access log, key check,
// rate limiter.
func TestAPI(t *testing.T) {
	bare := startBare(t)
	fmt.Printf("%-9s %9s  %-28s %9s %8s %9s %9s\n", "engine", "rows", "request", "req/s", "of bare", "µs CPU", "MB")
	for engine := range strings.SplitSeq(*engines, ",") {
		cost := map[string]map[int]float64{}
		for _, n := range []int{smallRows, *rows} {
			w := startWeir(t, engine, n)
			for _, kind := range []string{"get", "list", "list by creatorId", "create"} {
				r := w.measure(t, kind, bare)
				fmt.Printf("%-9s %9d  %-28s %9.0f %8.2f %9.0f %9.0f\n", engine, n, kind, r.perSecond, r.ofBare, r.cpu*1e6, w.megabytes())
				if cost[kind] == nil {
					cost[kind] = map[int]float64{}
				}
				cost[kind][n] = r.cpu
				if kind == "get" && engine == "sqlite" && r.ofBare < 0.4 {
					t.Errorf("%s of %d rows: %.2f of the bare handler, want 0.40 or more", kind, n, r.ofBare)
				}
			}
			w.visibility(t)
			w.stop()
		}
		for _, kind := range []string{"list", "list by creatorId"} {
			ratio := cost[kind][*rows] / cost[kind][smallRows]
			fmt.Printf("%-9s %-28s CPU at %d rows is %.2f of that at %d\n", engine, kind, *rows, ratio, smallRows)
			if ratio > 1.5 {
				t.Errorf("%s on %s: %.2f times the CPU, want at most 1.5", kind, engine, ratio)
			}
		}
	}
}

// service is a running weir with streams in it.
type service struct {
	*process
	url      string
	ids      []string
	database string
	data     string
	binary   string
	postgres bool
}

func startWeir(t *testing.T, engine string, n int) *service {
	t.Helper()
	s := &service{data: t.TempDir(), binary: buildWeir(t), postgres: engine == "postgres"}
	s.database = "sqlite:" + filepath.Join(s.data, "weir.db")
	if s.postgres {
		s.database = pgtest.Start(t)
	}
	secret := bytes.Repeat([]byte{5}, 32)
	if err := os.WriteFile(filepath.Join(s.data, "secret"), fmt.Appendf(nil, "%x\n", secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve(t) // makes the account
	s.stop()
	start := time.Now()
	s.fill(t, secret, n)
	fmt.Printf("# %s: %d streams written in %v\n", engine, n, time.Since(start).Round(time.Second))
	s.serve(t)
	return s
}

func (s *service) serve(t *testing.T) {
	t.Helper()
	addr := freeAddr(t)
	s.url = "http://" + addr
	s.process = startProcess(t, filepath.Join(s.data, "log"), s.binary, "serve", "--data", s.data, "--database", s.database,
		"--http", addr, "--ops", "", "--api-key", apiKey, "--rate-limit", "1000000", "--account-rate-limit", "1000000")
	waitFor(t, s.url+"/readyz")
}

func (s *service) fill(t *testing.T, secret []byte, n int) {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, s.database, store.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	u, err := st.FirstUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	caller := &weir.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID, TokenName: "benchmark"}
	writers := 1
	if s.postgres {
		writers = 4 // SQLite has one anyway
	}
	var mu sync.Mutex
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for left := n / writers; left > 0; left -= batch {
				ids, err := writeStreams(ctx, st, caller, min(left, batch))
				if err != nil {
					return err
				}
				mu.Lock()
				s.ids = append(s.ids, ids...)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	rand.Shuffle(len(s.ids), func(i, j int) { s.ids[i], s.ids[j] = s.ids[j], s.ids[i] })
	s.ids = s.ids[:min(len(s.ids), distinctIDs)]
}

// batch is how many streams are written in one transaction.
const batch = 5000

func writeStreams(ctx context.Context, st *store.Store, caller *weir.Caller, n int) (ids []string, err error) {
	err = st.Tx(ctx, func(tx *store.Tx) error {
		for i := range n {
			body := weir.NewStream{Name: fmt.Sprintf("stream %d", i), CreatorID: &weir.CreatorID{Type: "unverified", Value: fmt.Sprintf("creator-%d", i%50)}}
			stream, err := body.Stream(caller, time.Now())
			if err != nil {
				return err
			}
			if err := tx.CreateStream(ctx, &stream); err != nil {
				return err
			}
			ids = append(ids, stream.ID)
		}
		return nil
	})
	return ids, err
}

// result is the median of several measurements.
type result struct {
	perSecond float64
	ofBare    float64
	cpu       float64 // seconds per request, of weir and its database
}

func (s *service) measure(t *testing.T, kind string, bare *bareServer) result {
	t.Helper()
	script := wrkScript(t, kind, s.ids)
	var all []result
	for range *rounds {
		reference := runWrk(t, bare.url, wrkScript(t, "get", s.ids))
		before := s.cpuSeconds(t)
		got := runWrk(t, s.url, script)
		used := s.cpuSeconds(t) - before
		all = append(all, result{got.perSecond, got.perSecond / reference.perSecond, used / got.requests})
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(a.ofBare, b.ofBare) })
	return all[len(all)/2]
}

func (s *service) cpuSeconds(t *testing.T) float64 {
	t.Helper()
	used := s.process.cpuSeconds(t)
	if s.postgres {
		used += cpuOfName(t, "postgres")
	}
	return used
}

// visibility measures how long it takes until this process sees what another one
// changed in the database.
func (s *service) visibility(t *testing.T) {
	t.Helper()
	ask := func(path, key string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	until := func(what string, done func() bool) {
		start := time.Now()
		wait.Until(t, what+" by another process shows", done)
		took := time.Since(start)
		fmt.Printf("# %s by another process shows after %v\n", what, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("%s by another process shows after %v, want 1 s at most", what, took)
		}
	}
	common := []string{"--data", s.data, "--database", s.database}
	out := runCommand(t, s.binary, append([]string{"key", "create", "short-lived"}, common...)...)
	fields := strings.Fields(out)
	key, id := fields[2], fields[len(fields)-1]
	if status, _ := ask("/api/stream?limit=1", key); status != http.StatusOK {
		t.Fatalf("new key: status %d", status)
	}
	runCommand(t, s.binary, append([]string{"key", "revoke", id}, common...)...)
	until("a key revoked", func() bool { status, _ := ask("/api/stream?limit=1", key); return status == http.StatusUnauthorized })

	st, err := store.Open(t.Context(), s.database, store.Options{Secret: bytes.Repeat([]byte{5}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ask("/api/stream/"+s.ids[0], apiKey)
	if err := st.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.ids[0], func(x *weir.Stream) error { x.Name = "changed"; return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	until("a stream changed", func() bool {
		_, body := ask("/api/stream/"+s.ids[0], apiKey)
		var stream struct{ Name string }
		return json.Unmarshal(body, &stream) == nil && stream.Name == "changed"
	})
}
