package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

// node is this process, as other nodes see it.
type node struct {
	id       string        // "" = a command: it runs no jobs
	boot     string        // new at every start
	lastBeat *atomic.Int64 // by this machine's clock
	contact  *contact
	slots    *atomic.Int64 // pieces it encodes at once
	url      *atomic.Value // a string: the URL at which other nodes reach it; "" = none
	report   func() weir.NodeReport
}

func newNode(id string, report func() weir.NodeReport) node {
	if report == nil {
		report = func() weir.NodeReport { return weir.NodeReport{} }
	}
	n := node{id: id, boot: weir.NewID()[:8], lastBeat: &atomic.Int64{}, contact: &contact{}, slots: &atomic.Int64{}, url: &atomic.Value{}, report: report}
	n.lastBeat.Store(time.Now().UnixMilli())
	n.url.Store("")
	return n
}

// client returns the name under which this process takes jobs. It starts with the node's id, so
// that a node recognizes the jobs that it ran before a restart.
func (n node) client() string {
	if n.id == "" {
		return "command." + n.boot
	}
	return n.id + "." + n.boot
}

// address returns the URL at which other nodes reach this one; "" = they can't, or not yet.
func (n node) address() string { return n.url.Load().(string) }

// lost reports whether other nodes may take this one for dead by now.
func (n node) lost() bool {
	return time.Since(time.UnixMilli(n.lastBeat.Load())) > aliveFor
}

// register enters this node, and requeues the jobs and deliveries that it had before a restart.
func (s *Store) register(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	began := time.Now()
	var seen int64
	err := s.Tx(ctx, func(tx *Tx) (err error) {
		if seen, err = s.saveNode(ctx, tx.conn, ", boot = $2, started_at = "+s.engine.now()); err != nil {
			return err
		}
		if _, err := tx.requeue(ctx, s.node.id, s.node.client()); err != nil {
			return err
		}
		return tx.voidClaims(ctx)
	})
	if err != nil {
		return err
	}
	return s.beaten(ctx, began, seen)
}

// saveNode writes the row of this node, and returns when that was; also is what else to change in a
// row that exists.
func (s *Store) saveNode(ctx context.Context, c conn, also string) (seen int64, err error) {
	report, err := json.Marshal(s.node.report())
	if err != nil {
		return 0, err
	}
	now := s.engine.now()
	return one(ctx, c, scanInt, `INSERT INTO node (id, boot, started_at, seen_at, slots, url, report) VALUES ($1, $2, `+now+`, `+now+`, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, slots = $3, url = $4, report = $5`+also+` RETURNING seen_at`,
		s.node.id, s.node.boot, s.node.slots.Load(), s.node.url.Load(), string(report))
}

// beaten notes a heartbeat that began at a time of this machine's clock, and was written at one of
// the database's.
func (s *Store) beaten(ctx context.Context, began time.Time, seen int64) error {
	s.node.contact.wrote(weir.Millis(seen))
	if s.node.lost() { // until it is not any more, it starts no jobs
		if err := s.stopTakenJobs(ctx); err != nil {
			return err
		}
	}
	s.node.lastBeat.Store(began.UnixMilli())
	return nil
}

// announceSlots publishes how many pieces of tasks this node encodes at once. If that fails, the
// next heartbeat does it.
func (s *Store) announceSlots(ctx context.Context, slots int) {
	s.node.slots.Store(int64(slots))
	if _, err := s.conn.exec(ctx, "UPDATE node SET slots = $2 WHERE id = $1", s.node.id, slots); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "encode slots of this node could not be written; the next heartbeat writes them", "err", err)
	}
}

// requeue enqueues the running jobs of a node again, except those of one client. Each becomes a job
// with a new id: River lets any client that was given a job finish it by its id, so a node that was
// only frozen could finish a job that another runs by now.
func (tx *Tx) requeue(ctx context.Context, node, except string) (int, error) {
	client := tx.store.engine.jobClient()
	jobs, err := many(ctx, tx.conn, scanNewJob, `UPDATE river_job SET state = 'cancelled', finalized_at = CURRENT_TIMESTAMP
		WHERE state = 'running' AND substr(`+client+`, 1, length(CAST($1 AS TEXT))) = $1 AND `+client+` <> $2
		RETURNING kind, args->>'ref'`, node+".", except)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	return len(jobs), tx.enqueue(ctx, jobs)
}

