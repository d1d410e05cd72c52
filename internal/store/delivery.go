package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/weir"
)

// The deliveries of one webhook about one resource are a line. A node claims a line, sends one
// delivery of it, writes the result and leaves the line, all in package webhook. So two deliveries
// of a line are never sent at once, and an event is lost at no moment: until its result is written
// its row stays, and a claim is void when its node is gone (voidClaims).
//
// The row of a line is locked after that of its webhook, if both are locked. Emit locks the rows of
// several lines in any order, so a transaction that has locked a line must not wait for another.

// Line is the deliveries of one webhook about one resource.
type Line struct {
	WebhookID, Resource string
}

func scanLine(r rows) (l Line, err error) { return l, r.Scan(&l.WebhookID, &l.Resource) }

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Webhook  weir.Webhook
	Event    weir.Event // only with its number if it was pruned
	Attempts int        // before this one
}

// Attempt is the result of sending a delivery. With a zero RetryAt there is no further attempt. A
// Log without an id means that the delivery was dropped and not sent.
type Attempt struct {
	Delivery Delivery
	Log      weir.WebhookLog
	RetryAt  time.Time
}

// clockSkew is how far apart the clocks of two nodes may be. A line with a new delivery is due so
// much earlier, so that it is due on every node.
const clockSkew = time.Minute

// addDelivery makes an event a delivery to a webhook. A first attempt is due at 0: by (due_at,
// event_seq) deliveries are in the order of their events, whatever the clocks of nodes say.
func (tx *Tx) addDelivery(ctx context.Context, l Line, seq int64) error {
	if _, err := tx.conn.exec(ctx, "INSERT INTO delivery (webhook_id, event_seq, resource, due_at, attempts) VALUES ($1, $2, $3, 0, 0)",
		l.WebhookID, seq, l.Resource); err != nil {
		return err
	}
	// It also locks a row that is due already: whoever leaves the line at this moment must see the
	// new delivery, or remove the row before it is written here.
	_, err := tx.conn.exec(ctx, `INSERT INTO delivery_line (webhook_id, resource, due_at, claim) VALUES ($1, $2, $3, '')
		ON CONFLICT (webhook_id, resource) DO UPDATE SET due_at = excluded.due_at WHERE delivery_line.due_at > excluded.due_at`,
		l.WebhookID, l.Resource, time.Now().Add(-clockSkew).UnixMilli())
	return err
}

// DueWebhook is a webhook that has deliveries to send.
type DueWebhook struct {
	ID, UserID string
	Timeouts   int  // in a row
	Responds   bool // its receiver has responded to the last delivery
}

// DueWebhooks returns the webhooks that have a line which is due and not claimed, without those
// that are paused. It reads a row or two for each webhook that has deliveries, not all of its rows.
func (q *queries) DueWebhooks(ctx context.Context) ([]DueWebhook, error) {
	return many(ctx, q.conn, func(r rows) (d DueWebhook, err error) { return d, r.Scan(&d.ID, &d.UserID, &d.Timeouts, &d.Responds) },
		`WITH RECURSIVE hook (id) AS (
			SELECT min(webhook_id) FROM delivery_line WHERE claim = ''
			UNION ALL
			SELECT (SELECT min(l.webhook_id) FROM delivery_line l WHERE l.claim = '' AND l.webhook_id > hook.id) FROM hook WHERE hook.id IS NOT NULL
		)
		SELECT hook.id, COALESCE(w.user_id, ''), COALESCE(w.timeouts, 0), COALESCE(w.responds, FALSE) FROM hook LEFT JOIN webhook w ON w.id = hook.id
		WHERE hook.id IS NOT NULL AND COALESCE(w.paused_until, 0) <= $1
			AND (SELECT min(l.due_at) FROM delivery_line l WHERE l.claim = '' AND l.webhook_id = hook.id) <= $1`, time.Now().UnixMilli())
}

// Registered reports whether other nodes know of this one. Claims of a node that is not registered
// are void.
func (s *Store) Registered(ctx context.Context) (bool, error) {
	n, err := one(ctx, s.conn, scanInt, "SELECT count(*) FROM node WHERE id = $1 AND boot = $2", s.node.id, s.node.boot)
	return n > 0, err
}

// Lost reports whether other nodes may take this one for dead by now, and claim its lines.
func (s *Store) Lost() bool { return s.node.lost() }

