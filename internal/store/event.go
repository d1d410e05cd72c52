package store

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/internal/weir"
)

// Emit writes an event, and a delivery for every webhook that wants it. Call it last in a
// transaction: from then on other transactions wait before they emit.
func (tx *Tx) Emit(ctx context.Context, e weir.Event) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return err
	}
	seq, err := tx.bump(ctx, TopicEvent)
	if err != nil {
		return fmt.Errorf("assign a number to the event: %w", err)
	}
	if _, err := tx.conn.exec(ctx, `INSERT INTO event (seq, id, user_id, project_id, created_at, name, resource, stream_id, doc)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		seq, e.ID, e.UserID, e.ProjectID, int64(e.CreatedAt), string(e.Name), e.Resource, e.StreamID, string(doc)); err != nil {
		return err
	}
	hooks, err := webhooks.where(ctx, &tx.queries, "user_id = $1 AND project_id = $2 AND deleted = $3 ORDER BY id", e.UserID, e.ProjectID, false)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		if !hook.Wants(&e) {
			continue
		}
		if err := tx.addDelivery(ctx, Line{hook.ID, e.Resource}, seq); err != nil {
			return err
		}
	}
	return nil
}

// EmitBatch writes the events of a batch. Call it last in a transaction.
func (tx *Tx) EmitBatch(ctx context.Context, batch *weir.EventBatch) error {
	events, err := batch.Events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := tx.Emit(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func scanEvent(r rows) (e weir.Event, err error) {
	var doc []byte
	if err := r.Scan(&e.Seq, &e.UserID, &e.ProjectID, &e.Resource, &e.StreamID, &doc); err != nil {
		return e, err
	}
	return e, json.Unmarshal(doc, &e)
}

const eventColumns = "seq, user_id, project_id, resource, stream_id, doc"

// Events returns the events of a project after the one with the number, oldest first.
func (q *queries) Events(ctx context.Context, userID, projectID string, after int64, limit int) ([]weir.Event, error) {
	return many(ctx, q.conn, scanEvent, "SELECT "+eventColumns+` FROM event
		WHERE user_id = $1 AND project_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, userID, projectID, after, limit)
}

// StreamEvents returns the events of a stream before the one with the number, the latest first.
func (q *queries) StreamEvents(ctx context.Context, streamID string, before int64, limit int) ([]weir.Event, error) {
	return many(ctx, q.conn, scanEvent, "SELECT "+eventColumns+` FROM event
		WHERE stream_id = $1 AND stream_id <> '' AND seq < $2 ORDER BY seq DESC LIMIT $3`, streamID, before, limit)
}

// EventBounds returns the number of the last event, and of the last event that was deleted because
// it is old.
func (q *queries) EventBounds(ctx context.Context) (last, deleted int64, err error) {
	if last, err = one(ctx, q.conn, scanInt, "SELECT value FROM counter WHERE name = $1", TopicEvent); err != nil {
		return 0, 0, err
	}
	oldest, err := one(ctx, q.conn, scanInt, "SELECT COALESCE(min(seq), 0) FROM event")
	if err != nil {
		return 0, 0, err
	}
	if oldest == 0 {
		return last, last, nil
	}
	return last, oldest - 1, nil
}
