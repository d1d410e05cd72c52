package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/wait"
	"weir/internal/weir"
)

var day = time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC) // a Thursday

// saveViews writes views; each starts at its hours after day.
func saveViews(t *testing.T, st *Store, views ...weir.View) {
	t.Helper()
	ctx := long(t.Context(), wait.Limit) // thousands in one transaction
	if err := st.Tx(ctx, func(tx *Tx) error {
		for i, v := range views {
			if v.ID == "" {
				v.ID = fmt.Sprintf("v%d", i)
			}
			if err := tx.SaveView(ctx, v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func hours(n int) weir.Millis { return weir.At(day.Add(time.Duration(n)*time.Hour + 59*time.Minute)) }

func seedViews(t *testing.T, st *Store) {
	t.Helper()
	v := func(at int, country, viewer string) weir.View {
		return weir.View{
			UserID: "u1", ProjectID: "p1", PlaybackID: "pb", AssetID: "a1", CreatorID: "cleo", ViewerID: viewer, Country: country,
			StartedAt: hours(at), LastSeen: hours(at) + 60_000, PlaytimeMs: 60_000, TTFFMs: 100,
		}
	}
	bad := v(1, "", "ben")
	bad.PlaytimeMs, bad.TTFFMs, bad.Errors, bad.ExitedEarly, bad.RebufferMs = 0, 0, 3, true, 20_000
	other := v(0, "Chile", "eve")
	other.UserID = "u2"
	elsewhere := v(0, "Chile", "eve")
	elsewhere.ProjectID = "p2"
	saveViews(t, st,
		v(0, "Chile", "ann"), v(0, "Chile", "ben"), v(0, "Peru", "ann"), bad, // Thursday
		v(24, "Chile", "ann"), v(24*3, "Peru", "ann"), // Friday and Sunday, already in March
		v(24*4, "Peru", "ann"),    // Monday
		v(24*366, "Chile", "ann"), // a year later
		other, elsewhere,
	)
}

func TestViews(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		seedViews(t, st)
		own := ViewQuery{UserID: "u1", ProjectID: "p1"}
		for _, tt := range []struct {
			name   string
			change func(*ViewQuery)
			want   []string // start, values, views
		}{
			{"all", func(*ViewQuery) {}, []string{"8"}},
			{"all users", func(q *ViewQuery) { *q = ViewQuery{} }, []string{"10"}},
			{"of a playback id", func(q *ViewQuery) { q.PlaybackID = "pb" }, []string{"8"}},
			{"of another", func(q *ViewQuery) { q.PlaybackID = "other" }, []string{"0"}},
			{"of an asset", func(q *ViewQuery) { q.AssetID = "a1" }, []string{"8"}},
			{"of a stream", func(q *ViewQuery) { q.StreamID = "s1" }, []string{"0"}},
			{"of a creator", func(q *ViewQuery) { q.CreatorID = "cleo" }, []string{"8"}},
			{"from is in it", func(q *ViewQuery) { q.From = hours(24 * 4) }, []string{"2"}},
			{"to is not", func(q *ViewQuery) { q.To = hours(24 * 4) }, []string{"6"}},
			{"seen since", func(q *ViewQuery) { q.SeenSince = hours(24*4) + 60_000 }, []string{"2"}},
			{"by country", func(q *ViewQuery) { q.By = []string{"country"} }, []string{" 1", "Chile 4", "Peru 3"}},
			{
				"by viewer and country", func(q *ViewQuery) { q.By = []string{"viewerId", "country"} },
				[]string{"ann Chile 3", "ann Peru 3", "ben  1", "ben Chile 1"},
			},
			{
				"by hour", func(q *ViewQuery) { q.Step = weir.StepHour },
				[]string{"2024-02-29 00 3", "2024-02-29 01 1", "2024-03-01 00 1", "2024-03-03 00 1", "2024-03-04 00 1", "2025-03-01 00 1"},
			},
			{
				"by day", func(q *ViewQuery) { q.Step = weir.StepDay },
				[]string{"2024-02-29 00 4", "2024-03-01 00 1", "2024-03-03 00 1", "2024-03-04 00 1", "2025-03-01 00 1"},
			},
			{"by week", func(q *ViewQuery) { q.Step = weir.StepWeek }, []string{"2024-02-26 00 6", "2024-03-04 00 1", "2025-02-24 00 1"}},
			{"by month", func(q *ViewQuery) { q.Step = weir.StepMonth }, []string{"2024-02-01 00 4", "2024-03-01 00 3", "2025-03-01 00 1"}},
			{
				"by year and country", func(q *ViewQuery) { q.Step, q.By = weir.StepYear, []string{"country"} },
				[]string{"2024-01-01 00  1", "2024-01-01 00 Chile 3", "2024-01-01 00 Peru 3", "2025-01-01 00 Chile 1"},
			},
			{"no groups of nothing", func(q *ViewQuery) { q.AssetID, q.By = "none", []string{"country"} }, nil},
		} {
			q := own
			tt.change(&q)
			rows, err := st.Views(t.Context(), q)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			var got []string
			for _, r := range rows {
				var parts []string
				if q.Step != "" {
					parts = append(parts, r.Start.Time().Format("2006-01-02 15"))
				}
				got = append(got, strings.Join(append(append(parts, r.By...), fmt.Sprint(r.Views)), " "))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
		if _, err := st.Views(t.Context(), ViewQuery{By: []string{"1; DROP TABLE viewing"}}); weir.KindOf(err) != weir.Refused {
			t.Errorf("grouped by nonsense: %v, want refused", err)
		}
	})
}

func TestViewSums(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		seedViews(t, st)
		rows, err := st.Views(t.Context(), ViewQuery{UserID: "u1", ProjectID: "p1", To: hours(24)})
		if err != nil {
			t.Fatal(err)
		}
		want := weir.ViewSums{Views: 4, PlaytimeMs: 180_000, RebufferMs: 20_000, TTFFMs: 300, TTFFViews: 3, Errors: 1, Exits: 1}
		if diff := cmp.Diff(want, rows[0].ViewSums); diff != "" {
			t.Errorf("sums (-want +got):\n%s", diff)
		}
	})
}

func TestSaveViewAgain(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		v := weir.View{ID: "v", UserID: "u1", PlaybackID: "pb", StartedAt: hours(0), LastSeen: hours(0), Country: "Peru"}
		saveViews(t, st, v)
		v.LastSeen, v.PlaytimeMs, v.TTFFMs, v.Errors = hours(1), 5000, 70, 1
		saveViews(t, st, v)
		rows, err := st.Views(t.Context(), ViewQuery{SeenSince: hours(1), By: []string{"country"}})
		if err != nil {
			t.Fatal(err)
		}
		want := []ViewRow{{By: []string{"Peru"}, ViewSums: weir.ViewSums{Views: 1, PlaytimeMs: 5000, TTFFMs: 70, TTFFViews: 1, Errors: 1}}}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
}

func TestViewsOfContent(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		assets := []weir.Asset{
			newAsset(t, "ipfs://bafy/a.mp4"), newAsset(t, "ar://tx"), newAsset(t, "https://example.com/a.mp4"),
		}
		var views []weir.View
		if err := st.Tx(ctx, func(tx *Tx) error {
			for i := range assets {
				if err := tx.CreateAsset(ctx, &assets[i]); err != nil {
					return err
				}
				views = append(views, weir.View{UserID: "u1", PlaybackID: assets[i].PlaybackID, AssetID: assets[i].ID})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		saveViews(t, st, views...)
		for content, want := range map[string]int64{"bafy": 1, "tx": 1, "other": 0} {
			rows, err := st.Views(ctx, ViewQuery{ContentID: content})
			if err != nil {
				t.Fatal(err)
			}
			if rows[0].Views != want {
				t.Errorf("views of %s: %d, want %d", content, rows[0].Views, want)
			}
		}
		rows, err := st.Views(ctx, ViewQuery{By: []string{"dStorageUrl"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.By[0])
		}
		if diff := cmp.Diff([]string{"", "ar://tx", "ipfs://bafy"}, got); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
	})
}

// TestFiguresAreBounded counts usage, whose rows are the cheapest to make: views are
// counted by the same code.
func TestFiguresAreBounded(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		if err := st.Tx(ctx, func(tx *Tx) error {
			_, err := tx.conn.exec(ctx, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
				INSERT INTO usage_hour (user_id, creator_id, hour, delivery_ms, total_ms, storage_ms)
				SELECT 'u' || i, '', CAST(i AS BIGINT) * 3600000, 1, 0, 0 FROM n`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for _, q := range []UsageQuery{{ByUser: true}, {Step: weir.StepHour}} {
			if _, err := st.Usage(ctx, q); weir.KindOf(err) != weir.Invalid {
				t.Errorf("%+v: %v, want invalid", q, err)
			}
		}
		rows, err := st.Usage(ctx, UsageQuery{Step: weir.StepYear})
		if err != nil || len(rows) != 2 || rows[0].DeliveryMs+rows[1].DeliveryMs != 10001 {
			t.Errorf("by year: %+v, %v; want 10001 ms in 2 years", rows, err)
		}
	})
}

func TestUsage(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		if err := st.Tx(ctx, func(tx *Tx) error {
			for _, u := range []weir.Usage{
				{UserID: "u1", CreatorID: "cleo", Hour: hours(0), DeliveryMs: 1, TotalMs: 10, StorageMs: 100},
				{UserID: "u1", CreatorID: "cleo", Hour: hours(0), DeliveryMs: 1, TotalMs: 10, StorageMs: 100}, // adds up
				{UserID: "u1", Hour: hours(1), DeliveryMs: 2},
				{UserID: "u1", Hour: hours(24), DeliveryMs: 4},
				{UserID: "u2", Hour: hours(0), DeliveryMs: 8},
			} {
				if err := tx.SaveUsage(ctx, u); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		at := func(h int) weir.Millis { return weir.At(day.Add(time.Duration(h) * time.Hour)) }
		for _, tt := range []struct {
			name  string
			query UsageQuery
			want  []weir.Usage
		}{
			{"one user's", UsageQuery{UserID: "u1"}, []weir.Usage{{UserID: "u1", DeliveryMs: 8, TotalMs: 20, StorageMs: 200}}},
			{"unknown user", UsageQuery{UserID: "u3"}, []weir.Usage{{UserID: "u3"}}},
			{"of a creator", UsageQuery{UserID: "u1", CreatorID: "cleo"}, []weir.Usage{{UserID: "u1", CreatorID: "cleo", DeliveryMs: 2, TotalMs: 20, StorageMs: 200}}},
			{"in a time", UsageQuery{UserID: "u1", From: at(1), To: at(24)}, []weir.Usage{{UserID: "u1", DeliveryMs: 2}}},
			{"by day", UsageQuery{Step: weir.StepDay}, []weir.Usage{
				{Hour: at(0), DeliveryMs: 12, TotalMs: 20, StorageMs: 200}, {Hour: at(24), DeliveryMs: 4},
			}},
			{"by hour and creator", UsageQuery{UserID: "u1", ByCreator: true, Step: weir.StepHour, To: at(24)}, []weir.Usage{
				{UserID: "u1", CreatorID: "cleo", Hour: at(0), DeliveryMs: 2, TotalMs: 20, StorageMs: 200}, {UserID: "u1", Hour: at(1), DeliveryMs: 2},
			}},
			{"by user", UsageQuery{ByUser: true}, []weir.Usage{{UserID: "u1", DeliveryMs: 8, TotalMs: 20, StorageMs: 200}, {UserID: "u2", DeliveryMs: 8}}},
		} {
			got, err := st.Usage(ctx, tt.query)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	})
}