// ClaimLine claims the line of a webhook that has been due for the longest time. ok is false when
// there is none that is free.
func (tx *Tx) ClaimLine(ctx context.Context, webhookID string) (l Line, ok bool, err error) {
	l, ok, err = found(one(ctx, tx.conn, scanLine, `SELECT webhook_id, resource FROM delivery_line
		WHERE claim = '' AND webhook_id = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1`+tx.store.engine.forUpdateOfFree(),
		webhookID, time.Now().UnixMilli()))
	if err != nil || !ok {
		return l, false, err
	}
	_, err = tx.conn.exec(ctx, "UPDATE delivery_line SET claim = $3 WHERE webhook_id = $1 AND resource = $2",
		l.WebhookID, l.Resource, tx.store.node.client())
	return l, err == nil, err
}

// NextDelivery returns the delivery of a line to send now: one whose retry is due, or else that of
// the oldest event. ok is false when there is none, or when nothing may be sent to the webhook.
func (q *queries) NextDelivery(ctx context.Context, l Line) (d Delivery, ok bool, err error) {
	if d.Webhook, ok, err = found(q.Webhook(ctx, l.WebhookID)); err != nil || !ok {
		return d, false, err
	}
	now := time.Now()
	if d.Webhook.Deleted || d.Webhook.PausedUntil() > weir.At(now) {
		return d, false, nil
	}
	const line = "SELECT event_seq, attempts FROM delivery WHERE webhook_id = $1 AND resource = $2 AND "
	scan := func(r rows) (n int64, err error) { return n, r.Scan(&n, &d.Attempts) }
	seq, ok, err := found(one(ctx, q.conn, scan, line+"due_at > 0 AND due_at <= $3 ORDER BY due_at, event_seq LIMIT 1",
		l.WebhookID, l.Resource, now.UnixMilli()))
	if err == nil && !ok {
		seq, ok, err = found(one(ctx, q.conn, scan, line+"due_at = 0 ORDER BY event_seq LIMIT 1", l.WebhookID, l.Resource))
	}
	if err != nil || !ok {
		return d, false, err
	}
	d.Event, _, err = found(one(ctx, q.conn, scanEvent, "SELECT "+eventColumns+" FROM event WHERE seq = $1", seq))
	d.Event.Seq = seq
	return d, err == nil, err
}

// Settled is the state of a line and its webhook after an attempt.
type Settled struct {
	More     bool // the line has a delivery that is due
	Timeouts int  // of the webhook, in a row
	Responds bool // its receiver has responded to the last delivery
}

// ErrLostLine says that another node has the line by now.
var ErrLostLine = errors.New("the claim of these deliveries is no longer valid")

// SettleLine writes the result of an attempt and leaves the line. Without an attempt it only leaves
// the line, and drops the deliveries of a webhook that was deleted.
func (s *Store) SettleLine(ctx context.Context, l Line, a *Attempt) (after Settled, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		hook, exists, err := found(webhooks.lock(ctx, tx, l.WebhookID))
		if err != nil {
			return err
		}
		claim, _, err := found(one(ctx, tx.conn, scanText, "SELECT claim FROM delivery_line WHERE webhook_id = $1 AND resource = $2"+s.engine.forUpdate(),
			l.WebhookID, l.Resource))
		if err != nil {
			return err
		}
		if claim != s.node.client() {
			return ErrLostLine
		}
		if a != nil && a.Log.ID != "" && exists {
			if hook, err = tx.logAttempt(ctx, a.Log); err != nil {
				return err
			}
		}
		if a != nil {
			if err := tx.endAttempt(ctx, a); err != nil {
				return err
			}
		}
		if !exists || hook.Deleted {
			if err := tx.dropLines(ctx, l.WebhookID); err != nil {
				return err
			}
		}
		more, err := tx.leaveLine(ctx, l)
		after = Settled{More: more && a != nil && hook.PausedUntil() == 0, Timeouts: hook.Timeouts(), Responds: hook.Responds}
		return err
	})
	return after, err
}

