package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestTarget(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		target, err := weir.NewTarget{URL: "rtmp://example.com/live/hunter2"}.Target("u1", "p1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		other, err := weir.NewTarget{URL: "rtmp://example.com/live/other", Disabled: true}.Target("u1", "p1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		streams := []weir.Stream{newStream(t, "one"), newStream(t, "two")}
		streams[0].Multistream.Targets = []weir.TargetRef{{ID: target.ID, Profile: "source"}, {ID: other.ID, Profile: "source"}}
		streams[1].Multistream.Targets = []weir.TargetRef{{ID: target.ID, Profile: "240p0"}, {ID: target.ID, Profile: "source"}}
		if err := st.Tx(ctx, func(tx *Tx) error {
			for _, x := range []*weir.Target{&target, &other} {
				if err := tx.CreateTarget(ctx, x); err != nil {
					return err
				}
			}
			for i := range streams {
				if err := tx.CreateStream(ctx, &streams[i]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		got, err := st.Target(ctx, target.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(target, got); diff != "" {
			t.Errorf("target differs (-want +got):\n%s", diff)
		}
		checkSealed(t, st, "target", target.ID, "hunter2")
		for _, f := range []Filter{{"url", target.URL.Reveal()}, {"disabled", false}, {"name", "example.com"}} {
			page, err := st.Targets(ctx, Query{UserID: "u1", Filters: []Filter{f, {"id", target.ID}}})
			if err != nil || len(page.Items) != 1 {
				t.Errorf("filter %v: %d targets, %v; want 1", f.ID, len(page.Items), err)
			}
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.DeleteTarget(ctx, target.ID) }); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Target(ctx, target.ID); weir.KindOf(err) != weir.NotFound {
			t.Errorf("deleted target: %v, want not found", err)
		}
		for i, want := range [][]weir.TargetRef{{{ID: other.ID, Profile: "source"}}, {}} {
			s, err := st.Stream(ctx, streams[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, s.Multistream.Targets); diff != "" {
				t.Errorf("references of stream %d (-want +got):\n%s", i, diff)
			}
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.DeleteTarget(ctx, target.ID) }); weir.KindOf(err) != weir.NotFound {
			t.Errorf("deleted again: %v, want not found", err)
		}
	})
}

// checkSealed checks that a row does not show a secret.
func checkSealed(t *testing.T, st *Store, table, id, secret string) {
	t.Helper()
	row, err := one(t.Context(), st.conn, func(r rows) ([]byte, error) {
		var doc, sealed, lookup []byte
		err := r.Scan(&doc, &sealed, &lookup)
		return bytes.Join([][]byte{doc, sealed, lookup}, nil), err
	}, "SELECT doc, sealed, url_lookup FROM "+table+" WHERE id = $1", id)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(row, []byte(secret)) {
		t.Errorf("the row of %s has %q in the clear", table, secret)
	}
}
