package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestObjectStore(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		o, err := weir.NewObjectStore{Name: "mine", URL: "s3+https://key:hunter2@s3.example.com/bucket", PublicURL: "https://cdn.example.com"}.ObjectStore("u1", "p1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateObjectStore(ctx, &o) }); err != nil {
			t.Fatal(err)
		}
		got, err := st.ObjectStore(ctx, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("object store differs (-want +got):\n%s", diff)
		}
		checkSealed(t, st, "object_store", o.ID, "hunter2")
		for _, tt := range []struct {
			filter Filter
			want   int
		}{
			{Filter{"url", o.URL.Reveal()}, 1},
			{Filter{"url", "s3+https://key:other@s3.example.com/bucket"}, 0},
			{Filter{"publicUrl", "https://cdn.example.com"}, 1},
			{Filter{"name", "mine"}, 1},
			{Filter{"disabled", true}, 0},
		} {
			page, err := st.ObjectStores(ctx, Query{UserID: "u1", Filters: []Filter{tt.filter}})
			if err != nil || len(page.Items) != tt.want {
				t.Errorf("filter %s: %d object stores, %v; want %d", tt.filter.ID, len(page.Items), err, tt.want)
			}
		}
		if err := st.Tx(ctx, func(tx *Tx) error {
			_, err := tx.UpdateObjectStore(ctx, o.ID, func(o *weir.ObjectStore) error {
				o.Deleted = true
				return nil
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := st.ObjectStore(ctx, o.ID); err != nil || !got.Deleted || got.URL != o.URL {
			t.Errorf("deleted object store: %+v, %v; want it marked and its URL kept", got, err)
		}
		if page, err := st.ObjectStores(ctx, Query{UserID: "u1"}); err != nil || len(page.Items) != 0 {
			t.Errorf("%d object stores after deleting it, %v; want none", len(page.Items), err)
		}
	})
}
