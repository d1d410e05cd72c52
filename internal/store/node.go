package store

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

const (
	heartbeatEvery = 3 * time.Second
	// A node that could not send a heartbeat for so long stops its own jobs and deliveries …
	aliveFor = 9 * time.Second
	// … before other nodes take it for dead and take over its jobs and deliveries.
	deadAfter = 12 * time.Second
)

// node is this process, as other nodes see it.
type node struct {
	id       string // "" = a command: it runs no jobs
	boot     string // new at every start
	lastBeat *atomic.Int64
	slots    *atomic.Int64 // pieces it encodes at once
	url      *atomic.Value // a string: the URL at which other nodes reach it; "" = none
	report   func() weir.NodeReport
}

func newNode(id string, report func() weir.NodeReport) node {
	if report == nil {
		report = func() weir.NodeReport { return weir.NodeReport{} }
	}
	n := node{id: id, boot: weir.NewID()[:8], lastBeat: &atomic.Int64{}, slots: &atomic.Int64{}, url: &atomic.Value{}, report: report}
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

// lost reports whether other nodes may take this one for dead by now.
func (n node) lost() bool {
	return time.Since(time.UnixMilli(n.lastBeat.Load())) > aliveFor
}

// register enters this node, and requeues the jobs and deliveries that it had before a restart.
func (s *Store) register(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	now := time.Now()
	err := s.Tx(ctx, func(tx *Tx) error {
		if err := s.saveNode(ctx, tx.conn, now, ", boot = $2, started_at = $3"); err != nil {
			return err
		}
		if _, err := tx.requeue(ctx, s.node.id, s.node.client()); err != nil {
			return err
		}
		return tx.voidClaims(ctx)
	})
	if err == nil {
		s.node.lastBeat.Store(now.UnixMilli())
	}
	return err
}

// saveNode writes the row of this node; also is what else to change in a row that exists.
func (s *Store) saveNode(ctx context.Context, c conn, now time.Time, also string) error {
	report, err := json.Marshal(s.node.report())
	if err != nil {
		return err
	}
	_, err = c.exec(ctx, `INSERT INTO node (id, boot, started_at, seen_at, slots, url, report) VALUES ($1, $2, $3, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET seen_at = $3, slots = $4, url = $5, report = $6`+also,
		s.node.id, s.node.boot, weir.At(now), s.node.slots.Load(), s.node.url.Load(), string(report))
	return err
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

// stopLostJobs stops the jobs of this node if it could not send heartbeats for too long: another
// node may have them by now. It uses no database, because the database may be the reason.
func (s *Store) stopLostJobs(context.Context) error {
	if s.node.id != "" && s.node.lost() {
		s.jobs.cancel("", errLostJob)
	}
	return nil
}

// TryWrite returns an error if the database can't be written. What it writes is a heartbeat.
func (s *Store) TryWrite(ctx context.Context) error {
	now := time.Now()
	var known int64
	err := s.Tx(ctx, func(tx *Tx) (err error) {
		known, err = tx.conn.exec(ctx, "UPDATE node SET seen_at = $2 WHERE id = $1", s.node.id, weir.At(now))
		return err
	})
	if err == nil && known > 0 {
		s.node.lastBeat.Store(now.UnixMilli())
	}
	return err
}

// heartbeat records that this node is alive, and requeues the jobs and deliveries of dead nodes.
func (s *Store) heartbeat(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, aliveFor)
	defer cancel()
	err := s.Tx(ctx, func(tx *Tx) error {
		if err := s.saveNode(ctx, tx.conn, now, ""); err != nil {
			return err
		}
		dead, err := many(ctx, tx.conn, scanText, "SELECT id FROM node WHERE seen_at < $1", weir.At(now.Add(-deadAfter)))
		if err != nil {
			return err
		}
		for _, id := range dead {
			if _, err := tx.conn.exec(ctx, "DELETE FROM node WHERE id = $1", id); err != nil {
				return err
			}
			n, err := tx.requeue(ctx, id, "")
			if err != nil {
				return err
			}
			if n > 0 {
				s.log.WarnContext(ctx, "jobs of a dead node queued again", "node", id, "jobs", n)
			}
		}
		if err := tx.requeueClips(ctx); err != nil {
			return err
		}
		return tx.voidClaims(ctx)
	})
	if err == nil {
		s.node.lastBeat.Store(now.UnixMilli())
	}
	return err
}
