package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// SaveViews writes views, or updates them while their viewers watch, in one statement.
//
// LastSeen of a view in the store may be ahead: until then the viewer counts as seen, and the view
// need not be written again.
func (tx *Tx) SaveViews(ctx context.Context, views ...weir.View) error {
	rows := make(map[string][]any, len(views))
	for i := range views {
		v := &views[i]
		rows[v.ID] = []any{
			v.UserID, v.ProjectID, v.PlaybackID, v.AssetID, v.StreamID, v.CreatorID, v.ViewerID,
			v.StartedAt, v.LastSeen, v.PlaytimeMs, v.TTFFMs, v.RebufferMs, v.Errors, v.ExitedEarly,
			v.DeviceType, v.Device, v.CPU, v.OS, v.Browser, v.BrowserEngine, v.Continent, v.Country, v.Subdivision, v.Timezone, v.Geohash,
		}
	}
	return tx.saveRows(ctx, rows, `INSERT INTO viewing (id, user_id, project_id, playback_id, asset_id, stream_id, creator_id, viewer_id,
			started_at, last_seen, playtime_ms, ttff_ms, rebuffer_ms, errors, exited_early,
			device_type, device, cpu, os, browser, browser_engine, continent, country, subdivision, timezone, geohash, node)
		SELECT key, value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6,
			CAST(value->>7 AS BIGINT), CAST(value->>8 AS BIGINT), CAST(value->>9 AS BIGINT), CAST(value->>10 AS BIGINT),
			CAST(value->>11 AS BIGINT), CAST(value->>12 AS BIGINT), CAST(value->>13 AS BOOLEAN),
			value->>14, value->>15, value->>16, value->>17, value->>18, value->>19, value->>20, value->>21, value->>22, value->>23, value->>24,
			CAST($2 AS TEXT)
		FROM `+tx.store.engine.members()+` WHERE true
		ON CONFLICT (id) DO UPDATE SET last_seen = excluded.last_seen, playtime_ms = excluded.playtime_ms, ttff_ms = excluded.ttff_ms,
			rebuffer_ms = excluded.rebuffer_ms, errors = excluded.errors, exited_early = excluded.exited_early`, tx.store.node.id)
}

// saveRows runs a statement that writes rows. It selects them from engine.members, in the order of
// their keys: transactions that write them in one order can't deadlock. There must be a WHERE between
// members and ON CONFLICT, or SQLite reads ON as that of a join.
func (tx *Tx) saveRows(ctx context.Context, rows map[string][]any, sql string, args ...any) error {
	if len(rows) == 0 {
		return nil
	}
	text, err := json.Marshal(rows) // in the order of the keys
	if err != nil {
		return err
	}
	_, err = tx.conn.exec(ctx, sql, append([]any{string(text)}, args...)...)
	return err
}

// ViewersElsewhere counts the views of an account's content that other nodes have counted since a
// time.
func (s *Store) ViewersElsewhere(ctx context.Context, userID string, since weir.Millis) (int64, error) {
	return one(ctx, s.conn, scanInt, "SELECT count(*) FROM viewing WHERE user_id = $1 AND last_seen >= $2 AND node <> $3",
		userID, int64(since), s.node.id)
}

// RecentViewers returns the ids of viewers of an account's title who were seen since a time: all of
// them, unless they are more than the limit.
func (s *Store) RecentViewers(ctx context.Context, userID, playbackID string, since weir.Millis, limit int) (map[string]bool, error) {
	ids, err := many(ctx, s.conn, scanText, "SELECT DISTINCT viewer_id FROM viewing WHERE user_id = $1 AND last_seen >= $2 AND playback_id = $3 LIMIT $4",
		userID, int64(since), playbackID, limit)
	viewers := make(map[string]bool, len(ids))
	for _, id := range ids {
		viewers[id] = true
	}
	return viewers, err
}

