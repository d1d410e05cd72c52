//go:build bench

package console

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/store"
	domain "weir/internal/weir"
)

// What the large account has.
const (
	benchStreams, benchAssets, benchEvents = 1000, 10_000, 100_000
	benchBatch                             = 500 // rows in a transaction
	benchRuns                              = 5
)

// TestBench opens every page of an empty account and of a large one, and prints when each had its
// content: the median of some runs, files from the cache of the browser.
func TestBench(t *testing.T) {
	binary := harness.Shipped(t)
	empty := measure(t, binary, func(*harness.Weir) map[string]string { return map[string]string{} })
	large := measure(t, binary, fillLarge)
	t.Logf("%-10s %10s %10s", "page", "empty, ms", "large, ms")
	for _, name := range slices.Concat(lists, []string{"stream", "asset"}) {
		before := "–"
		if ms, ok := empty[name]; ok {
			before = fmt.Sprintf("%.0f", ms)
		}
		t.Logf("%-10s %10s %10.0f", "/"+name, before, large[name])
	}
}

// lists are the pages that every account has.
var lists = []string{"", "streams", "assets", "tasks", "webhooks", "access", "keys", "targets", "stores", "usage", "users", "nodes", "queue"}

// measure returns when the pages had their content, in milliseconds. fill makes what the account has, and
// returns more pages by their names.
func measure(t *testing.T, binary string, fill func(*harness.Weir) map[string]string) map[string]float64 {
	t.Helper()
	w := harness.NewWeir(t)
	w.Binary = binary
	w.Start()
	pages := fill(w)
	for _, path := range lists {
		pages[path] = path
	}
	p := newTab(t, harness.NewBrowser(t, t.TempDir()), w.URL+"/")
	p.navigate(harness.Match(t, w.Greeting.String(), `set password +(\S+)`))
	p.enter()
	p.timed()
	times := map[string]float64{}
	for name, path := range pages {
		var all []float64
		for range benchRuns {
			p.open(path)
			all = append(all, p.content())
		}
		slices.Sort(all)
		times[name] = all[len(all)/2]
		if rows := eval[int](p, `return Math.max(all('tbody tr').length, all('.tile').length)`); rows > 100 {
			t.Errorf("/%s shows %d rows at once", path, rows)
		}
	}
	w.Stop()
	return times
}

func fillLarge(w *harness.Weir) map[string]string {
	w.T.Helper()
	ctx, st, start := w.T.Context(), w.OpenStore(), time.Now()
	u, err := st.FirstUser(ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	owner := &domain.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}
	streams := make([]domain.Stream, benchStreams)
	batches(w.T, st, benchStreams, func(ctx context.Context, tx *store.Tx, i int) error {
		s, err := domain.NewStream{Name: fmt.Sprintf("stream %d", i)}.Stream(owner, start.Add(-time.Duration(benchStreams-i)*time.Minute))
		streams[i] = s
		if err != nil {
			return err
		}
		return tx.CreateStream(ctx, &s)
	})
	var asset string
	batches(w.T, st, benchAssets, func(ctx context.Context, tx *store.Tx, i int) error {
		id, at := domain.NewID(), domain.At(start.Add(-time.Duration(benchAssets-i)*time.Minute))
		asset = id
		return tx.CreateAsset(ctx, &domain.Asset{
			ID: id, Name: fmt.Sprintf("film %d", i), Type: "video", PlaybackID: domain.NewPlaybackID(id), UserID: owner.UserID, ProjectID: owner.ProjectID, CreatedAt: at,
			Source: domain.AssetSource{Type: domain.SourceURL, URL: "https://example.com/source.mp4"}, Status: domain.AssetStatus{Phase: domain.AssetReady, UpdatedAt: at},
			Size: 123456, Stored: 123456, VideoSpec: &domain.VideoSpec{Format: "mp4", Duration: 12.5, Bitrate: 2_000_000},
		})
	})
	batches(w.T, st, benchEvents, func(ctx context.Context, tx *store.Tx, i int) error {
		e, err := domain.NewStreamEvent(domain.StreamStarted, streams[i%benchStreams], nil, start)
		if err != nil {
			return err
		}
		return tx.Emit(ctx, e)
	})
	w.T.Logf("written in %.0f s", time.Since(start).Seconds())
	return map[string]string{"stream": "streams/" + streams[0].ID, "asset": "assets/" + asset}
}

// batches writes rows, some in each transaction.
func batches(t *testing.T, st *store.Store, n int, write func(ctx context.Context, tx *store.Tx, i int) error) {
	t.Helper()
	for from := 0; from < n; from += benchBatch {
		err := st.Tx(t.Context(), func(tx *store.Tx) error {
			for i := from; i < min(n, from+benchBatch); i++ {
				if err := write(t.Context(), tx, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
