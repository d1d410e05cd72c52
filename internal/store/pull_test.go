package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// TestPull runs the tests of one node.
func TestPull(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		t.Run("states", func(t *testing.T) { testPullStates(t, st) })
		t.Run("owner ends", func(t *testing.T) { testPullOwnerEnds(t, st) })
		t.Run("publishing is blocked", func(t *testing.T) { testPullBlocked(t, st) })
	})
}

// TestPullOnTwoNodes runs those of two.
func TestPullOnTwoNodes(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		t.Run("silent node", func(t *testing.T) { testPullSilentNode(t, a, b) })
		t.Run("many claim", func(t *testing.T) { testPullManyClaim(t, a, b) })
	})
}

// pulled writes a stream that has a source.
func pulled(t *testing.T, st *Store) weir.Stream {
	t.Helper()
	s := liveStream(t, st, false)
	inTx(t, st, func(tx *Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.ID, func(s *weir.Stream) error {
			s.Pull = &weir.Pull{Source: "https://example.com/" + s.ID, Headers: map[string]string{"X-Auth": "secret"}}
			return nil
		})
		return err
	})
	return streamNow(t, st, s.ID)
}

func startPull(t *testing.T, st *Store, id string, restart bool, now time.Time) (p Pulling) {
	t.Helper()
	inTx(t, st, func(tx *Tx) (err error) {
		p, err = tx.StartPull(t.Context(), id, restart, now)
		return err
	})
	return p
}

func claimPull(t *testing.T, st *Store, now time.Time) (Pulling, bool) {
	t.Helper()
	p, stream, ok, err := st.ClaimPull(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if ok && (stream.ID != p.StreamID || stream.Pull == nil || stream.Pull.Source != "https://example.com/"+stream.ID || stream.Pull.Headers["X-Auth"] != "secret") {
		t.Errorf("claimed %+v, and its stream is %+v", p, stream)
	}
	return p, ok
}

func mustClaim(t *testing.T, st *Store, id string, now time.Time) PullBeat {
	t.Helper()
	p, ok := claimPull(t, st, now)
	if !ok || p.StreamID != id {
		t.Fatalf("claimed %+v, %v, want the pull of %s", p, ok, id)
	}
	return PullBeat{StreamID: id, Claim: p.Claim, Position: p.Position}
}

func pullNow(t *testing.T, st *Store, id string) Pulling {
	t.Helper()
	p, err := st.PullOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkIssue checks the issue that the owner sees.
func checkIssue(t *testing.T, st *Store, id, want string, healthy *bool) {
	t.Helper()
	var issues []string
	if want != "" {
		issues = []string{want}
	}
	s := streamNow(t, st, id)
	if diff := cmp.Diff(issues, s.Issues); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(healthy, s.IsHealthy); diff != "" {
		t.Errorf("isHealthy (-want +got):\n%s", diff)
	}
}

// testPullStates follows a pull from the request over failures to its end.
func testPullStates(t *testing.T, st *Store) {
	ctx, now := t.Context(), time.Now()
	id := pulled(t, st).ID
	if p := pullNow(t, st, id); p.Wanted || p.Request != 0 {
		t.Errorf("before it was ever wanted: %+v", p)
	}
	if p, ok := claimPull(t, st, now); ok {
		t.Errorf("claimed %+v, which is not wanted", p)
	}
	first := startPull(t, st, id, false, now)
	if again := startPull(t, st, id, false, now); again != first {
		t.Errorf("wanted twice: %+v, want it as it was: %+v", again, first)
	}
	beat := mustClaim(t, st, id, now)
	if p, ok := claimPull(t, st, now); ok {
		t.Errorf("claimed %+v, which a node has", p)
	}
	beat.Position = 7
	if lost, err := st.RenewPulls(ctx, []PullBeat{beat}, now); err != nil || len(lost) > 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	if err := st.PullPlays(ctx, beat); err != nil || !pullNow(t, st, id).Plays {
		t.Errorf("it plays: %+v, %v", pullNow(t, st, id), err)
	}

	// It fails, and is tried again a little later each time.
	for failures, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if err := st.PullFailed(ctx, beat, "the source is gone", 0, now); err != nil {
			t.Fatal(err)
		}
		checkIssue(t, st, id, "the source is gone", new(false))
		if p := pullNow(t, st, id); p.Failures != int64(failures+1) || p.DueAt != weir.At(now.Add(pause)) || p.Position != 7 {
			t.Errorf("after failure %d: %+v, want it due in %v", failures+1, p, pause)
		}
		if p, ok := claimPull(t, st, now.Add(pause-time.Millisecond)); ok {
			t.Errorf("claimed %+v, which is not due", p)
		}
		now = now.Add(pause)
		beat = mustClaim(t, st, id, now)
	}
	if err := st.PullFailed(ctx, beat, "the source is gone again", time.Minute, now); err != nil {
		t.Fatal(err)
	}
	if p := pullNow(t, st, id); p.Failures != 1 {
		t.Errorf("%d failures in a row after a minute of media, want 1", p.Failures)
	}
	checkIssue(t, st, id, "the source is gone again", new(false))

	// A new request does not have to wait.
	if p := startPull(t, st, id, false, now); p.Request != first.Request+1 || p.Plays || p.Failures != 0 {
		t.Errorf("wanted again: %+v", p)
	}
	checkIssue(t, st, id, "", nil)
	if err := st.PullPlays(ctx, beat); !errors.Is(err, ErrLostPull) {
		t.Errorf("an old claim: %v, want ErrLostPull", err)
	}
	beat = mustClaim(t, st, id, now)
	if beat.Position != 0 {
		t.Errorf("a new request begins at %d", beat.Position)
	}
	if err := st.PullDone(ctx, beat); err != nil {
		t.Fatal(err)
	}
	if p := pullNow(t, st, id); p.Wanted {
		t.Errorf("through, and still %+v", p)
	}
	if p, ok := claimPull(t, st, now.Add(time.Hour)); ok {
		t.Errorf("claimed %+v, which is through", p)
	}
}

// testPullOwnerEnds lets the owner end pulls in all ways there are.
func testPullOwnerEnds(t *testing.T, st *Store) {
	for name, change := range map[string]func(*weir.Stream){
		"terminate": func(s *weir.Stream) { s.LastTerminatedAt = new(weir.At(time.Now())) },
		"suspend":   func(s *weir.Stream) { s.Suspended = true },
		"delete":    func(s *weir.Stream) { s.Deleted = true },
	} {
		now := time.Now()
		id := pulled(t, st).ID
		startPull(t, st, id, false, now)
		beat := mustClaim(t, st, id, now)
		if err := st.PullFailed(t.Context(), beat, "gone", 0, now); err != nil {
			t.Fatal(err)
		}
		beat = mustClaim(t, st, id, now.Add(time.Minute))
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.UpdateStream(t.Context(), id, func(s *weir.Stream) error {
				change(s)
				return nil
			})
			return err
		})
		if lost, err := st.RenewPulls(t.Context(), []PullBeat{beat}, now); err != nil || len(lost) != 1 || lost[0] != id {
			t.Errorf("%s: lost %v, %v", name, lost, err)
		}
		if p := pullNow(t, st, id); p.Wanted {
			t.Errorf("%s: still %+v", name, p)
		}
		checkIssue(t, st, id, "", nil)
	}
}

