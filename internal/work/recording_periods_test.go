package work

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// A recording that several nodes have parts of is made of all of them that can be had.
func TestRecordingOfPeriods(t *testing.T) {
	s := newStudio(t, newFixture(t))
	_, session, _ := s.onAir(t)
	folders := map[int]string{0: filepath.Join(s.dir, "first"), 2: filepath.Join(s.dir, "third")}
	for _, dir := range folders {
		worktest.Record(t, dir, 1)
	}
	kind := weir.Upstream
	r := &Recordings{Store: s.Store, Media: s.Media, Log: s.Log, Period: func(_ context.Context, _ weir.Session, period int) (string, error) {
		switch period {
		case 1:
			return "", weir.Errorf(weir.NotFound, "nothing came")
		case 3:
			return "", weir.Errorf(kind, "it does not answer")
		}
		return folders[period], nil
	}}
	s.inTx(t, func(tx *store.Tx) (err error) {
		session, err = tx.UpdateSession(t.Context(), session.ID, func(one *weir.Session) error {
			for _, node := range []string{"a", "b", "c", "d"} {
				one.Move(&weir.OnAir{Node: node})
			}
			return nil
		})
		return err
	})
	if dirs, err := r.earlierPeriods(t.Context(), session); weir.KindOf(err) != weir.Upstream {
		t.Errorf("a node that may come back is not waited for: %v, %v", dirs, err)
	}
	session.LastSeen = weir.At(time.Now().Add(-2 * periodTimeout))
	want := []string{folders[0], "", folders[2], ""}
	for range 2 {
		dirs, err := r.earlierPeriods(t.Context(), session)
		if diff := cmp.Diff(want, dirs); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		if session, err = s.Store.Session(t.Context(), session.ID); err != nil || !session.Earlier[3].Lost || session.Earlier[1].Lost {
			t.Errorf("the session is %+v, %v", session.Earlier, err)
		}
	}
}
