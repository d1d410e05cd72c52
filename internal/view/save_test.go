package view

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait/linetest"
	"weir/internal/weir"
)

// noon is when the clocks of these tests start.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// somebody is a viewer with a token and an address of their own.
func somebody(i int) Viewer {
	return Viewer{Token: fmt.Sprintf("%05d", i), Network: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)}
}

// After each save, the store has those as watching whose last request was not longer ago than
// watching, and nobody else; all other nodes see them so. What it lacks of the watch time is bounded.
func TestStoreKnowsWhoWatches(t *testing.T) {
	t.Parallel()
	const viewers, length = 60, 400
	url := storetest.SQLite(t, store.Open, storeOptions())
	open := func(node string) *store.Store {
		o := storeOptions()
		o.NodeID = node
		st, err := store.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		return st
	}
	c, other := newCounterOn(open("node-a")), open("node-b")
	random := rand.New(rand.NewPCG(3, 1))
	type watcher struct {
		next, last int // seconds
		pace       int // seconds between requests
		played     int64
	}
	all := map[string]*watcher{}
	for i := range viewers {
		all[somebody(i).Token] = &watcher{next: random.IntN(200), last: -1, pace: 1 + random.IntN(26)}
	}
	var history []int64 // what was played, by second
	for second := range length {
		now := noon.Add(time.Duration(second) * time.Second)
		played := int64(0)
		for _, token := range slices.Sorted(maps.Keys(all)) {
			w := all[token]
			if w.next == second {
				c.note(&film, Viewer{Token: token}, new(time.Second), now)
				w.played += 1000
				w.last, w.next = second, second+w.pace
				if random.IntN(12) == 0 { // a pause
					w.next = second + 1 + random.IntN(90)
				}
			}
			played += w.played
		}
		history = append(history, played)
		if second%2 == 1 {
			continue
		}
		if err := c.save(t.Context(), now, false); err != nil {
			t.Fatal(err)
		}
		since := weir.At(now.Add(-watching))
		want, got := []string{}, []string{}
		for token, w := range all {
			if w.last >= 0 && second-w.last <= int(watching.Seconds()) {
				want = append(want, token)
			}
		}
		rows, err := other.Views(t.Context(), store.ViewQuery{UserID: film.UserID, SeenSince: since, By: []string{"viewerId"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			got = append(got, row.By[0])
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("who watches after %d s (-want +got):\n%s", second, diff)
		}
		if n, err := other.ViewersElsewhere(t.Context(), film.UserID, since); err != nil || n != int64(len(want)) {
			t.Fatalf("after %d s another node counts %d viewers, %v; want %d", second, n, err, len(want))
		}
		behind := (ahead + saveEvery).Milliseconds()
		if rows, err = other.Views(t.Context(), store.ViewQuery{UserID: film.UserID, By: []string{"viewerId"}}); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if lacks := all[row.By[0]].played - row.PlaytimeMs; lacks > behind || row.Exits > 0 {
				t.Fatalf("after %d s the store lacks %d ms of %s, who left early: %d", second, lacks, row.By[0], row.Exits)
			}
		}
		used, err := other.Usage(t.Context(), store.UsageQuery{UserID: film.UserID})
		if before := second - int((ahead + saveEvery).Seconds()); err != nil || before >= 0 && used[0].DeliveryMs < history[before] {
			t.Fatalf("after %d s the usage is %+v, %v; %d ms were played before that", second, used, err, history[before])
		}
	}
	if _, used := written(t, c); used != history[length-1] {
		t.Errorf("at the end the usage is %d ms, want %d", used, history[length-1])
	}
}

// A view is written soon when it begins, when its first media was sent and when its viewer has gone,
// and rarely between.
func TestViewsAreWrittenRarely(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	var written []int
	const length = 10 * 60
	for second := range length + 60 {
		now := noon.Add(time.Duration(second) * time.Second)
		switch {
		case second < 5:
			c.note(&film, somebody(1), nil, now)
		case second < length:
			c.note(&film, somebody(1), new(time.Second), now)
		}
		if second%2 == 0 {
			for range c.due(now, false) {
				written = append(written, second)
			}
			if err := c.save(t.Context(), now, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []int{0, 6}
	for second := 6 + 22; second <= length; second += 22 {
		want = append(want, second)
	}
	if diff := cmp.Diff(append(want, 614), written); diff != "" {
		t.Errorf("seconds at which the view was written (-want +got):\n%s", diff)
	}
}

// A clock that is set back stops nothing.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	for _, at := range []time.Time{noon, noon.Add(-time.Hour)} {
		c.note(&film, somebody(1), new(time.Second), at)
		if n := len(c.due(at, false)); n != 1 {
			t.Errorf("at %s %d views are to be written, want 1", at, n)
		}
		if err := c.save(t.Context(), at, false); err != nil {
			t.Fatal(err)
		}
		if n := len(c.due(at, false)); n != 0 {
			t.Errorf("at %s %d views are written again", at, n)
		}
	}
}

// While the database is away, what waits does not grow, and when it returns, all of it is written, in
// transactions of a bounded size.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	const viewers, minutes = 2*saveAtOnce + 500, 10
	c := newCounter(t)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	var now time.Time
	for i := range minutes * 30 {
		now = noon.Add(time.Duration(i) * 2 * time.Second)
		for i := range viewers {
			c.note(&film, somebody(i), new(2*time.Second), now)
		}
		if err := c.save(away, now, false); err == nil {
			t.Fatal("save did not fail")
		}
		if views, hours := len(c.due(now, false)), len(c.usage); views != viewers || hours != 1 {
			t.Fatalf("%d views and %d hours of usage wait, want %d and 1", views, hours, viewers)
		}
	}
	before := c.Store.Counts().Statements
	if err := c.save(t.Context(), now, false); err != nil {
		t.Fatal(err)
	}
	if n := c.Store.Counts().Statements - before; n != 4 {
		t.Errorf("%d statements, want 3 for the views and 1 for the usage", n)
	}
	played := int64(viewers * minutes * 60_000)
	if got, used := written(t, c); got.Views != viewers || got.PlaytimeMs != played || used != played {
		t.Errorf("%+v and %d ms of usage, want %d views of %d ms", got, used, viewers, played)
	}
}

// What is counted at the end is written although the connections to the database are dead.
func TestLastViewsOverDeadConnections(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(storetest.PostgreSQL(t, store.Open, storeOptions()))
	if err != nil {
		t.Fatal(err)
	}
	line := linetest.New(t, server.Host)
	server.Host = line.Address()
	st, err := store.Open(t.Context(), server.String(), storeOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	c := newCounterOn(st)
	c.Note(&film, somebody(1), time.Second)
	if _, err := st.Views(t.Context(), store.ViewQuery{}); err != nil { // so the connection is known as a good one
		t.Fatal(err)
	}
	line.Cut()
	line.Mend() // new connections can be made
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ended); err != nil {
		t.Fatal(err)
	}
	rows, err := st.Views(t.Context(), store.ViewQuery{UserID: film.UserID})
	if err != nil || rows[0].Views != 1 || rows[0].PlaytimeMs != 1000 {
		t.Errorf("%+v, %v, want one view of a second", rows, err)
	}
}

func newCounterOn(st *store.Store) *Counter {
	return New(Options{Store: st, ViewerID: func(v Viewer) string { return v.Token + v.Device.OS }, Others: true, Log: slog.New(slog.DiscardHandler)})
}
