package store

import (
	"testing"
	"time"

	"weir/internal/weir"
)

func TestSize(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		before, err := st.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if before.Bytes < 100_000 || before.Rows["account"] != 0 || before.Rows["counter"] == 0 || len(before.Rows) < 20 {
			t.Errorf("a new database has %+v", before)
		}
		for range 3000 {
			view := weir.View{ID: weir.NewID(), PlaybackID: "p", UserID: "u", StartedAt: weir.At(time.Now()), LastSeen: weir.At(time.Now())}
			if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.SaveViews(t.Context(), view) }); err != nil {
				t.Fatal(err)
			}
		}
		after, err := st.Size(t.Context())
		if err != nil || after.Rows["viewing"] != 3000 || after.Bytes < before.Bytes+300_000 {
			t.Errorf("with views it has %+v, %v; before %+v", after, err, before)
		}
	})
}
