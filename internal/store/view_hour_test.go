package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// rowsOf counts the rows of a table.
func rowsOf(t *testing.T, st *Store, table string) int64 {
	t.Helper()
	n, err := one(t.Context(), st.conn, scanInt, "SELECT count(*) FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pruneViews prunes views whose viewers were seen last before a time.
func pruneViews(ctx context.Context, st *Store, before time.Time) error {
	return st.Prune(ctx, Retention{Events: time.Hour, Credentials: time.Hour, Views: time.Since(before)})
}

// seedOldViews makes views that differ in everything that views can be grouped by.
func seedOldViews(t *testing.T, st *Store) {
	t.Helper()
	ctx := t.Context()
	asset := newAsset(t, "ipfs://bafy/a.mp4")
	if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateAsset(ctx, &asset) }); err != nil {
		t.Fatal(err)
	}
	var views []weir.View
	for i := range 600 {
		pick := func(n int, name string) string { return fmt.Sprint(name, i/n%3) }
		v := weir.View{
			UserID: pick(1, "u"), ProjectID: pick(2, "p"), PlaybackID: pick(3, "pb"), AssetID: asset.ID, CreatorID: pick(4, "c"),
			ViewerID: pick(5, "v"), DeviceType: pick(6, "t"), Device: pick(7, "d"), CPU: pick(8, "cpu"), OS: pick(9, "os"), Browser: pick(10, "b"),
			BrowserEngine: pick(11, "e"), Continent: pick(12, "con"), Country: pick(13, "co"), Subdivision: pick(14, "s"), Timezone: pick(15, "z"), Geohash: pick(16, "g"),
			StartedAt: weir.At(day.Add(time.Duration(i) * 17 * time.Minute)), PlaytimeMs: int64(i), RebufferMs: int64(i % 5), Errors: i % 3, ExitedEarly: i%4 == 0,
		}
		v.LastSeen = v.StartedAt + 60_000
		if i%2 == 0 {
			v.AssetID, v.StreamID = "", pick(2, "stream")
		}
		if i%7 == 0 {
			v.TTFFMs = int64(100 + i)
		}
		views = append(views, v)
	}
	saveViews(t, st, views...)
}

// Views that were added up give the figures that they gave before.
func TestRollUpKeepsFigures(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		seedOldViews(t, st)
		queries := []ViewQuery{
			{},
			{UserID: "u1"},
			{UserID: "u1", ProjectID: "p2"},
			{PlaybackID: "pb1"},
			{StreamID: "stream0"},
			{CreatorID: "c1"},
			{ContentID: "bafy"},
			{From: weir.At(day.Add(30 * time.Hour))},
			{To: weir.At(day.Add(40 * time.Hour))},
			{From: weir.At(day.Add(24 * time.Hour)), To: weir.At(day.Add(25 * time.Hour)), UserID: "u0"},
			{By: []string{"os", "browser", "creatorId"}, Step: weir.StepWeek},
		}
		for _, step := range []weir.TimeStep{weir.StepHour, weir.StepDay, weir.StepWeek, weir.StepMonth, weir.StepYear} {
			queries = append(queries, ViewQuery{Step: step}, ViewQuery{Step: step, UserID: "u1", By: []string{"country"}})
		}
		for name := range viewGroups {
			if name != "viewerId" {
				queries = append(queries, ViewQuery{By: []string{name}})
			}
		}
		figures := func() (all [][]ViewRow) {
			t.Helper()
			for _, q := range queries {
				rows, err := st.Views(t.Context(), q)
				if err != nil {
					t.Fatalf("%+v: %v", q, err)
				}
				all = append(all, rows)
			}
			return all
		}
		want := figures()
		if want[0][0].Views != 600 {
			t.Fatalf("%+v", want[0])
		}
		for _, until := range []time.Duration{0, 50 * time.Hour, 50 * time.Hour, 100 * time.Hour, 1000 * time.Hour} {
			if err := pruneViews(t.Context(), st, day.Add(until)); err != nil {
				t.Fatal(err)
			}
			for i, got := range figures() {
				if diff := cmp.Diff(want[i], got); diff != "" {
					t.Errorf("%s are added up: %+v (-want +got):\n%s", until, queries[i], diff)
				}
			}
			if left := rowsOf(t, st, "viewing"); (left == 600) != (until == 0) {
				t.Errorf("%s are added up: %d single views", until, left)
			}
		}
		if left := rowsOf(t, st, "viewing"); left != 0 {
			t.Errorf("%d single views are left", left)
		}
		rows, err := st.Views(t.Context(), ViewQuery{By: []string{"viewerId"}})
		if err != nil || len(rows) != 1 || rows[0].By[0] != "" || rows[0].Views != 600 {
			t.Errorf("by viewer: %+v, %v", rows, err)
		}
	})
}

