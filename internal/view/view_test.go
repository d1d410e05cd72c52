package view

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Runner{M: m}) }

// film is what viewers watch in tests.
var film = Title{PlaybackID: "p", AssetID: "a", UserID: "u"}

func storeOptions() store.Options { return store.Options{Secret: bytes.Repeat([]byte{3}, 32)} }

func newCounter(t testing.TB) *Counter {
	t.Helper()
	st, err := store.Open(t.Context(), storetest.SQLite(t, store.Open, storeOptions()), storeOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return newCounterOn(st)
}

// written returns what the store has of the film, after a save.
func written(t *testing.T, c *Counter) (views weir.ViewSums, deliveryMs int64) {
	t.Helper()
	if err := c.save(t.Context(), time.Now(), true); err != nil {
		t.Fatal(err)
	}
	rows, err := c.Store.Views(t.Context(), store.ViewQuery{UserID: film.UserID, AssetID: film.AssetID})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	used, err := c.Store.Usage(t.Context(), store.UsageQuery{UserID: film.UserID})
	if err != nil || len(used) != 1 {
		t.Fatalf("%d rows, %v", len(used), err)
	}
	return rows[0].ViewSums, used[0].DeliveryMs
}

// A long pause ends a view; views that can't be written are written later.
func TestViewings(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	who, second := Viewer{Token: "k"}, time.Second
	start := time.Now().Truncate(time.Second)
	c.note(&film, who, &second, start)
	c.note(&film, who, &second, start.Add(pause))
	c.note(&film, who, &second, start.Add(2*pause))
	if got, _ := written(t, c); got.Views != 1 || got.PlaytimeMs != 3000 {
		t.Errorf("%+v, want one view of 3 s", got)
	}
	c.note(&film, who, &second, start.Add(3*pause+time.Second))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.save(ended, start, true); err == nil {
		t.Fatal("save did not fail")
	}
	if err := c.save(ended, start.Add(24*time.Hour), true); err == nil {
		t.Fatal("save did not fail")
	}
	if got, used := written(t, c); got.Views != 2 || got.PlaytimeMs != 4000 || used != 4000 {
		t.Errorf("%+v and %d ms of usage, want two views of 4 s", got, used)
	}
	if err := c.save(t.Context(), start.Add(24*time.Hour), true); err != nil || len(c.active) != 0 || len(c.watchers) != 0 {
		t.Errorf("%d views of %d viewers are remembered, error %v", len(c.active), len(c.watchers), err)
	}
	for i := range maxViews + 10 {
		address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		c.note(&film, Viewer{Network: weir.Network(address)}, nil, start)
	}
	if len(c.active) > maxViews || len(c.watchers) > maxViews {
		t.Errorf("%d views of %d viewers are remembered", len(c.active), len(c.watchers))
	}
}

// A view that has no media yet is one that ended early.
func TestStart(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	who := Viewer{Token: "k"}
	c.Start(&film, who)
	if got, used := written(t, c); got.Views != 1 || got.Exits != 1 || used != 0 {
		t.Errorf("after the start: %+v, %d ms of usage", got, used)
	}
	c.Note(&film, who, 0) // as audio of a film
	if got, used := written(t, c); got.Views != 1 || got.Exits != 0 || used != 0 {
		t.Errorf("after media: %+v, %d ms of usage", got, used)
	}
}

// What a meter got is noted at its end at the latest.
func TestMeter(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	sent := c.Meter(&film, Viewer{Token: "k"}, func(bytes int64) time.Duration { return time.Duration(bytes) * time.Millisecond })
	sent(0)
	if got, _ := written(t, c); got.Views != 0 {
		t.Errorf("before the first byte: %+v", got)
	}
	sent(300)
	if got, _ := written(t, c); got.Views != 1 || got.PlaytimeMs != 300 {
		t.Errorf("after the first bytes: %+v", got)
	}
	sent(400)
	sent(500)
	sent(0)
	if got, used := written(t, c); got.Views != 1 || got.PlaytimeMs != 1200 || used != 1200 {
		t.Errorf("at the end: %+v, %d ms of usage", got, used)
	}
}

// An address begins only so many views; others are counted as before, and what is sent beyond that
// counts as usage.
func TestViewingsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.begun.PerSecond = 0
	second, now := time.Second, time.Now()
	for i := range 10 * beginAtOnce {
		who := Viewer{Network: netip.MustParsePrefix("192.0.2.2/32"), Token: fmt.Sprint(i)}
		c.note(&film, who, &second, now)
	}
	c.note(&film, Viewer{Network: netip.MustParsePrefix("192.0.2.3/32")}, &second, now)
	got, used := written(t, c)
	if got.Views != beginAtOnce+1 {
		t.Errorf("%d views, want %d", got.Views, beginAtOnce+1)
	}
	if n := c.Stats().Uncounted; n != 9*beginAtOnce {
		t.Errorf("%d were not counted, want %d", n, 9*beginAtOnce)
	}
	if used != (10*beginAtOnce+1)*1000 {
		t.Errorf("usage is %d ms", used)
	}
}

