package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func newSession(parent string, n int) weir.Session {
	return weir.Session{
		ID: weir.NewID(), Kind: "session", Name: fmt.Sprintf("s%d", n), ParentID: parent, UserID: "u1", ProjectID: "p1", PlaybackID: "pb",
		CreatedAt: weir.Millis(n), LastSeen: weir.Millis(n), Record: true, Counters: weir.Counters{SourceSegments: int64(n), SourceSegmentsDuration: 1.5, IngestRate: 2.5},
	}
}

func TestSession(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		recorded, failed, deleted, waiting, unrecorded := newSession("st", 1), newSession("st", 2), newSession("st", 3), newSession("st", 4), newSession("other", 5)
		unrecorded.Record = false
		asset := func(s weir.Session, phase weir.AssetPhase) *weir.Asset {
			a := newAsset(t, "")
			a.ID, a.PlaybackID, a.Status.Phase = s.ID, weir.NewPlaybackID(s.ID), phase
			a.Source = weir.AssetSource{Type: weir.SourceRecording, SessionID: s.ID}
			return &a
		}
		removed := asset(deleted, weir.AssetReady)
		removed.Delete(time.Now())
		createAssets(t, st, asset(recorded, weir.AssetReady), asset(failed, weir.AssetFailed), removed)
		if err := st.Tx(ctx, func(tx *Tx) error {
			for _, s := range []*weir.Session{&recorded, &failed, &deleted, &waiting, &unrecorded} {
				if err := tx.CreateSession(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		got, err := st.Session(ctx, recorded.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(recorded, got); diff != "" {
			t.Errorf("session differs (-want +got):\n%s", diff)
		}
		for _, tt := range []struct {
			filter Filter
			want   []string
		}{
			{Filter{"parentId", "st"}, []string{"s4", "s3", "s2", "s1"}},
			{Filter{"record", false}, []string{"s5"}},
			{Filter{"recordingStatus", "ready"}, []string{"s1"}},
			{Filter{"recordingStatus", "failed"}, []string{"s2"}},
			{Filter{"recordingStatus", "none"}, []string{"s3"}},
			{Filter{"recordingStatus", "waiting"}, []string{"s4"}},
			{Filter{"sourceSegments", map[string]any{"gt": 3.0}}, []string{"s5", "s4"}},
			{Filter{"sourceSegmentsDuration", 1.5}, []string{"s5", "s4", "s3", "s2", "s1"}},
		} {
			page, err := st.Sessions(ctx, Query{UserID: "u1", ProjectID: "p1", Filters: []Filter{tt.filter}})
			if err != nil {
				t.Fatalf("filter %v: %v", tt.filter, err)
			}
			var names []string
			for _, s := range page.Items {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff(tt.want, names); diff != "" {
				t.Errorf("filter %v (-want +got):\n%s", tt.filter, diff)
			}
		}
		recordings, err := st.RecordingAssets(ctx, []string{recorded.ID, waiting.ID})
		if err != nil || len(recordings) != 1 || recordings[recorded.ID].Source.SessionID != recorded.ID {
			t.Errorf("RecordingAssets = %v, %v; want that of %s", recordings, err, recorded.ID)
		}
		if recordings, err := st.RecordingAssets(ctx, nil); err != nil || len(recordings) != 0 {
			t.Errorf("RecordingAssets of nothing = %v, %v; want none", recordings, err)
		}
	})
}

// TestSessionPages walks by a computed field, for which keyset pages need the value
// of an expression.
func TestSessionPages(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		if err := st.Tx(ctx, func(tx *Tx) error {
			for i := range 7 {
				s := newSession("st", i)
				s.Record = i%2 == 0
				if err := tx.CreateSession(ctx, &s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, order := range []string{"recordingStatus-true", "recordingStatus-false,ingestRate-true", "sourceSegmentsDuration-false"} {
			seen := map[string]bool{}
			q := Query{UserID: "u1", Order: order, Limit: 2}
			for {
				page, err := st.Sessions(ctx, q)
				if err != nil {
					t.Fatalf("order %q: %v", order, err)
				}
				for _, s := range page.Items {
					seen[s.ID] = true
				}
				if q.Cursor = page.Next; q.Cursor == "" || len(seen) > 7 {
					break
				}
			}
			if len(seen) != 7 {
				t.Errorf("order %q: %d sessions on all pages, want 7", order, len(seen))
			}
		}
	})
}

func TestStreamsByID(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		a, b := newStream(t, "a"), newStream(t, "b")
		if err := st.Tx(ctx, func(tx *Tx) error {
			if err := tx.CreateStream(ctx, &a); err != nil {
				return err
			}
			return tx.CreateStream(ctx, &b)
		}); err != nil {
			t.Fatal(err)
		}
		got, err := st.StreamsByID(ctx, []string{a.ID, "nope"})
		if err != nil || len(got) != 1 || got[a.ID].Name != "a" {
			t.Errorf("StreamsByID = %v, %v; want a", got, err)
		}
	})
}