// SaveUsage adds to the usage of accounts in an hour, in one statement. Storage is added once, in the
// hour in which it began.
func (tx *Tx) SaveUsage(ctx context.Context, usage ...weir.Usage) error {
	sums := map[string]weir.Usage{}
	for _, u := range usage {
		u.Hour = weir.StepHour.Start(u.Hour)
		key := fmt.Sprintf("%q %q %d", u.UserID, u.CreatorID, u.Hour)
		before := sums[key]
		u.DeliveryMs += before.DeliveryMs
		u.TotalMs += before.TotalMs
		u.StorageMs += before.StorageMs
		sums[key] = u
	}
	rows := make(map[string][]any, len(sums))
	for key, u := range sums {
		rows[key] = []any{u.UserID, u.CreatorID, u.Hour, u.DeliveryMs, u.TotalMs, u.StorageMs}
	}
	return tx.saveRows(ctx, rows, `INSERT INTO usage_hour (user_id, creator_id, hour, delivery_ms, total_ms, storage_ms)
		SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(value->>3 AS BIGINT), CAST(value->>4 AS BIGINT), CAST(value->>5 AS BIGINT)
		FROM `+tx.store.engine.members()+` WHERE true
		ON CONFLICT (user_id, hour, creator_id) DO UPDATE SET delivery_ms = usage_hour.delivery_ms + excluded.delivery_ms,
			total_ms = usage_hour.total_ms + excluded.total_ms, storage_ms = usage_hour.storage_ms + excluded.storage_ms`)
}

// ViewQuery says which views are added up, and in which groups. Empty fields are ignored, so the
// zero value means all views.
type ViewQuery struct {
	UserID, ProjectID string
	PlaybackID        string
	AssetID, StreamID string
	CreatorID         string
	ContentID         string        // a CID or a transaction of Arweave: views of every asset that is stored there or was made from it
	Public            bool          // without those of deleted accounts
	From, To          weir.Millis   // when the view started; To is exclusive
	SeenSince         weir.Millis   // only views that are not added up yet
	By                []string      // groups, named as in viewGroups
	Step              weir.TimeStep // groups of time
}

// ViewRow is one group of views.
type ViewRow struct {
	Start weir.Millis // of the step; 0 without one
	By    []string    // the values of the query's groups; "" = unknown
	weir.ViewSums
}

// viewGroups has the SQL expression of each group, by its name in the API. They hold for viewing and
// view_hour.
var viewGroups = map[string]string{
	"playbackId": "playback_id", "deviceType": "device_type", "device": "device", "cpu": "cpu", "os": "os", "browser": "browser",
	"browserEngine": "browser_engine", "continent": "continent", "country": "country", "subdivision": "subdivision",
	"timezone": "timezone", "geohash": "geohash", "viewerId": "viewer_id", "creatorId": "creator_id",
	"dStorageUrl": `COALESCE((SELECT CASE WHEN a.cid <> '' THEN 'ipfs://' || a.cid WHEN substr(a.source_url, 1, 5) = 'ar://' THEN a.source_url
		ELSE '' END FROM asset a WHERE a.id = asset_id), '')`,
}

// viewSums and hourSums are the sums of views in viewing and in view_hour, in the order of
// weir.ViewSums.
var (
	viewSums = []string{
		"count(*)", sum("playtime_ms"), sum("rebuffer_ms"), sum("ttff_ms"), sum("CASE WHEN ttff_ms > 0 THEN 1 ELSE 0 END"),
		sum("CASE WHEN errors > 0 THEN 1 ELSE 0 END"), sum("CASE WHEN exited_early THEN 1 ELSE 0 END"),
	}
	hourSums = []string{
		sum("views"), sum("playtime_ms"), sum("rebuffer_ms"), sum("ttff_ms"), sum("ttff_views"), sum("errors"), sum("exits"),
	}
)

// maxFigures is the maximum number of groups in a response.
const maxFigures = 10_000

func tooManyFigures() error {
	return weir.Errorf(weir.Invalid, "the response would have more than %d rows: ask for a shorter time, a longer timeStep or fewer values of breakdownBy[]", maxFigures)
}

