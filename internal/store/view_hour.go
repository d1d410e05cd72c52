package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"weir/internal/weir"
)

// viewDimensions are the columns of viewing that view_hour has too, beside the hour.
var viewDimensions = [...]string{
	"user_id", "project_id", "playback_id", "asset_id", "stream_id", "creator_id", "device_type", "device", "cpu", "os", "browser",
	"browser_engine", "continent", "country", "subdivision", "timezone", "geohash",
}

// viewHour is what the views of one row of view_hour have in common.
type viewHour struct {
	start      weir.Millis
	dimensions [len(viewDimensions)]string
}

// id returns the key of the row. The columns themselves are too long for an index of PostgreSQL.
func (h *viewHour) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q", h.start, h.dimensions))
	return hex.EncodeToString(sum[:16])
}

// rollUpViews deletes views whose viewers were not seen since a time, after it has added them to the
// sums of their hours. Several nodes may do so at once: each adds what it has deleted itself.
func (s *Store) rollUpViews(ctx context.Context, before int64) error {
	for {
		deleted := 0
		err := s.Tx(ctx, func(tx *Tx) error {
			hours, n, err := tx.takeViews(ctx, before)
			if err != nil {
				return err
			}
			deleted = n
			return tx.addHours(ctx, hours)
		})
		if err != nil || deleted < pruneAtOnce {
			return err
		}
	}
}

// takeViews deletes some of the views whose viewers were not seen since a time, and returns their
// number and their sums.
func (tx *Tx) takeViews(ctx context.Context, before int64) (map[viewHour]*weir.ViewSums, int, error) {
	// A view that started later can't have ended before.
	r, err := tx.conn.query(ctx, `DELETE FROM viewing WHERE id IN (SELECT id FROM viewing WHERE started_at < $1 AND last_seen < $1
			ORDER BY started_at LIMIT $2`+tx.store.engine.forUpdateOfFree()+`)
		RETURNING started_at, playtime_ms, rebuffer_ms, ttff_ms, errors, exited_early, `+strings.Join(viewDimensions[:], ", "), before, pruneAtOnce)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	hours, n := map[viewHour]*weir.ViewSums{}, 0
	for ; r.Next(); n++ {
		var v weir.View
		var hour viewHour
		dest := []any{&v.StartedAt, &v.PlaytimeMs, &v.RebufferMs, &v.TTFFMs, &v.Errors, &v.ExitedEarly}
		for i := range hour.dimensions {
			dest = append(dest, &hour.dimensions[i])
		}
		if err := r.Scan(dest...); err != nil {
			return nil, 0, err
		}
		hour.start = weir.StepHour.Start(v.StartedAt)
		sums := hours[hour]
		if sums == nil {
			sums = &weir.ViewSums{}
			hours[hour] = sums
		}
		sums.Add(&v)
	}
	return hours, n, r.Err()
}

// addHours adds to the rows of view_hour.
func (tx *Tx) addHours(ctx context.Context, hours map[viewHour]*weir.ViewSums) error {
	rows := make(map[string][]any, len(hours))
	for hour, sums := range hours {
		row := []any{hour.start}
		for _, value := range hour.dimensions {
			row = append(row, value)
		}
		rows[hour.id()] = append(row, sums.Views, sums.PlaytimeMs, sums.RebufferMs, sums.TTFFMs, sums.TTFFViews, sums.Errors, sums.Exits)
	}
	figures := []string{"views", "playtime_ms", "rebuffer_ms", "ttff_ms", "ttff_views", "errors", "exits"}
	columns := slices.Concat([]string{"started_at"}, viewDimensions[:], figures)
	values, added := make([]string, len(columns)), make([]string, len(figures))
	for i := range columns {
		values[i] = fmt.Sprintf("value->>%d", i)
		if number := i == 0 || i > len(viewDimensions); number {
			values[i] = "CAST(" + values[i] + " AS BIGINT)"
		}
	}
	for i, name := range figures {
		added[i] = fmt.Sprintf("%s = view_hour.%s + excluded.%s", name, name, name)
	}
	return tx.saveRows(ctx, rows, "INSERT INTO view_hour (id, "+strings.Join(columns, ", ")+") SELECT key, "+strings.Join(values, ", ")+
		" FROM "+tx.store.engine.members()+" WHERE true ON CONFLICT (id) DO UPDATE SET "+strings.Join(added, ", "))
}
