package store

import (
	"context"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

const (
	heartbeatEvery = 3 * time.Second
	// A node that could not say for so long that it is alive stops its own work …
	aliveFor = 9 * time.Second
	// … before the others take it for dead and give its jobs away.
	deadAfter = 12 * time.Second
)

// node is this process, as the others see it.
type node struct {
	id       string // "" = a command: it runs no jobs
	boot     string // new at every start
	lastBeat *atomic.Int64
	slots    *atomic.Int64 // pieces it does at once
	url      *atomic.Value // a text: how others reach it; "" = not at all
}

func newNode(id string) node {
	n := node{id: id, boot: weir.NewID()[:8], lastBeat: &atomic.Int64{}, slots: &atomic.Int64{}, url: &atomic.Value{}}
	n.lastBeat.Store(time.Now().UnixMilli())
	n.url.Store("")
	return n
}

// client is the name under which this process takes jobs. It starts with the
// node's id, so that a node knows the jobs of its former life.
func (n node) client() string {
	if n.id == "" {
		return "command." + n.boot
	}
	return n.id + "." + n.boot
}

// lost reports whether the others may take this node for dead by now.
func (n node) lost() bool {
	return time.Since(time.UnixMilli(n.lastBeat.Load())) > aliveFor
}

// register enters this node and takes back what its former life left running.
func (s *Store) register(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	now := time.Now()
	err := s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.conn.exec(ctx, `INSERT INTO node (id, boot, started_at, seen_at, slots, url) VALUES ($1, $2, $3, $3, $4, $5)
			ON CONFLICT (id) DO UPDATE SET boot = $2, started_at = $3, seen_at = $3, slots = $4, url = $5`,
			s.node.id, s.node.boot, weir.At(now), s.node.slots.Load(), s.node.url.Load()); err != nil {
			return err
		}
		_, err := tx.requeue(ctx, []string{s.node.id + "."}, s.node.client())
		return err
	})
	if err == nil {
		s.node.lastBeat.Store(now.UnixMilli())
	}
	return err
}

// announceSlots says how many pieces of tasks this node does at once. If that fails,
// the next heartbeat says it.
func (s *Store) announceSlots(ctx context.Context, slots int) {
	s.node.slots.Store(int64(slots))
	if _, err := s.conn.exec(ctx, "UPDATE node SET slots = $2 WHERE id = $1", s.node.id, slots); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "slots were not announced", "err", err)
	}
}

// requeue lets others do the running jobs of clients. Each becomes a job with a new
// id: River lets whoever was given a job finish it by its id, whichever attempt
// that was, so a node that was only asleep could finish what another does by now.
func (tx *Tx) requeue(ctx context.Context, prefixes []string, except string) (int, error) {
	jobs, err := tx.store.engine.takeOver(ctx, tx.conn, prefixes, except)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	return len(jobs), tx.enqueue(ctx, jobs)
}

// unregister says that this node leaves, so that nobody waits for it.
func (s *Store) unregister(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	_, err := s.conn.exec(ctx, "DELETE FROM node WHERE id = $1 AND boot = $2", s.node.id, s.node.boot)
	return err
}

// letGo stops the jobs of a node that could not say for too long that it is alive:
// somebody else may have them by now. It asks nobody, because a database that does
// not answer may be the reason.
func (s *Store) letGo(context.Context) error {
	if s.node.id != "" && s.node.lost() {
		s.jobs.cancel("", ErrLostJob)
	}
	return nil
}

// heartbeat says that this node is alive and gives away the jobs of those that
// have been silent for too long.
func (s *Store) heartbeat(ctx context.Context) error {
	if s.node.id == "" {
		return nil
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, aliveFor)
	defer cancel()
	err := s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.conn.exec(ctx, `INSERT INTO node (id, boot, started_at, seen_at, slots, url) VALUES ($1, $2, $3, $3, $4, $5)
			ON CONFLICT (id) DO UPDATE SET seen_at = $3, slots = $4, url = $5`,
			s.node.id, s.node.boot, weir.At(now), s.node.slots.Load(), s.node.url.Load()); err != nil {
			return err
		}
		dead, err := many(ctx, tx.conn, scanText, "SELECT id FROM node WHERE seen_at < $1", weir.At(now.Add(-deadAfter)))
		if err != nil || len(dead) == 0 {
			return err
		}
		prefixes := make([]string, len(dead))
		for i, id := range dead {
			prefixes[i] = id + "."
			if _, err := tx.conn.exec(ctx, "DELETE FROM node WHERE id = $1", id); err != nil {
				return err
			}
		}
		n, err := tx.requeue(ctx, prefixes, "")
		if n > 0 {
			s.log.WarnContext(ctx, "jobs of a node that is gone are available again", "jobs", n)
		}
		return err
	})
	if err == nil {
		s.node.lastBeat.Store(now.UnixMilli())
	}
	return err
}