// unregister removes this node, so that no other waits for it.
func (s *Store) unregister(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	_, err := s.conn.exec(ctx, "DELETE FROM node WHERE id = $1 AND boot = $2", s.node.id, s.node.boot)
	return err
}

// stopLostJobs stops the jobs of this node if it could not send heartbeats for too long, without those
// that may run on: another node may have them by now. It uses no database, because the database may be
// the reason.
func (s *Store) stopLostJobs(context.Context) error {
	if s.node.id != "" && s.node.lost() {
		s.jobs.cancelWhere(errLostJob, func(_ int64, job runningJob) bool { return !job.runsOn })
	}
	return nil
}

// stopTakenJobs stops the jobs that another node took over while this one was lost.
func (s *Store) stopTakenJobs(ctx context.Context) error {
	own, err := many(ctx, s.conn, scanInt, "SELECT id FROM river_job WHERE state = 'running' AND "+s.engine.jobClient()+" = $1", s.node.client())
	if err == nil {
		s.jobs.cancelWhere(errLostJob, func(id int64, _ runningJob) bool { return !slices.Contains(own, id) })
	}
	return err
}

// TryWrite returns an error if the database can't be written. What it writes is a heartbeat.
func (s *Store) TryWrite(ctx context.Context) error {
	began := time.Now()
	seen, known, err := found(one(ctx, s.engine.alone(), scanInt, "UPDATE node SET seen_at = "+s.engine.now()+
		" WHERE id = $1 AND boot = $2 RETURNING seen_at", s.node.id, s.node.boot))
	if err != nil || !known {
		return err
	}
	return s.beaten(ctx, began, seen)
}

// heartbeat records that this node is alive, and takes over from dead nodes. The first is a single
// statement, so that a slow database does not make everybody look silent.
func (s *Store) heartbeat(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	began := time.Now()
	beat, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	seen, err := s.saveNode(beat, s.engine.alone(), "")
	if err == nil {
		err = s.beaten(beat, began, seen)
	}
	cancel()
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, aliveFor)
	defer cancel()
	return s.Tx(ctx, func(tx *Tx) error {
		if err := tx.takeOver(ctx); err != nil {
			return err
		}
		if err := tx.requeueClips(ctx); err != nil {
			return err
		}
		return tx.voidClaims(ctx)
	})
}

// takeOver removes dead nodes, and requeues their jobs.
func (tx *Tx) takeOver(ctx context.Context) error {
	s, now := tx.store, tx.store.engine.now()
	type silent struct {
		id  string
		now weir.Millis
	}
	const dead = "seen_at < %s - $1"
	all, err := many(ctx, tx.conn, func(r rows) (n silent, err error) { return n, r.Scan(&n.id, &n.now) },
		"SELECT id, "+now+" FROM node WHERE "+fmt.Sprintf(dead, now), deadAfter.Milliseconds())
	if err != nil {
		return err
	}
	for _, n := range all {
		// The time is that of the query: the database may have paused between the heartbeat and this.
		if !s.node.contact.covers(deadAfter, n.now) {
			return nil
		}
		removed, err := tx.conn.exec(ctx, "DELETE FROM node WHERE id = $2 AND "+fmt.Sprintf(dead, now), deadAfter.Milliseconds(), n.id)
		if err != nil {
			return err
		}
		if removed == 0 { // it is back
			continue
		}
		jobs, err := tx.requeue(ctx, n.id, "")
		if err != nil {
			return err
		}
		if jobs > 0 {
			s.log.WarnContext(ctx, "jobs of a dead node queued again", "node", n.id, "jobs", jobs)
		}
	}
	return nil
}