// Who watches may begin something else of the account; a place is free when somebody leaves.
func TestLimit(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	other := Title{PlaybackID: "q", AssetID: "b", UserID: film.UserID}
	foreign := Title{PlaybackID: "r", AssetID: "c", UserID: "v"}
	now := time.Now()
	for _, tt := range []struct {
		who   string
		of    *Title
		after time.Duration
		want  bool
	}{
		{"ann", &film, 0, true},
		{"bob", &other, 0, true},
		{"cleo", &film, 0, false},
		{"cleo", &foreign, 0, true},
		{"ann", &other, 0, true},
		{"bob", &other, watching - 1, true},
		{"cleo", &film, watching - 1, false},
		{"cleo", &film, watching - 1 + countEvery, true}, // ann has left
		{"ann", &film, watching - 1 + countEvery, false},
	} {
		who := Viewer{Token: tt.who}
		fits := c.mayBegin(tt.of.UserID, who, 2, now.Add(tt.after))
		if got := c.beginView(tt.of, who, 2, now.Add(tt.after)); got != tt.want || fits != got {
			t.Errorf("%s at %s after %s: begin = %v, fits = %v, want %v", tt.who, tt.of.PlaybackID, tt.after, got, fits, tt.want)
		}
	}
	err := c.Begin(t.Context(), &film, Viewer{Token: "dora"}, 0)
	if weir.KindOf(err) != weir.Denied || !strings.Contains(err.Error(), "limit of 0 concurrent viewers") || c.Stats().Refused != 1 {
		t.Errorf("a limit of 0: %v, %+v", err, c.Stats())
	}
	if err := c.Begin(t.Context(), &film, Viewer{Token: "dora"}, Unlimited); err != nil {
		t.Errorf("no limit: %v", err)
	}
}

// At most as many begin at once as may watch.
func TestLimitAtOnce(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	var begun atomic.Int64
	var wg sync.WaitGroup
	now := time.Now()
	for i := range 50 {
		wg.Go(func() {
			if c.beginView(&film, Viewer{Token: fmt.Sprint(i)}, 10, now) {
				begun.Add(1)
			}
		})
	}
	wg.Wait()
	if n := begun.Load(); n != 10 {
		t.Errorf("%d have begun, want 10", n)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	now := time.Now()
	for i, ago := range []time.Duration{0, 20 * time.Second, time.Minute} {
		c.note(&film, Viewer{Token: string(rune('a' + i))}, nil, now.Add(-ago))
	}
	c.begun.AtOnce = 0
	c.note(&film, Viewer{Token: "d"}, nil, now)
	c.refused.Add(4)
	if got, want := c.stats(now), (Stats{Viewers: 2, Uncounted: 1, Refused: 4}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

func TestDeviceOf(t *testing.T) {
	for agent, want := range map[string]Device{
		"": {},
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36": {"desktop", "Linux", "Chrome"},
		"Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605 Mobile/15E148 Safari/604.1":          {"tablet", "iOS", "Safari"},
		"VLC/3.0.20 LibVLC/3.0.20":                   {},
		strings.Repeat("x", maxAgent) + " Firefox/1": {},
	} {
		if got := DeviceOf(agent); got != want {
			t.Errorf("DeviceOf(%q) = %q, want %q", agent, got, want)
		}
	}
}
