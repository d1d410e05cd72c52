package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/internal/store/pgtest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// pass makes as if time had passed in which nobody wrote to the database: the rows are older, and the
// last contact of the nodes too.
func pass(t *testing.T, d time.Duration, nodes ...*Store) {
	t.Helper()
	for _, sql := range []string{
		"UPDATE node SET seen_at = seen_at - $1, started_at = started_at - $1",
		"UPDATE live SET seen_at = seen_at - $1, expires_at = expires_at - $1, closes_at = closes_at - $1",
		"UPDATE pull SET expires_at = expires_at - $1, due_at = due_at - $1",
	} {
		if _, err := nodes[0].conn.exec(t.Context(), sql, d.Milliseconds()); err != nil {
			t.Fatal(err)
		}
	}
	for _, st := range nodes {
		st.node.lastBeat.Add(-d.Milliseconds())
		st.node.contact.mu.Lock()
		st.node.contact.since -= weir.Millis(d.Milliseconds())
		st.node.contact.last -= weir.Millis(d.Milliseconds())
		st.node.contact.mu.Unlock()
	}
}

// passSteps is pass in short steps, after each of which one node judges others, and more nodes send
// heartbeats.
func passSteps(t *testing.T, d time.Duration, judging *Store, alive ...*Store) {
	t.Helper()
	for ; d > 0; d -= time.Second {
		pass(t, time.Second, append(alive, judging)...)
		for _, st := range alive {
			if err := st.TryWrite(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		judge(t, judging)
	}
}

// held is all that a node can hold: a job, the claim of a delivery, a stream and a pull.
type held struct {
	job    heldJob
	line   Line
	stream weir.Stream
	air    OnAir
	pull   PullBeat
}

func hold(t *testing.T, st *Store) held {
	t.Helper()
	jobs, _ := work(t, st, 1, JobTask)
	enqueue(t, st, JobTask, "x")
	h := held{job: <-jobs}
	hook := hookOfAssets(t, st)
	e := emit(t, st, "asset/1")
	h.line = claimLine(t, st, hook, &e)
	h.stream = liveStream(t, st, true)
	_, h.air = goOnAir(t, st, h.stream, time.Now())
	id := pulled(t, st).ID
	startPull(t, st, id, false, time.Now())
	h.pull = mustClaim(t, st, id, time.Now())
	return h
}

// judge has a node look for what it can take from others.
func judge(t *testing.T, st *Store) {
	t.Helper()
	if err := errors.Join(st.heartbeat(t.Context()), st.endLapsed(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// check checks that a node has what it held, and that nobody was told otherwise.
func (h *held) check(t *testing.T, st, other *Store) {
	t.Helper()
	if err := st.JobTx(t.Context(), h.job.Job, func(*Tx) error { return nil }); err != nil {
		t.Errorf("its job: %v", err)
	}
	if l, ok := tryClaim(t, other, weir.Webhook{ID: h.line.WebhookID}); ok {
		t.Errorf("another node has claimed %v", l)
	}
	if p, ok := claimPull(t, other, time.Now()); ok {
		t.Errorf("another node has claimed %+v", p)
	}
	checkTold(t, st, h.stream.ID, "stream.started:a recording.started:a")
}

// TestPauseOfAll has nodes and their database pause for minutes, as a machine does that has all of them, or a
// database that fails over: nobody takes anything from anybody, and nobody is told of anything. A node
// that stays silent after that is dead.
func TestPauseOfAll(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		if err := errors.Join(a.register(ctx), b.register(ctx)); err != nil {
			t.Fatal(err)
		}
		inTouch(t, b, time.Now())
		h := hold(t, a)
		judge(t, b)
		h.check(t, a, b)

		pass(t, 7*time.Minute, a, b)
		judge(t, b)
		h.check(t, a, b)
		if err := errors.Join(a.heartbeat(ctx), a.endLapsed(ctx)); err != nil {
			t.Fatal(err)
		}
		checkLost(t, a, time.Now(), beatOf(h.air, time.Now(), 10), "")
		if lost, err := a.RenewPulls(ctx, []PullBeat{h.pull}, time.Now()); err != nil || len(lost) > 0 {
			t.Errorf("lost the pulls %v, %v", lost, err)
		}
		h.check(t, a, b)

		// From here on only the second node sends heartbeats.
		passSteps(t, deadAfter+time.Second, b)
		if err := a.JobTx(ctx, h.job.Job, func(*Tx) error { return nil }); !errors.Is(err, errLostJob) {
			t.Errorf("the job of a dead node: %v, want that it is lost", err)
		}
		if _, ok := tryClaim(t, b, weir.Webhook{ID: h.line.WebhookID}); !ok {
			t.Error("the claim of a dead node is not void")
		}
		if p, ok := claimPull(t, b, time.Now()); !ok || p.StreamID != h.pull.StreamID {
			t.Errorf("claimed %+v, %v; want the pull of a dead node", p, ok)
		}
		checkTold(t, b, h.stream.ID, "stream.started:a recording.started:a stream.idle:a")
		h.job.end <- nil
	})
}

// TestPauseOfJudge has only the node that judges pause, between its heartbeat and the look at others, while
// the database does too: what it finds then is old for all.
func TestPauseOfJudge(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		if err := errors.Join(a.register(ctx), b.register(ctx)); err != nil {
			t.Fatal(err)
		}
		inTouch(t, b, time.Now())
		h := hold(t, a)
		pass(t, 30*time.Second, a, b)
		inTx(t, b, func(tx *Tx) error { return tx.takeOver(ctx) })
		if err := b.endLapsed(ctx); err != nil {
			t.Fatal(err)
		}
		h.check(t, a, b)
		h.job.end <- nil
	})
}

// TestNewNodeWaits shows that a node that has only just started takes nobody for dead: it can't know
// whether the database was there.
func TestNewNodeWaits(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		if err := a.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := hold(t, a)
		pass(t, time.Minute, a)
		if err := b.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		judge(t, b)
		h.check(t, a, b)
		h.job.end <- nil
	})
}