// The sums of an hour are one row for each kind of view, whenever its views were added.
func TestRollUpMakesFewRows(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		for round := range 3 {
			var views []weir.View
			for i := range pruneAtOnce + 10 {
				views = append(views, weir.View{
					ID: fmt.Sprint(round, "/", i), UserID: "u1", PlaybackID: "pb", ViewerID: fmt.Sprint(i), OS: []string{"Linux", "Windows"}[i%2],
					StartedAt: hours(0), LastSeen: hours(0),
				})
			}
			saveViews(t, st, views...)
			before := st.Counts().Statements
			if err := st.rollUpViews(t.Context(), day.Add(2*time.Hour).UnixMilli()); err != nil {
				t.Fatal(err)
			}
			if n := st.Counts().Statements - before; n != 4 {
				t.Errorf("%d statements, want 2 in each of 2 transactions", n)
			}
			if rows := rowsOf(t, st, "view_hour"); rows != 2 || rowsOf(t, st, "viewing") != 0 {
				t.Fatalf("%d rows and %d single views, want 2 and 0", rows, rowsOf(t, st, "viewing"))
			}
		}
		rows, err := st.Views(t.Context(), ViewQuery{PlaybackID: "pb"})
		if err != nil || rows[0].Views != 3*(pruneAtOnce+10) {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

// Nodes that prune at once do not count a view twice.
func TestRollUpOnTwoNodes(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		const all = 5*pruneAtOnce + 7
		var views []weir.View
		for i := range all {
			views = append(views, weir.View{
				UserID: "u1", PlaybackID: "pb", OS: fmt.Sprint(i % 40), StartedAt: hours(i % 20), LastSeen: hours(i % 20), PlaytimeMs: 1,
			})
		}
		saveViews(t, a, views...)
		var wg sync.WaitGroup
		for _, st := range []*Store{a, b, a, b} {
			wg.Go(func() {
				if err := pruneViews(t.Context(), st, day.Add(100*time.Hour)); err != nil {
					t.Error(err)
				}
			})
		}
		for range 20 { // meanwhile, every figure is right
			rows, err := a.Views(t.Context(), ViewQuery{UserID: "u1"})
			if err != nil || rows[0].Views != all || rows[0].PlaytimeMs != all {
				t.Errorf("%+v, %v, want %d views", rows, err, all)
			}
		}
		wg.Wait()
		rows, err := b.Views(t.Context(), ViewQuery{UserID: "u1"})
		if err != nil || rows[0].Views != all || rows[0].PlaytimeMs != all || rowsOf(t, b, "viewing") != 0 {
			t.Errorf("%+v, %v, %d single views", rows, err, rowsOf(t, b, "viewing"))
		}
	})
}

// A view that began long ago is not added up while its viewer watches.
func TestRollUpLeavesCurrentViews(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		v := weir.View{ID: "v", UserID: "u1", PlaybackID: "pb", StartedAt: hours(0), LastSeen: hours(30), PlaytimeMs: 1}
		saveViews(t, st, v)
		for i, until := range []time.Duration{29 * time.Hour, 40 * time.Hour} {
			if err := pruneViews(t.Context(), st, day.Add(until)); err != nil {
				t.Fatal(err)
			}
			if left := rowsOf(t, st, "viewing"); left != int64(1-i) {
				t.Errorf("pruned until %s: %d single views", until, left)
			}
			if i == 0 {
				v.PlaytimeMs = 5
				saveViews(t, st, v)
			}
			rows, err := st.Views(t.Context(), ViewQuery{UserID: "u1", Step: weir.StepHour})
			want := []ViewRow{{Start: weir.StepHour.Start(hours(0)), By: []string{}, ViewSums: weir.ViewSums{Views: 1, PlaytimeMs: 5}}}
			if diff := cmp.Diff(want, rows); err != nil || diff != "" {
				t.Errorf("pruned until %s: %v (-want +got):\n%s", until, err, diff)
			}
		}
	})
}

func TestViewersElsewhere(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		save := func(st *Store, user string, seen int) {
			saveViews(t, st, weir.View{ID: weir.NewID(), UserID: user, StartedAt: hours(0), LastSeen: hours(seen)})
		}
		save(a, "u1", 1)
		save(a, "u1", 2)
		save(a, "u1", 0)
		save(a, "u2", 2)
		save(b, "u1", 2)
		var got []int64
		for _, st := range []*Store{a, b} {
			n, err := st.ViewersElsewhere(t.Context(), "u1", hours(1))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("viewers elsewhere: %v, want 1 and 2", got)
		}
	})
}
