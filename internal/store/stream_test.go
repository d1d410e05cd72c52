package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestStream(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		s := newStream(t, "one")
		s.Pull = &weir.Pull{Source: "https://user:pass@example.com/live"}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) }); err != nil {
			t.Fatal(err)
		}
		got, err := st.Stream(ctx, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("stream differs (-want +got):\n%s", diff)
		}
		if got, err := st.StreamByKey(ctx, s.StreamKey); err != nil || got.ID != s.ID {
			t.Errorf("StreamByKey = %q, %v; want %q", got.ID, err, s.ID)
		}
		if _, err := st.StreamByKey(ctx, "abcd-abcd-abcd-abcd"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("StreamByKey of an unknown key: %v, want not found", err)
		}
		page, err := st.Streams(ctx, Query{UserID: "u1", ProjectID: "p1", Filters: []Filter{{"pull.source", s.Pull.Source}}})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("filter by a sealed field: %d streams, %v; want 1", len(page.Items), err)
		}
	})
}

func TestStreamPages(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		const n = 25
		now := time.Now()
		if err := st.Tx(ctx, func(tx *Tx) error {
			for i := range n {
				s := newStream(t, fmt.Sprintf("Stream %d_%%", i))
				s.CreatedAt = weir.At(now.Add(time.Duration(i/3) * time.Second)) // ties
				if i%5 == 0 {
					s.CreatorID = &weir.CreatorID{Type: "unverified", Value: "ann"}
				}
				if err := tx.CreateStream(ctx, &s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, order := range []string{"", "createdAt-true", "createdAt-false", "name-false,createdAt-true", "creatorId-false", "isActive-true,id-false", "nonsense"} {
			seen := map[string]bool{}
			q := Query{UserID: "u1", ProjectID: "p1", Order: order, Limit: 4, Count: true}
			for {
				page, err := st.Streams(ctx, q)
				if err != nil {
					t.Fatalf("order %q: %v", order, err)
				}
				if page.Total != n {
					t.Fatalf("order %q: total = %d, want %d", order, page.Total, n)
				}
				for _, s := range page.Items {
					if seen[s.ID] {
						t.Fatalf("order %q: %s comes twice", order, s.ID)
					}
					seen[s.ID] = true
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
			}
			if len(seen) != n {
				t.Errorf("order %q: %d streams on all pages, want %d", order, len(seen), n)
			}
		}
		for _, tt := range []struct {
			filter Filter
			want   int
			err    string
		}{
			{Filter{"creatorId", "ann"}, 5, ""},
			{Filter{"name", "stream 1_%"}, 1, ""},
			{Filter{"name", "STREAM"}, n, ""},
			{Filter{"isActive", false}, n, ""},
			{Filter{"isActive", "no"}, 0, `error parsing filters: Error: expected boolean value for field "isActive", got: "no"`},
			{Filter{"createdAt", map[string]any{"gte": float64(now.Add(time.Second).UnixMilli())}}, n - 3, ""},
			{Filter{"createdAt", map[string]any{"eq": float64(now.UnixMilli())}}, 3, ""},
			{Filter{"createdAt", map[string]any{"like": 1.0}}, 0, `error parsing filters: Error: unknown comparison: "like"`},
			{Filter{"user.email", "nobody@example.com"}, 0, ""},
			{Filter{"nope", "x"}, 0, `error parsing filters: Error: unknown field: "nope"`},
			{Filter{"name", "a\x00b"}, 0, `error parsing filters: Error: value of field "name" must not contain a zero byte`},
		} {
			page, err := st.Streams(ctx, Query{UserID: "u1", Filters: []Filter{tt.filter}, Limit: 1000})
			if text := errorText(err); text != tt.err || len(page.Items) != tt.want {
				t.Errorf("filter %v: %d streams, error %q; want %d, %q", tt.filter, len(page.Items), text, tt.want, tt.err)
			}
		}
		if page, err := st.Streams(ctx, Query{UserID: "u1", Cursor: "skip20", Limit: 10}); err != nil || len(page.Items) != 5 {
			t.Errorf("skip20: %d streams, %v; want 5", len(page.Items), err)
		}
		for _, cursor := range []string{"nonsense", "skip-1", "e30"} {
			if _, err := st.Streams(ctx, Query{UserID: "u1", Cursor: cursor}); weir.KindOf(err) != weir.Refused {
				t.Errorf("cursor %q: %v, want refused", cursor, err)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