// TestSlowBeats shows that the streams and pulls of a node that sends heartbeats are its own although
// their beats are late, as over a slow connection.
func TestSlowBeats(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		if err := errors.Join(a.register(ctx), b.register(ctx)); err != nil {
			t.Fatal(err)
		}
		h := hold(t, a)
		inTouch(t, b, time.Now())
		passSteps(t, deadAfter+time.Second, b, a)
		h.check(t, a, b)
		h.job.end <- nil
	})
}

// TestFrozenDatabase freezes the database for longer than any lease: a lock holds up every heartbeat and
// every beat. One node is back before the other, and takes nothing from it.
func TestFrozenDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("takes longer than a node may be silent")
	}
	t.Parallel()
	ctx, url := t.Context(), pgtest.Start(t)
	a, b := open(t, url, "node-a"), open(t, url, "node-b")
	if err := a.register(ctx); err != nil {
		t.Fatal(err)
	}
	run(t, b)
	wait.NoError(t, func() error {
		known, err := b.Registered(ctx)
		if err == nil && !known {
			err = errors.New("the node is not registered")
		}
		return err
	})
	h := hold(t, a)
	inTouch(t, b, time.Now())

	freezer, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = freezer.Close(context.WithoutCancel(ctx)) }()
	frozen, err := freezer.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"LOCK TABLE node, live, pull IN ACCESS EXCLUSIVE MODE",
		fmt.Sprintf("SELECT pg_sleep(%v)", (deadAfter + 2*time.Second).Seconds()),
	} {
		if _, err := frozen.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	thawed := time.Now()
	if err := frozen.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a heartbeat of the second node", func() bool { return b.node.lastBeat.Load() > thawed.UnixMilli() })
	judge(t, b)
	h.check(t, a, b)
	if err := a.heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	checkLost(t, a, time.Now(), beatOf(h.air, time.Now(), 10), "")
	judge(t, b)
	h.check(t, a, b)
	h.job.end <- nil
}

// TestClockOfDatabase has a database whose clock is an hour ahead of the machines: leases are judged by
// that clock.
func TestClockOfDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Start(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), `CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	url += "&search_path=public,pg_catalog"
	a, b := open(t, url, "node-a"), open(t, url, "node-b")
	ctx, now := t.Context(), time.Now()
	if err := errors.Join(a.register(ctx), b.register(ctx)); err != nil {
		t.Fatal(err)
	}
	h := hold(t, a)
	inTouch(t, b, now)
	if ahead := h.air.SeenAt.Time().Sub(now); ahead < 59*time.Minute {
		t.Errorf("the lease begins %v after now, want an hour: the database's clock", ahead)
	}
	nodes, err := b.Nodes(ctx)
	if err != nil || len(nodes) != 2 || !nodes[0].Alive || nodes[0].LastSeen < weir.At(now.Add(59*time.Minute)) {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	judge(t, b)
	h.check(t, a, b)
	passSteps(t, weir.OnAirLease+time.Second, b)
	checkTold(t, b, h.stream.ID, "stream.started:a recording.started:a stream.idle:a")
	// Media that has come since brings it back, though it came before that by the clock of the machine.
	checkLost(t, a, time.Now(), beatOf(h.air, time.Now(), 10), "")
	checkTold(t, b, h.stream.ID, "stream.started:a recording.started:a stream.idle:a stream.started:a")
	h.job.end <- nil
}
