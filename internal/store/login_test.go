package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestRefreshToken(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), weir.At(time.Now())
		good := RefreshToken{UserID: "u1", CreatedAt: now, ExpiresAt: now + 1000, UsedAt: now}
		for token, rt := range map[weir.Secret]RefreshToken{
			"good": good, "revoked": {UserID: "u1", ExpiresAt: now + 1000, Revoked: true}, "expired": {UserID: "u1", ExpiresAt: now},
		} {
			if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateRefreshToken(ctx, token, rt) }); err != nil {
				t.Fatal(err)
			}
		}
		good.Hash = hashKey("good")
		got, err := st.RefreshToken(ctx, "good", now)
		if diff := cmp.Diff(good, got); err != nil || diff != "" {
			t.Errorf("good token: %v\n%s", err, diff)
		}
		for _, token := range []weir.Secret{"revoked", "expired", "unknown"} {
			if _, err := st.RefreshToken(ctx, token, now); weir.KindOf(err) != weir.NotFound || err == nil {
				t.Errorf("%s token: %v, want not found", token.Reveal(), err)
			}
		}
	})
}

func TestUserUsage(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		err := st.Tx(ctx, func(tx *Tx) error {
			for i, s := range []weir.Session{
				{UserID: "u1", ParentID: "a", CreatedAt: 100},
				{UserID: "u1", ParentID: "a", CreatedAt: 150, Deleted: true}, // was streamed all the same
				{UserID: "u1", ParentID: "b", CreatedAt: 199, ProjectID: "p2"},
				{UserID: "u1", ParentID: "c", CreatedAt: 99},
				{UserID: "u1", ParentID: "d", CreatedAt: 200},
				{UserID: "u2", ParentID: "e", CreatedAt: 150},
			} {
				s.ID = weir.NewID()
				n := int64(1) << (4 * i)
				s.Counters = weir.Counters{SourceSegments: n, TranscodedSegments: 2 * n, SourceSegmentsDuration: float64(n) / 2, TranscodedSegmentsDuration: float64(n)}
				if err := tx.CreateSession(ctx, &s); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for user, want := range map[string]weir.UserUsage{
			"u1": {
				SourceSegments: 0x111, TranscodedSegments: 0x222, SourceSegmentsDuration: 0x111 / 2.0, TranscodedSegmentsDuration: 0x111, StreamCount: 2,
			},
			"nobody": {},
		} {
			want.Storage = []weir.StorageDay{}
			got, err := st.UserUsage(ctx, user, 100, 200)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("usage of %s: %v\n%s", user, err, diff)
			}
		}
	})
}
