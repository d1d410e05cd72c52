package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestSearch(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		var all []*weir.Asset
		for _, name := range []string{"Summer Film", "winter film", "100% Ärger_x", "other"} {
			a, _ := newImport(t, weir.NewAsset{Name: name})
			all = append(all, &a)
		}
		all[0].CreatorID = &weir.CreatorID{Type: "unverified", Value: "Ada-Lovelace"}
		all[3].CreatorID = &weir.CreatorID{Type: "unverified", Value: "Ada-7"}
		createAssets(t, st, all...)
		ids := func(found ...int) []string {
			names := []string{}
			for _, i := range found {
				names = append(names, all[i].Name)
			}
			return names
		}
		for search, want := range map[string][]string{
			"":                                  ids(2, 3, 0, 1),
			"FILM":                              ids(0, 1),
			"film  sum":                         ids(0),
			"film nothing":                      ids(),
			"ärger":                             ids(2),
			"0%":                                ids(2),
			"r_x":                               ids(2),
			"_":                                 ids(2),
			"%":                                 ids(2),
			`\`:                                 ids(),
			"ada-7":                             ids(3),
			"ada-":                              ids(),
			"ada-lo":                            ids(0),
			"lovelace":                          ids(),
			all[1].ID:                           ids(1),
			all[1].ID[:6]:                       ids(1),
			all[1].ID[:5]:                       ids(),
			all[1].ID[1:8]:                      ids(),
			all[1].PlaybackID[:6]:               ids(1),
			all[1].PlaybackID[1:8]:              ids(),
			"film " + all[1].ID[:8]:             ids(1),
			strings.ToUpper(all[1].PlaybackID):  ids(1),
			all[0].ID + " " + all[0].PlaybackID: ids(0),
			all[0].ID + " " + all[1].PlaybackID: ids(),
			strings.Repeat("film ", 10):         ids(0, 1),
		} {
			page, err := st.Assets(ctx, Query{UserID: "u1", Search: search, Order: "name-false", Count: true})
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, a := range page.Items {
				got = append(got, a.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" || page.Total != len(want) {
				t.Errorf("%q, total %d (-want +got):\n%s", search, page.Total, diff)
			}
		}
		if _, err := st.Assets(ctx, Query{Search: strings.Repeat("x ", 11)}); weir.KindOf(err) != weir.Invalid {
			t.Errorf("too many words: %v", err)
		}
	})
}

// BenchmarkSearch looks through the 10,000 assets of an account for what none of them has, and for
// what the first have; with the total and without it.
func BenchmarkSearch(b *testing.B) {
	for _, engine := range engines {
		st, err := Open(b.Context(), engine.url(b), Options{Secret: testSecret, NodeID: "node-a"})
		if err != nil {
			b.Fatal(err)
		}
		if err := st.Tx(b.Context(), func(tx *Tx) error {
			for i := range 10_000 {
				a, _, err := weir.NewAsset{Name: fmt.Sprintf("Recording %d of the conference", i)}.Asset(&weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
				if err != nil {
					return err
				}
				a.VideoSpec = &weir.VideoSpec{Format: strings.Repeat("x", 1500)} // as large as a finished asset
				if err := tx.CreateAsset(b.Context(), &a); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		if _, err := st.conn.exec(b.Context(), "ANALYZE"); err != nil {
			b.Fatal(err)
		}
		for _, search := range []string{"", "nothing", "recording", "conference 77"} {
			for _, count := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%q/count=%t", engine.name, search, count), func(b *testing.B) {
					for b.Loop() {
						if _, err := st.Assets(b.Context(), Query{UserID: "u1", ProjectID: "p1", Search: search, Count: count}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
		st.Close()
	}
}

// The storage of an account is known day by day.
func TestStorageDays(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		u := newUser(t, st, "ann@example.com", nil)
		a, _ := newImport(t, weir.NewAsset{Name: "a"})
		a.UserID, a.Stored = u.ID, 700
		createAssets(t, st, &a)
		first := time.Now().Add(-48 * time.Hour)
		sample := func(days int, stored int64) {
			t.Helper()
			if err := st.Tx(ctx, func(tx *Tx) error {
				_, err := tx.UpdateAsset(ctx, a.ID, func(a *weir.Asset) error { a.Stored = stored; return nil })
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if err := st.sampleStorage(ctx, first.Add(time.Duration(days)*24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		sample(0, 500)
		sample(0, 700) // the last one of a day stays
		sample(1, 900)
		sample(1, 0)
		sample(2, 300)
		day := func(n int) weir.Millis {
			return weir.StepDay.Start(weir.At(first.Add(time.Duration(n) * 24 * time.Hour)))
		}
		got, err := st.UserUsage(ctx, u.ID, weir.At(first), weir.At(first.Add(72*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		want := []weir.StorageDay{{Day: day(0), Bytes: 700}, {Day: day(1), Bytes: 0}, {Day: day(2), Bytes: 300}}
		if diff := cmp.Diff(want, got.Storage); diff != "" || got.StorageBytes != 300 {
			t.Errorf("%d bytes now, days differ (-want +got):\n%s", got.StorageBytes, diff)
		}
		if got, err := st.UserUsage(ctx, u.ID, day(1), day(2)); err != nil || len(got.Storage) != 1 {
			t.Errorf("one day is %+v, %v", got.Storage, err)
		}
	})
}
