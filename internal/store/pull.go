package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/weir"
)

// The rules of pulling are in package weir (pull.go there). The row of a pull is locked after that
// of its stream, if that is locked too.

// Pulling is a request that weir pulls a stream from its source.
type Pulling = weir.Pulling

// ErrLostPull says that another node has the pull by now, or that it has ended.
var ErrLostPull = errors.New("another node has claimed the pull, or the pull was stopped")

const pullColumns = "stream_id, wish, wanted, plays, failures, issue, position, node, boot, claim, expires_at, due_at"

func scanPull(r rows) (p Pulling, err error) {
	err = r.Scan(&p.StreamID, &p.Request, &p.Wanted, &p.Plays, &p.Failures, &p.Issue, &p.Position, &p.Node, &p.Boot, &p.Claim, &p.ExpiresAt, &p.DueAt)
	return p, err
}

func (tx *Tx) savePull(ctx context.Context, p *Pulling) error {
	_, err := tx.conn.exec(ctx, "INSERT INTO pull ("+pullColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (stream_id) DO UPDATE SET wish = excluded.wish, wanted = excluded.wanted, plays = excluded.plays, failures = excluded.failures,
			issue = excluded.issue, position = excluded.position, node = excluded.node, boot = excluded.boot, claim = excluded.claim,
			expires_at = excluded.expires_at, due_at = excluded.due_at`,
		p.StreamID, p.Request, p.Wanted, p.Plays, p.Failures, p.Issue, p.Position, p.Node, p.Boot, p.Claim, int64(p.ExpiresAt), int64(p.DueAt))
	return err
}

// PullOf returns the pull of a stream; the zero value but for the id if there was none.
func (q *queries) PullOf(ctx context.Context, streamID string) (Pulling, error) {
	p, _, err := found(one(ctx, q.conn, scanPull, "SELECT "+pullColumns+" FROM pull WHERE stream_id = $1", streamID))
	p.StreamID = streamID
	return p, err
}

func (tx *Tx) lockPull(ctx context.Context, streamID string) (Pulling, error) {
	p, _, err := found(one(ctx, tx.conn, scanPull, "SELECT "+pullColumns+" FROM pull WHERE stream_id = $1"+tx.store.engine.forUpdate(), streamID))
	p.StreamID = streamID
	return p, err
}

// LockSources lets only one transaction at a time create a stream unless there is one with the same
// source. Call it first.
func (tx *Tx) LockSources(ctx context.Context) error {
	_, err := one(ctx, tx.conn, scanInt, "SELECT value FROM counter WHERE name = 'pull-source'"+tx.store.engine.forUpdate())
	return err
}

// StartPull starts the pull of a stream, whose row the transaction has locked. A pull that runs
// already continues, unless restart is set or it waits for its next attempt.
func (tx *Tx) StartPull(ctx context.Context, streamID string, restart bool, now time.Time) (Pulling, error) {
	p, err := tx.lockPull(ctx, streamID)
	if err != nil || p.Wanted && p.Issue == "" && !restart {
		return p, err
	}
	if now, err = tx.onClock(ctx, now); err != nil {
		return p, err
	}
	p.Start(now)
	if err := tx.setPullIssue(ctx, streamID, ""); err != nil {
		return p, err
	}
	tx.bumpLater(TopicPull)
	return p, tx.savePull(ctx, &p)
}

// StopPull ends the pull of a stream, whose row the transaction has locked. A request other than
// 0 ends only that request, not a later one.
func (tx *Tx) StopPull(ctx context.Context, streamID string, request int64) error {
	p, err := tx.lockPull(ctx, streamID)
	if err != nil || !p.Wanted || request != 0 && p.Request != request {
		return err
	}
	p.Stop()
	tx.bumpLater(TopicPull)
	return errors.Join(tx.savePull(ctx, &p), tx.setPullIssue(ctx, streamID, ""))
}

// setPullIssue shows the owner why the source fails.
func (tx *Tx) setPullIssue(ctx context.Context, streamID, issue string) error {
	_, err := streams.update(ctx, tx, streamID, func(s *weir.Stream) error {
		s.SetPullIssue(issue)
		return nil
	})
	return err
}

// ClaimPull takes a pull that no node has, or that of a dead node or of this node before a restart.
// ok is false when there is none.
func (s *Store) ClaimPull(ctx context.Context, now time.Time) (p Pulling, stream weir.Stream, ok bool, err error) {
	if now, err = s.onClock(ctx, s.conn, now); err != nil {
		return p, stream, false, err
	}
	var judged weir.Millis // leases are over that end before this
	if s.node.contact.covers(weir.PullLease, weir.At(now)) {
		judged = weir.At(now)
	}
	// Most of the time there is none, which a query without a transaction finds out. A node that sends
	// heartbeats may be slow to renew its claims, but not forever: it may not know of one.
	free := fmt.Sprintf(`wanted AND due_at <= $1 AND (node = '' OR node = $2 AND boot <> $3 OR expires_at <= $4
		AND NOT EXISTS (SELECT 1 FROM node n WHERE n.id = pull.node AND n.seen_at > $4 - %d AND pull.expires_at > $4 - %d))`,
		weir.PullLease.Milliseconds(), abandonedAfter.Milliseconds())
	args := []any{weir.At(now), s.node.id, s.node.boot, judged}
	n, err := one(ctx, s.conn, scanInt, "SELECT count(*) FROM pull WHERE "+free, args...)
	if err != nil || n == 0 {
		return p, stream, false, err
	}
	err = s.Tx(ctx, func(tx *Tx) error {
		for {
			ok = false
			some, err := many(ctx, tx.conn, scanPull, "SELECT "+pullColumns+" FROM pull WHERE "+free+" ORDER BY due_at LIMIT 1"+tx.store.engine.forUpdateOfFree(), args...)
			if err != nil || len(some) == 0 {
				return err
			}
			p = some[0]
			if stream, err = tx.Stream(ctx, p.StreamID); err != nil {
				return err
			}
			if stream.Pull != nil && tx.admit(ctx, &stream) == nil {
				ok = true
				p.Take(s.node.id, s.node.boot, now)
				return tx.savePull(ctx, &p)
			}
			p.Stop() // publishing to the stream is not allowed
			tx.bumpLater(TopicPull)
			if err := tx.savePull(ctx, &p); err != nil {
				return err
			}
		}
	})
	return p, stream, ok && err == nil, err
}

// PullBeat is what a node reports about a pull that it has.
type PullBeat struct {
	StreamID        string
	Claim, Position int64
}

// RenewPulls writes the beats of this node's pulls, and returns the streams that it must stop
// pulling.
func (s *Store) RenewPulls(ctx context.Context, beats []PullBeat, now time.Time) (lost []string, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		now, err := tx.onClock(ctx, now)
		if err != nil {
			return err
		}
		lost = nil
		for _, b := range beats {
			n, err := tx.conn.exec(ctx, "UPDATE pull SET position = $3, expires_at = $4 WHERE stream_id = $1 AND claim = $2 AND wanted",
				b.StreamID, b.Claim, b.Position, int64(weir.At(now.Add(weir.PullLease))))
			if err != nil {
				return err
			}
			if n == 0 {
				lost = append(lost, b.StreamID)
			}
		}
		return nil
	})
	return lost, err
}

// PullPlays records that the source is on air.
func (s *Store) PullPlays(ctx context.Context, b PullBeat) error {
	return s.changePull(ctx, b, time.Now(), func(p *Pulling, _ time.Time) { p.Play() })
}

// PullFailed records why a source failed. It is tried again later.
func (s *Store) PullFailed(ctx context.Context, b PullBeat, issue string, played time.Duration, now time.Time) error {
	return s.changePull(ctx, b, now, func(p *Pulling, now time.Time) { p.Fail(issue, b.Position, played, now) })
}

// PullDone records that the source has ended.
func (s *Store) PullDone(ctx context.Context, b PullBeat) error {
	return s.changePull(ctx, b, time.Now(), func(p *Pulling, _ time.Time) {
		p.Stop()
		p.Issue = ""
	})
}

// ReleasePull lets another node take over.
func (s *Store) ReleasePull(ctx context.Context, b PullBeat, now time.Time) error {
	return s.changePull(ctx, b, now, func(p *Pulling, now time.Time) { p.Release(b.Position, now) })
}

// changePull changes a pull for the node that has it, and shows its issue to the owner.
func (s *Store) changePull(ctx context.Context, b PullBeat, now time.Time, change func(p *Pulling, now time.Time)) error {
	return s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.lockBroadcast(ctx, b.StreamID); err != nil {
			return err
		}
		p, err := tx.lockPull(ctx, b.StreamID)
		if err != nil {
			return err
		}
		if !p.Wanted || p.Claim != b.Claim {
			return ErrLostPull
		}
		if now, err = tx.onClock(ctx, now); err != nil {
			return err
		}
		change(&p, now)
		tx.bumpLater(TopicPull)
		return errors.Join(tx.savePull(ctx, &p), tx.setPullIssue(ctx, b.StreamID, p.Issue))
	})
}