// testPullBlocked checks that a pull ends whose account is suspended meanwhile.
func testPullBlocked(t *testing.T, st *Store) {
	now := time.Now()
	s := pulled(t, st)
	startPull(t, st, s.ID, false, now)
	inTx(t, st, func(tx *Tx) error {
		_, err := tx.UpdateUser(t.Context(), s.UserID, func(u *weir.User) error {
			u.Suspended = true
			return nil
		})
		return err
	})
	if p, ok := claimPull(t, st, now); ok {
		t.Errorf("claimed %+v of an account that is suspended", p)
	}
	if p := pullNow(t, st, s.ID); p.Wanted {
		t.Errorf("still %+v", p)
	}
}

// testPullSilentNode lets another node take over when one is silent, releases the pull, or
// restarts.
func testPullSilentNode(t *testing.T, a, b *Store) {
	ctx, now := t.Context(), time.Now()
	id := pulled(t, a).ID
	startPull(t, a, id, false, now)
	before := mustClaim(t, a, id, now)
	before.Position = 3
	if _, err := a.RenewPulls(ctx, []PullBeat{before}, now); err != nil {
		t.Fatal(err)
	}
	if p, ok := claimPull(t, b, now.Add(weir.PullLease)); ok {
		t.Errorf("claimed %+v without having been in contact with the database for as long", p)
	}
	inTouch(t, b, now.Add(weir.PullLease))
	if p, ok := claimPull(t, b, now.Add(weir.PullLease-time.Millisecond)); ok {
		t.Errorf("claimed %+v of a node that is alive", p)
	}
	after := mustClaim(t, b, id, now.Add(weir.PullLease))
	if after.Position != 3 {
		t.Errorf("continues at %d, want 3", after.Position)
	}
	for _, err := range []error{
		a.PullPlays(ctx, before), a.PullFailed(ctx, before, "x", 0, now), a.PullDone(ctx, before), a.ReleasePull(ctx, before, now),
	} {
		if !errors.Is(err, ErrLostPull) {
			t.Errorf("the silent node can write: %v", err)
		}
	}
	if lost, err := a.RenewPulls(ctx, []PullBeat{before}, now); err != nil || len(lost) != 1 {
		t.Errorf("lost %v, %v", lost, err)
	}
	after.Position = 5
	if err := b.ReleasePull(ctx, after, now); err != nil {
		t.Fatal(err)
	}
	if mine := mustClaim(t, a, id, now); mine.Position != 5 {
		t.Errorf("continues at %d, want 5", mine.Position)
	}
	// The same node after a restart does not wait for itself.
	former := a.node.boot
	a.node.boot = "another"
	mustClaim(t, a, id, now)
	a.node.boot = former
	inTx(t, a, func(tx *Tx) error { return tx.StopPull(ctx, id, 0) })
}

// testPullManyClaim has two nodes claim the same pulls at the same time: each goes to one.
func testPullManyClaim(t *testing.T, a, b *Store) {
	const count = 20
	now := time.Now()
	for range count {
		startPull(t, a, pulled(t, a).ID, false, now)
	}
	var mu sync.Mutex
	claimed := map[string]int{}
	var failed error
	var claiming sync.WaitGroup
	for _, st := range []*Store{a, b, a, b} {
		claiming.Go(func() {
			for {
				p, _, ok, err := st.ClaimPull(context.WithoutCancel(t.Context()), now)
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("claim: %w", err))
				} else if ok {
					claimed[p.StreamID]++
				}
				mu.Unlock()
				if err != nil || !ok {
					return
				}
			}
		})
	}
	claiming.Wait()
	for id, n := range claimed {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
	if len(claimed) != count || failed != nil {
		t.Errorf("%d of %d pulls were claimed, %v", len(claimed), count, failed)
	}
}