// Views adds up views, also those that only view_hour has: these have no viewer, and the start of
// their hour counts. Without groups there is exactly one row. The rows are ordered by time and by the
// values of the groups.
func (q *queries) Views(ctx context.Context, query ViewQuery) ([]ViewRow, error) {
	b := &builder{}
	for _, f := range []struct{ column, value string }{
		{"user_id", query.UserID},
		{"project_id", query.ProjectID},
		{"playback_id", query.PlaybackID},
		{"asset_id", query.AssetID},
		{"stream_id", query.StreamID},
		{"creator_id", query.CreatorID},
	} {
		if f.value != "" {
			b.and(f.column+" = %s", f.value)
		}
	}
	if query.Public {
		b.and("user_id NOT IN (SELECT id FROM account WHERE deleted)")
	}
	if query.ContentID != "" {
		b.and("asset_id IN (SELECT id FROM asset WHERE cid = %s OR source_url = %s)", query.ContentID, "ar://"+query.ContentID)
	}
	b.span("started_at", query.From, query.To)
	if query.SeenSince > 0 {
		b.and("last_seen >= %s", int64(query.SeenSince))
	}
	views, hours := source{table: "viewing", sums: viewSums}, source{table: "view_hour", sums: hourSums}
	for _, name := range query.By {
		expr, ok := viewGroups[name]
		if !ok {
			return nil, weir.Errorf(weir.Refused, "views can't be grouped by %q", name)
		}
		views.groups = append(views.groups, expr)
		if name == "viewerId" {
			expr = "CAST('' AS TEXT)"
		}
		hours.groups = append(hours.groups, expr)
	}
	sources := []source{views}
	if query.SeenSince == 0 {
		sources = append(sources, hours)
	}
	found, err := figures(ctx, q, "started_at", query.Step, b, sources...)
	if err != nil {
		return nil, err
	}
	all := make([]ViewRow, len(found))
	for i, f := range found {
		s := f.sums
		all[i] = ViewRow{f.start, f.by, weir.ViewSums{
			Views: s[0], PlaytimeMs: s[1], RebufferMs: s[2], TTFFMs: s[3], TTFFViews: s[4], Errors: s[5], Exits: s[6],
		}}
	}
	return all, nil
}

// UsageQuery says which usage is added up, and in which groups. Empty fields are ignored. An hour
// belongs to the range of time that it starts in.
type UsageQuery struct {
	UserID, CreatorID string
	From, To          weir.Millis
	ByUser, ByCreator bool
	Step              weir.TimeStep
}

// Usage adds up usage. Without groups there is exactly one row. Hour is the start of the step.
func (q *queries) Usage(ctx context.Context, query UsageQuery) ([]weir.Usage, error) {
	b := &builder{}
	if query.UserID != "" {
		b.and("user_id = %s", query.UserID)
	}
	if query.CreatorID != "" {
		b.and("creator_id = %s", query.CreatorID)
	}
	b.span("hour", query.From, query.To)
	var groups []string
	if query.ByUser {
		groups = append(groups, "user_id")
	}
	if query.ByCreator {
		groups = append(groups, "creator_id")
	}
	found, err := figures(ctx, q, "hour", query.Step, b, source{
		table: "usage_hour", groups: groups, sums: []string{sum("delivery_ms"), sum("total_ms"), sum("storage_ms")},
	})
	if err != nil {
		return nil, err
	}
	all := make([]weir.Usage, len(found))
	for i, f := range found {
		u := weir.Usage{UserID: query.UserID, CreatorID: query.CreatorID, Hour: f.start, DeliveryMs: f.sums[0], TotalMs: f.sums[1], StorageMs: f.sums[2]}
		if query.ByUser {
			u.UserID = f.by[0]
		}
		if query.ByCreator {
			u.CreatorID = f.by[len(f.by)-1]
		}
		all[i] = u
	}
	return all, nil
}

