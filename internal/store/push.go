package store

import (
	"context"
	"encoding/json"
	"time"

	"weir/internal/weir"
)

// Push says that a stream must be pushed to a target while it is on air.
type Push struct {
	Ref    weir.TargetRef
	Target weir.Target
}

// Pushes returns the pushes of streams, by the ids of the streams, without disabled targets.
func (q *queries) Pushes(ctx context.Context, streamIDs []string) (map[string][]Push, error) {
	wanted := map[string][]Push{}
	if len(streamIDs) == 0 {
		return wanted, nil
	}
	b := &builder{}
	naming, err := many(ctx, q.conn, scanText, "SELECT DISTINCT stream_id FROM stream_target WHERE stream_id IN ("+b.list(streamIDs)+")", b.args...)
	if err != nil || len(naming) == 0 {
		return wanted, err
	}
	all, err := q.StreamsByID(ctx, naming)
	if err != nil {
		return nil, err
	}
	b = &builder{}
	named, err := targets.where(ctx, q, "id IN (SELECT target_id FROM stream_target WHERE stream_id IN ("+b.list(naming)+"))", b.args...)
	if err != nil {
		return nil, err
	}
	byID := map[string]weir.Target{}
	for _, t := range named {
		byID[t.ID] = t
	}
	for id, s := range all {
		for _, ref := range s.Multistream.Targets {
			if t, ok := byID[ref.ID]; ok && !t.Disabled {
				wanted[id] = append(wanted[id], Push{ref, t})
			}
		}
	}
	return wanted, nil
}

// EmitPush writes an event about a push. Call it last in a transaction.
func (tx *Tx) EmitPush(ctx context.Context, name weir.EventName, streamID string, p Push, now time.Time) error {
	s, err := tx.LockStream(ctx, streamID)
	if err != nil {
		return err
	}
	e, err := weir.NewTargetEvent(name, s, p.Target, p.Ref.Profile, now)
	if err != nil {
		return err
	}
	return tx.Emit(ctx, e)
}

// TargetHealth returns the state of the pushes of a stream, none when no session is open.
func (q *queries) TargetHealth(ctx context.Context, streamID string) ([]weir.TargetHealth, error) {
	a, _, err := found(one(ctx, q.conn, scanAir, "SELECT "+airColumns+" FROM live WHERE stream_id = $1 AND session_id <> ''", streamID))
	return a.Pushes, err
}

// pushesJSON returns the value of the column.
func pushesJSON(pushes []weir.TargetHealth) (string, error) {
	if len(pushes) == 0 {
		return "[]", nil
	}
	text, err := json.Marshal(pushes)
	return string(text), err
}

// scanPushes reads the column.
func scanPushes(text string) (pushes []weir.TargetHealth, err error) {
	if text == "[]" {
		return nil, nil
	}
	return pushes, json.Unmarshal([]byte(text), &pushes)
}
