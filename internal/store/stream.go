package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/internal/weir"
)

// streamSecrets has the names under which the owner sees them.
type streamSecrets struct {
	StreamKey string     `json:"streamKey"`
	Pull      *weir.Pull `json:"pull,omitempty"`
}

type streamHidden struct {
	Deleted       bool   `json:"deleted,omitempty"`
	ObjectStoreID string `json:"objectStoreId,omitempty"`
	PullIssue     string `json:"pullIssue,omitempty"`
}

// deletedMark is all that some resources keep and do not show.
type deletedMark struct {
	Deleted bool `json:"deleted,omitempty"`
}

var streams = table[weir.Stream]{
	name:    "stream",
	deleted: true,
	project: true,
	cached:  true,
	order:   "lastSeen-true,createdAt-true",
	columns: []column[weir.Stream]{
		{"id", func(_ *queries, s *weir.Stream) any { return s.ID }},
		{"user_id", func(_ *queries, s *weir.Stream) any { return s.UserID }},
		{"project_id", func(_ *queries, s *weir.Stream) any { return s.ProjectID }},
		{"deleted", func(_ *queries, s *weir.Stream) any { return s.Deleted }},
		{"created_at", func(_ *queries, s *weir.Stream) any { return int64(s.CreatedAt) }},
		{"last_seen", func(_ *queries, s *weir.Stream) any { return int64(s.LastSeen) }},
		{"name_lower", func(_ *queries, s *weir.Stream) any { return strings.ToLower(s.Name) }},
		{"creator_id", func(_ *queries, s *weir.Stream) any { return s.CreatorID.String() }},
		{"playback_id", func(_ *queries, s *weir.Stream) any { return s.PlaybackID }},
		{"stream_key_lookup", func(q *queries, s *weir.Stream) any { return q.seal.lookup(s.StreamKey.Reveal()) }},
		{"pull_source_lookup", func(q *queries, s *weir.Stream) any { return q.seal.lookup(pullSource(s)) }},
		{"is_active", func(_ *queries, s *weir.Stream) any { return s.IsActive }},
		{"is_healthy", func(_ *queries, s *weir.Stream) any { return s.IsHealthy != nil && *s.IsHealthy }},
		{"record", func(_ *queries, s *weir.Stream) any { return s.Record }},
		{"suspended", func(_ *queries, s *weir.Stream) any { return s.Suspended }},
		{"source_segments", func(_ *queries, s *weir.Stream) any { return s.SourceSegments }},
		{"transcoded_segments", func(_ *queries, s *weir.Stream) any { return s.TranscodedSegments }},
		{"source_segments_duration", func(_ *queries, s *weir.Stream) any { return s.SourceSegmentsDuration }},
		{"transcoded_segments_duration", func(_ *queries, s *weir.Stream) any { return s.TranscodedSegmentsDuration }},
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name_lower", searchField}, "sourceSegments": {"source_segments", numberField},
		"lastSeen": {"last_seen", numberField}, "createdAt": {"created_at", numberField}, "userId": {"user_id", textField},
		"creatorId": {"creator_id", textField}, "pull.source": {"pull_source_lookup", secretField},
		"isActive": {"is_active", boolField}, "user.email": {"user_id", emailField}, "parentId": {"''", textField},
		"playbackId": {"playback_id", textField}, "projectId": {"project_id", textField}, "record": {"record", boolField},
		"suspended": {"suspended", boolField}, "sourceSegmentsDuration": {"source_segments_duration", numberField},
		"transcodedSegments":         {"transcoded_segments", numberField},
		"transcodedSegmentsDuration": {"transcoded_segments_duration", numberField}, "isHealthy": {"is_healthy", boolField},
	},
	secrets: func(s *weir.Stream) any { return &streamSecrets{s.StreamKey.Reveal(), s.Pull} },
	restore: func(s *weir.Stream, secrets any) {
		x := secrets.(*streamSecrets)
		s.StreamKey, s.Pull = weir.Secret(x.StreamKey), x.Pull
	},
	hidden: func(s *weir.Stream) any { return &streamHidden{s.Deleted, s.ObjectStoreID, s.PullIssue} },
	unhide: func(s *weir.Stream, hidden any) {
		h := hidden.(*streamHidden)
		s.Deleted, s.ObjectStoreID, s.PullIssue = h.Deleted, h.ObjectStoreID, h.PullIssue
	},
}

func pullSource(s *weir.Stream) string {
	if s.Pull == nil {
		return ""
	}
	return s.Pull.Source
}

// Stream returns the stream with the id, also one that was deleted.
func (q *queries) Stream(ctx context.Context, id string) (weir.Stream, error) {
	return streams.get(ctx, q, id)
}

