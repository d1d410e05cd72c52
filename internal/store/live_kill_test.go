package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store/pgtest"
	"weir/internal/weir"
)

// countdown is a transaction that stops working before its nth statement.
type countdown struct {
	engineTx
	left *int
	stop func() error
}

func (c countdown) step() error {
	if *c.left--; *c.left < 0 {
		return c.stop()
	}
	return nil
}

func (c countdown) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	return c.engineTx.exec(ctx, sql, args...)
}

func (c countdown) query(ctx context.Context, sql string, args ...any) (rows, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	return c.engineTx.query(ctx, sql, args...)
}

func (c countdown) enqueue(ctx context.Context, jobs []newJob) error {
	return errors.Join(c.step(), c.engineTx.enqueue(ctx, jobs))
}

func (c countdown) notify(ctx context.Context, topic string) error {
	return errors.Join(c.step(), c.engineTx.notify(ctx, topic))
}

// countTx is Tx with a countdown.
func countTx(ctx context.Context, st *Store, left *int, stop func() error, do func(*Tx) error) error {
	return st.Tx(ctx, func(tx *Tx) error {
		c := countdown{tx.tx, left, stop}
		tx.tx, tx.conn = c, c
		return do(tx)
	})
}

// liveSteps are the transactions of a session, in their order.
func liveSteps(stream weir.Stream, now time.Time) []func(context.Context, *Tx) error {
	var air OnAir
	onAir := func(ctx context.Context, tx *Tx) (err error) {
		_, air, err = tx.GoOnAir(ctx, stream, time.Minute, now)
		return err
	}
	return []func(context.Context, *Tx) error{
		onAir,
		func(ctx context.Context, tx *Tx) error {
			_, err := tx.RenewOnAir(ctx, []Beat{beatOf(air, now, 9)}, now)
			return err
		},
		func(ctx context.Context, tx *Tx) error { return tx.GoOffAir(ctx, beatOf(air, now, 9), now) },
		onAir,
		func(ctx context.Context, tx *Tx) error {
			_, err := tx.UpdateStream(ctx, stream.ID, func(s *weir.Stream) error { return s.Terminate(now) })
			return err
		},
		func(ctx context.Context, tx *Tx) error {
			_, err := tx.CloseSession(ctx, beatOf(air, now, 9), now)
			return err
		},
	}
}

const lifeOfASession = "stream.started:a recording.started:a stream.idle:a stream.started:a stream.idle:a recording.waiting:a"

// TestFailureAtEachStatement lets every statement of a session fail once. A failed transaction
// leaves nothing, and doing it again emits its events once.
func TestFailureAtEachStatement(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		createWebhook(t, st, weir.WebhookBody{Name: "w", URL: "https://example.com", Events: []weir.EventName{weir.StreamStarted, weir.StreamIdle}})
		stream := liveStreamOf(t, st, "u1", true)
		failure := errors.New("the machine is on fire")
		look := func() string {
			air, _, err := found(st.OnAirOf(ctx, stream.PlaybackID))
			if err != nil {
				t.Fatal(err)
			}
			sessions, err := st.Sessions(ctx, Query{UserID: stream.UserID})
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal([]any{air, streamNow(t, st, stream.ID), sessions, events(t, st, stream.ID), pending(t, st)})
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		failed := 0
		for i, step := range liveSteps(stream, now) {
			before := look()
			for n := 0; ; n++ {
				left := n
				err := countTx(ctx, st, &left, func() error { return failure }, func(tx *Tx) error { return step(ctx, tx) })
				if err == nil {
					break
				}
				if !errors.Is(err, failure) {
					t.Fatalf("step %d, statement %d: %v", i, n, err)
				}
				failed++
				if diff := cmp.Diff(before, look()); diff != "" {
					t.Fatalf("step %d left something behind when statement %d failed (-before +after):\n%s", i, n, diff)
				}
			}
		}
		if failed < 30 {
			t.Errorf("only %d statements failed", failed)
		}
		checkTold(t, st, stream.ID, lifeOfASession)
	})
}

// TestKilledInTheMiddle kills a process between statements of a session. The next process finds a
// state that fits the events, and finishes the session: every event is emitted once.
func TestKilledInTheMiddle(t *testing.T) {
	if os.Getenv("LIVE_VICTIM") != "" {
		beLiveVictim(t)
		return
	}
	for name, url := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "weir.db"), "postgres": pgtest.Start(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := open(t, url, "node-a")
			ended := false
			for n := 0; !ended; n += 7 { // a step that no transaction has a multiple of
				stream := liveStream(t, st, true)
				victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledInTheMiddle$")
				victim.Env = append(os.Environ(), "LIVE_VICTIM="+strconv.Itoa(n), "LIVE_URL="+url, "LIVE_STREAM="+stream.ID)
				out, err := victim.CombinedOutput()
				if ended = err == nil; !ended && !killed(victim) {
					t.Fatalf("the victim ended by itself: %v\n%s", err, out)
				}
				finishSession(t, st, stream)
			}
		})
	}
}

func killed(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// beLiveVictim runs the steps of a session until it is killed.
func beLiveVictim(t *testing.T) {
	st := open(t, os.Getenv("LIVE_URL"), "node-a")
	left, err := strconv.Atoi(os.Getenv("LIVE_VICTIM"))
	if err != nil {
		t.Fatal(err)
	}
	die := func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	stream := streamNow(t, st, os.Getenv("LIVE_STREAM"))
	for _, step := range liveSteps(stream, time.Now()) {
		if err := countTx(t.Context(), st, &left, die, func(tx *Tx) error { return step(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
	}
}

// finishSession takes up what a killed node left of a session, and checks that what is
// told of it fits.
func finishSession(t *testing.T, st *Store, stream weir.Stream) {
	t.Helper()
	before := events(t, st, stream.ID)
	if len(before) > len(lifeOfASession) || lifeOfASession[:len(before)] != before {
		t.Fatalf("events %q", before)
	}
	open, err := st.OpenSessions(t.Context(), "node-a", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	active := streamNow(t, st, stream.ID).IsActive
	if len(open) == 0 {
		if active || before != "" && before != lifeOfASession {
			t.Errorf("no session is open, active %t, events %q", active, before)
		}
		return
	}
	session, err := st.Session(t.Context(), open[0].SessionID)
	if err != nil || len(open) > 1 || open[0].Connected != active {
		t.Fatalf("open %+v, active %t, %v", open, active, err)
	}
	last := Beat{StreamID: stream.ID, Epoch: open[0].Epoch, Counters: session.Counters}
	last.Counters.SourceBytes = max(last.Counters.SourceBytes, 1)
	if _, err := closeSession(t.Context(), st, last, time.Now()); err != nil {
		t.Fatal(err)
	}
	want := before + " recording.waiting:a"
	if active {
		want = before + " stream.idle:a recording.waiting:a"
	}
	checkTold(t, st, stream.ID, want)
}