// UserUsage adds up the sessions of a user that began in a range of time, without its end. It also
// has the bytes that the user stores now, and on each day of the range.
func (q *queries) UserUsage(ctx context.Context, userID string, from, to weir.Millis) (weir.UserUsage, error) {
	u, err := one(ctx, q.conn, func(r rows) (u weir.UserUsage, err error) {
		return u, r.Scan(&u.SourceSegments, &u.TranscodedSegments, &u.SourceSegmentsDuration, &u.TranscodedSegmentsDuration, &u.StreamCount)
	}, `SELECT CAST(COALESCE(sum(source_segments), 0) AS BIGINT), CAST(COALESCE(sum(transcoded_segments), 0) AS BIGINT),
		CAST(COALESCE(sum(source_segments_duration), 0) AS DOUBLE PRECISION), CAST(COALESCE(sum(transcoded_segments_duration), 0) AS DOUBLE PRECISION),
		count(DISTINCT parent_id)
		FROM session WHERE user_id = $1 AND created_at >= $2 AND created_at < $3`, userID, int64(from), int64(to))
	if err != nil {
		return u, err
	}
	if u.StorageBytes, err = q.Used(ctx, userID, weir.Storage); err != nil {
		return u, err
	}
	u.Storage, err = q.storageDays(ctx, userID, from, to)
	return u, err
}

// span selects the rows in a range of time, which may be open at both ends.
func (b *builder) span(column string, from, to weir.Millis) {
	if from > 0 {
		b.and(column+" >= %s", int64(from))
	}
	if to > 0 {
		b.and(column+" < %s", int64(to))
	}
}

// sum returns the SQL for a sum, with the same type on both engines.
func sum(expr string) string { return "CAST(COALESCE(sum(" + expr + "), 0) AS BIGINT)" }

// figure is one group of rows and its sums.
type figure struct {
	start weir.Millis
	by    []string
	sums  []int64
}

// source is a table with figures, and the SQL of its groups and sums.
type source struct {
	table        string
	groups, sums []string
}

// query returns the SQL that adds up the rows that meet b's conditions. unit is the length of a step
// of time in milliseconds; "" = there are no steps.
func (s source) query(timeColumn, unit string, b *builder) string {
	selected := slices.Clone(s.groups)
	if unit != "" {
		selected = append(selected, timeColumn+" / "+unit+" * "+unit)
	}
	sql := "SELECT " + strings.Join(append(slices.Clone(selected), s.sums...), ", ") + " FROM " + s.table + b.where()
	if len(selected) == 0 {
		return sql
	}
	ordinals := make([]string, len(selected))
	for i := range selected {
		ordinals[i] = strconv.Itoa(i + 1)
	}
	return sql + " GROUP BY " + strings.Join(ordinals, ", ")
}

// figures adds up the rows that meet b's conditions. The sources have the same number of groups and
// sums, and are read in one query: rows move from one to the other. The database groups by the hour
// or by the day; weeks, months and years are added up here, because the engines have different
// calendars.
func figures(ctx context.Context, q *queries, timeColumn string, step weir.TimeStep, b *builder, sources ...source) ([]figure, error) {
	unit := ""
	switch step {
	case "":
	case weir.StepHour:
		unit = "3600000"
	default:
		unit = "86400000"
	}
	parts := make([]string, len(sources))
	for i, s := range sources {
		parts[i] = s.query(timeColumn, unit, b)
	}
	groups, sums := len(sources[0].groups), len(sources[0].sums)
	r, err := q.conn.query(ctx, strings.Join(parts, " UNION ALL "), b.args...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	found := map[string]*figure{}
	for r.Next() {
		f := figure{by: make([]string, groups), sums: make([]int64, sums)}
		var dest []any
		for i := range f.by {
			dest = append(dest, &f.by[i])
		}
		if step != "" {
			dest = append(dest, &f.start)
		}
		for i := range f.sums {
			dest = append(dest, &f.sums[i])
		}
		if err := r.Scan(dest...); err != nil {
			return nil, err
		}
		if step != "" {
			f.start = step.Start(f.start)
		}
		key := strconv.FormatInt(int64(f.start), 10) + "\x00" + strings.Join(f.by, "\x00")
		known := found[key]
		if known == nil {
			if len(found) == maxFigures {
				return nil, tooManyFigures()
			}
			found[key] = &f
			continue
		}
		for i, n := range f.sums {
			known.sums[i] += n
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	all := make([]figure, 0, len(found))
	for _, f := range found {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(x, y figure) int {
		return cmp.Or(cmp.Compare(x.start, y.start), slices.Compare(x.by, y.by))
	})
	return all, nil
}