// LockStream returns the stream with the id, and keeps everybody else from changing it: an
// event that tells of it must not show it as it was before an event that comes first.
func (tx *Tx) LockStream(ctx context.Context, id string) (weir.Stream, error) {
	return one(ctx, tx.conn, streams.scan(&tx.queries), "SELECT "+streams.selected()+" FROM stream WHERE id = $1"+tx.store.engine.forUpdate(), id)
}

// ShownStream returns the stream with the id as its owner sees it. Nobody waits
// for a single row long enough to want to give up, and watching for that costs
// more than the row.
func (q *queries) ShownStream(ctx context.Context, id string) (Shown, error) {
	return one(context.WithoutCancel(ctx), q.conn, func(r rows) (Shown, error) { return streams.scanShown(q, r, nil) },
		"SELECT "+shownColumns+" FROM stream WHERE id = $1", id)
}

// ShownStreams returns a page of streams as their owner sees them.
func (q *queries) ShownStreams(ctx context.Context, query Query) (Page[Shown], error) {
	return streams.listShown(ctx, q, query)
}

// Streams returns a page of streams.
func (q *queries) Streams(ctx context.Context, query Query) (Page[weir.Stream], error) {
	return streams.list(ctx, q, query)
}

// StreamByPlaybackID returns the stream that is played under the id.
func (q *queries) StreamByPlaybackID(ctx context.Context, playbackID string) (weir.Stream, error) {
	return first(streams.where(ctx, q, "playback_id = $1", playbackID))
}

// StreamByKey returns the stream that is published to with the key.
func (q *queries) StreamByKey(ctx context.Context, key weir.Secret) (weir.Stream, error) {
	return first(streams.where(ctx, q, "stream_key_lookup = $1", q.seal.lookup(key.Reveal())))
}

// StreamsByID returns streams by their ids, also deleted ones.
func (q *queries) StreamsByID(ctx context.Context, ids []string) (map[string]weir.Stream, error) {
	found := map[string]weir.Stream{}
	if len(ids) == 0 {
		return found, nil
	}
	b := &builder{}
	all, err := streams.where(ctx, q, "id IN ("+b.list(ids)+")", b.args...)
	for _, s := range all {
		found[s.ID] = s
	}
	return found, err
}

// CreateStream writes a new stream. Its key and its playback id are drawn again
// when they collide with others.
func (tx *Tx) CreateStream(ctx context.Context, s *weir.Stream) error {
	for {
		taken, err := tx.playbackIDTaken(ctx, s.PlaybackID)
		if err != nil {
			return err
		}
		if !taken {
			break
		}
		s.PlaybackID = weir.NewPlaybackID(s.ID)
	}
	for {
		_, taken, err := found(tx.StreamByKey(ctx, s.StreamKey))
		if err != nil {
			return err
		}
		if !taken {
			break
		}
		s.StreamKey = weir.NewStreamKey(s.ID)
	}
	if err := streams.insert(ctx, tx, s); err != nil {
		return err
	}
	return tx.setStreamTargets(ctx, s)
}

// UpdateStream changes a stream. A change that ends its broadcast, or of where it is sent
// on to, is told to the node that carries it.
func (tx *Tx) UpdateStream(ctx context.Context, id string, change func(*weir.Stream) error) (weir.Stream, error) {
	var before weir.Stream
	s, err := streams.update(ctx, tx, id, func(s *weir.Stream) error {
		before = *s
		return change(s)
	})
	if err != nil {
		return s, err
	}
	if why := s.EndedBy(&before); why != "" {
		if err := errors.Join(tx.end(ctx, id, why), tx.StopPull(ctx, id, 0)); err != nil {
			return s, err
		}
	}
	if !slices.Equal(s.Multistream.Targets, before.Multistream.Targets) {
		tx.bumpLater(TopicLive)
	}
	return s, tx.setStreamTargets(ctx, &s)
}

// setStreamTargets notes which targets a stream names, so that deleting one finds
// its streams.
func (tx *Tx) setStreamTargets(ctx context.Context, s *weir.Stream) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM stream_target WHERE stream_id = $1", s.ID); err != nil {
		return err
	}
	for _, ref := range s.Multistream.Targets {
		if _, err := tx.conn.exec(ctx, "INSERT INTO stream_target (stream_id, target_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", s.ID, ref.ID); err != nil {
			return err
		}
	}
	return nil
}

func (q *queries) playbackIDTaken(ctx context.Context, id string) (bool, error) {
	n, err := one(ctx, q.conn, scanInt,
		"SELECT (SELECT count(*) FROM stream WHERE playback_id = $1) + (SELECT count(*) FROM asset WHERE playback_id = $1)", id)
	return n > 0, err
}

// first returns the first of the rows, or a NotFound error.
func first[T any](all []T, err error) (T, error) {
	if err == nil && len(all) == 0 {
		err = weir.ErrNotFound()
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return all[0], nil
}