// endAttempt removes a delivery or postpones it.
func (tx *Tx) endAttempt(ctx context.Context, a *Attempt) (err error) {
	hook, seq := a.Delivery.Webhook.ID, a.Delivery.Event.Seq
	if a.RetryAt.IsZero() {
		_, err = tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1 AND event_seq = $2", hook, seq)
	} else { // it does nothing if the webhook was deleted meanwhile
		_, err = tx.conn.exec(ctx, "UPDATE delivery SET attempts = attempts + 1, due_at = $3 WHERE webhook_id = $1 AND event_seq = $2",
			hook, seq, a.RetryAt.UnixMilli())
	}
	return err
}

// dropAtOnce bounds how long the transaction takes.
const dropAtOnce = 1000

// dropLines removes the deliveries of a webhook that is deleted, and lines that nobody has claimed.
func (tx *Tx) dropLines(ctx context.Context, webhookID string) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1", webhookID); err != nil {
		return err
	}
	_, err := tx.conn.exec(ctx, `DELETE FROM delivery_line WHERE webhook_id = $1 AND resource IN (SELECT resource FROM delivery_line
		WHERE claim = '' AND webhook_id = $1 LIMIT $2`+tx.store.engine.forUpdateOfFree()+")", webhookID, dropAtOnce)
	return err
}

// leaveLine gives up the claim of a line whose row the transaction has locked, and removes a line
// that has no deliveries. more says whether the line has one that is due.
func (tx *Tx) leaveLine(ctx context.Context, l Line) (more bool, err error) {
	due, err := one(ctx, tx.conn, scanInt, "SELECT COALESCE(min(due_at), -1) FROM delivery WHERE webhook_id = $1 AND resource = $2", l.WebhookID, l.Resource)
	if err != nil {
		return false, err
	}
	if due < 0 {
		_, err = tx.conn.exec(ctx, "DELETE FROM delivery_line WHERE webhook_id = $1 AND resource = $2", l.WebhookID, l.Resource)
		return false, err
	}
	now := time.Now()
	more = due <= now.UnixMilli()
	if due == 0 { // after the other lines of the webhook that wait
		due = now.Add(-clockSkew).UnixMilli()
	}
	_, err = tx.conn.exec(ctx, "UPDATE delivery_line SET claim = '', due_at = $3 WHERE webhook_id = $1 AND resource = $2", l.WebhookID, l.Resource, due)
	return more, err
}

// ReleaseOtherLines leaves the lines that this process has claimed, except the given ones. It is for claims
// that a failure left behind.
func (s *Store) ReleaseOtherLines(ctx context.Context, keep []Line) error {
	return s.Tx(ctx, func(tx *Tx) error {
		claimed, err := many(ctx, tx.conn, scanLine, "SELECT webhook_id, resource FROM delivery_line WHERE claim = $1"+
			s.engine.forUpdateOfFree(), s.node.client())
		if err != nil {
			return err
		}
		for _, l := range claimed {
			if slices.Contains(keep, l) {
				continue
			}
			if _, err := tx.leaveLine(ctx, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// voidAtOnce bounds how long the transaction takes.
const voidAtOnce = 1000

// voidClaims gives up the claims of nodes that are gone, or have started again. The lines keep their
// places: what was cut off is sent before what has waited for less long.
func (tx *Tx) voidClaims(ctx context.Context) error {
	void, err := many(ctx, tx.conn, scanLine, `SELECT webhook_id, resource FROM delivery_line
		WHERE claim > '' AND NOT EXISTS (SELECT 1 FROM node n WHERE n.id || '.' || n.boot = claim) LIMIT $1`+tx.store.engine.forUpdateOfFree(), voidAtOnce)
	if err != nil || len(void) == 0 {
		return err
	}
	for _, l := range void {
		if _, err := tx.conn.exec(ctx, "UPDATE delivery_line SET claim = '' WHERE webhook_id = $1 AND resource = $2", l.WebhookID, l.Resource); err != nil {
			return err
		}
	}
	tx.store.log.WarnContext(ctx, "claims of a dead node released: its deliveries can be sent by others", "deliveries", len(void))
	return nil
}

// PendingDeliveries counts the deliveries that are not sent yet.
func (q *queries) PendingDeliveries(ctx context.Context) (int64, error) {
	return one(ctx, q.conn, scanInt, "SELECT count(*) FROM delivery")
}

// PausedWebhooks counts the webhooks that are paused.
func (q *queries) PausedWebhooks(ctx context.Context) (int64, error) {
	return one(ctx, q.conn, scanInt, "SELECT count(*) FROM webhook WHERE paused_until > 0 AND NOT deleted")
}
