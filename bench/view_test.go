//go:build bench

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/view"
	"weir/internal/wait/linetest"
	"weir/internal/weir"
)

var (
	viewers     = flag.Int("viewers", 10_000, "viewers who watch at once")
	viewSeconds = flag.Int("view-seconds", 44, "how long they are counted")
	roundTrip   = flag.Duration("round-trip", 2*time.Millisecond, "round trip to PostgreSQL in the rows that have one")
)

const (
	// viewsAtOnce are the views that view.Counter writes in a transaction.
	viewsAtOnce = 1000
	// beatOfViewers is the interval at which viewers request segments here, and at which views were
	// written when each was a statement.
	beatOfViewers = 2 * time.Second
	// flushTimeout was the limit of the transaction then.
	flushTimeout = 10 * time.Second
)

// TestViews measures what it costs the database that many watch: with a statement for each view every
// two seconds, and as view.Counter does it.
func TestViews(t *testing.T) {
	fmt.Printf("%-22s %-26s %12s %9s %9s %22s %12s\n",
		"database", "views are written", "statements/s", "rows/s", "commits/s", "transaction: median, max", "µs CPU a view")
	for engine := range strings.SplitSeq(*engines, ",") {
		options := store.Options{Secret: bytes.Repeat([]byte{5}, 32), NodeID: "bench"}
		connect := func(t *testing.T, delay time.Duration) *store.Store {
			address := storetest.SQLite(t, store.Open, options)
			if engine == "postgres" {
				address = delayed(t, storetest.PostgreSQL(t, store.Open, options), delay)
			}
			st, err := store.Open(t.Context(), address, options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(st.Close)
			return st
		}
		delays := []time.Duration{0}
		if engine == "postgres" {
			delays = append(delays, *roundTrip)
		}
		for _, delay := range delays {
			name := engine
			if delay > 0 {
				name += fmt.Sprintf(" at %s", delay)
			}
			t.Run(name, func(t *testing.T) {
				measureSingly(t, connect(t, delay), name)
				measureCounter(t, connect(t, delay), name)
			})
		}
	}
}

// measureSingly writes all views every two seconds, each with a statement of its own, in one transaction.
func measureSingly(t *testing.T, st *store.Store, name string) {
	var took []time.Duration
	before, start, cpu := st.Counts(), time.Now(), ownCPU(t)
	for range 3 {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), flushTimeout)
		err := st.Tx(ctx, func(tx *store.Tx) error {
			for i := range *viewers {
				if err := tx.SaveViews(ctx, aView(i)); err != nil {
					return err
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			written := st.Counts().Statements - before.Statements - int64(len(took)**viewers)
			fmt.Printf("%-22s %-26s after %s, only %d of %d views were written: the transaction failed %12d\n",
				name, "each, every 2 s", time.Since(begun).Round(time.Second), written, *viewers, (ownCPU(t)-cpu).Microseconds()/max(1, written))
			return
		}
		took = append(took, time.Since(begun))
		time.Sleep(max(0, beatOfViewers-time.Since(begun)))
	}
	row(name, "each, every 2 s", before, st.Counts(), time.Since(start), took, (ownCPU(t)-cpu)/time.Duration(len(took)**viewers))
}

// measureCounter has a view.Counter count viewers who request something every two seconds.
func measureCounter(t *testing.T, st *store.Store, name string) {
	counter := view.New(view.Options{
		Store: st, ViewerID: func(v view.Viewer) string { return strings.Repeat(v.Token, 5) }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = counter.Run(ctx) })
	title := view.Title{PlaybackID: "abcdabcd12341234", AssetID: weir.NewID(), UserID: weir.NewID(), ProjectID: weir.NewID(), CreatorID: "creator-7"}
	watch := func(until time.Time) {
		const slices = 100
		for time.Now().Before(until) {
			begun := time.Now()
			for slice := range slices {
				for i := slice; i < *viewers; i += slices {
					counter.Note(&title, viewerOf(i), beatOfViewers)
				}
				time.Sleep(time.Until(begun.Add(beatOfViewers * time.Duration(slice+1) / slices)))
			}
		}
	}
	watch(time.Now().Add(3 * beatOfViewers)) // all have begun
	before, start := st.Counts(), time.Now()
	watch(start.Add(time.Duration(*viewSeconds) * time.Second))
	after, length := st.Counts(), time.Since(start)
	cancel()
	wg.Wait()
	rows, err := st.Views(t.Context(), store.ViewQuery{UserID: title.UserID})
	if err != nil || rows[0].Views != int64(*viewers) {
		t.Errorf("%+v, %v, want %d views", rows, err, *viewers)
	}
	var took []time.Duration
	const rounds = 20
	cpu := ownCPU(t)
	for round := range rounds {
		var views []weir.View
		for i := range viewsAtOnce {
			views = append(views, aView(round%10*viewsAtOnce+i))
		}
		begun := time.Now()
		if err := st.Tx(t.Context(), func(tx *store.Tx) error { return tx.SaveViews(t.Context(), views...) }); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	row(name, "by the counter", before, after, length, took, (ownCPU(t)-cpu)/(rounds*viewsAtOnce))
}

func row(name, way string, before, after store.Counts, length time.Duration, took []time.Duration, cpu time.Duration) {
	perSecond := func(n int64) float64 { return float64(n) / length.Seconds() }
	slices.Sort(took)
	fmt.Printf("%-22s %-26s %12.1f %9.0f %9.1f %10d ms, %6d ms %12d\n", name, way, perSecond(after.Statements-before.Statements),
		perSecond(after.RowsWritten-before.RowsWritten), perSecond(after.Transactions-before.Transactions),
		took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds(), cpu.Microseconds())
}

// ownCPU returns the CPU time of this process: all that SQLite needs, and what weir does for
// PostgreSQL.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func viewerOf(i int) view.Viewer {
	return view.Viewer{
		Token: fmt.Sprintf("viewer%05d", i), Network: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32),
		Device: view.Device{Kind: "desktop", OS: "Windows", Browser: "Chrome"},
	}
}

func aView(i int) weir.View {
	now := weir.At(time.Now())
	return weir.View{
		ID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i*2654435761%(1<<32)), UserID: "user", ProjectID: "project", PlaybackID: "abcdabcd12341234",
		AssetID: "asset", CreatorID: "creator-7", ViewerID: strings.Repeat("viewer", 7), StartedAt: now, LastSeen: now, PlaytimeMs: int64(now),
		DeviceType: "desktop", Device: "Windows", OS: "Windows", Browser: "Chrome",
	}
}

// delayed returns another URL of a database, over which a round trip takes so much longer.
func delayed(t *testing.T, direct string, delay time.Duration) string {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	if delay == 0 {
		return direct
	}
	line := linetest.New(t, u.Host)
	line.Delay(delay / 2)
	u.Host = line.Address()
	return u.String()
}
