package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/internal/weir"
)

// streamSecrets has the JSON names that the owner sees.
type streamSecrets struct {
	StreamKey string     `json:"streamKey"`
	Pull      *weir.Pull `json:"pull,omitempty"`
}

type streamHidden struct {
	Deleted       bool   `json:"deleted,omitempty"`
	ObjectStoreID string `json:"objectStoreId,omitempty"`
	PullIssue     string `json:"pullIssue,omitempty"`
}

// deletedMark is the hidden part of several resources.
type deletedMark struct {
	Deleted bool `json:"deleted,omitempty"`
}

var streams = table[weir.Stream]{
	name:    "stream",
	deleted: true,
	project: true,
	cached:  true,
	order:   "lastSeen-true,createdAt-true",
	columns: func(q *queries, s *weir.Stream) []column {
		return []column{
			{"id", s.ID},
			{"user_id", s.UserID},
			{"project_id", s.ProjectID},
			{"deleted", s.Deleted},
			{"created_at", int64(s.CreatedAt)},
			{"last_seen", int64(s.LastSeen)},
			{"name_lower", strings.ToLower(s.Name)},
			{"creator_id", s.CreatorID.String()},
			{"playback_id", s.PlaybackID},
			{"stream_key_lookup", q.seal.lookup(s.StreamKey.Reveal())},
			{"pull_source_lookup", q.seal.lookup(pullSource(s))},
			{"is_active", s.IsActive},
			{"is_healthy", s.IsHealthy != nil && *s.IsHealthy},
			{"record", s.Record},
			{"suspended", s.Suspended},
			{"source_segments", s.SourceSegments},
			{"transcoded_segments", s.TranscodedSegments},
			{"source_segments_duration", s.SourceSegmentsDuration},
			{"transcoded_segments_duration", s.TranscodedSegmentsDuration},
		}
	},
	search: true,
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

// LockStream returns the stream with the id, and keeps others from changing it: an event must not
// show an older state of the stream than an earlier event.
func (tx *Tx) LockStream(ctx context.Context, id string) (weir.Stream, error) {
	return streams.lock(ctx, tx, id)
}

// ShownStream returns the stream with the id as its owner sees it. It ignores the cancellation of
// ctx, because watching for that costs more than reading the row.
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
	return streams.byID(ctx, q, ids)
}

// CreateStream writes a new stream. It gets another key or playback id if those are taken.
func (tx *Tx) CreateStream(ctx context.Context, s *weir.Stream) error {
	if err := tx.freePlaybackID(ctx, s.ID, &s.PlaybackID); err != nil {
		return err
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

// UpdateStream changes a stream. The node that carries it is notified if the change ends the
// broadcast or concerns the multistream targets.
func (tx *Tx) UpdateStream(ctx context.Context, id string, change func(*weir.Stream) error) (weir.Stream, error) {
	var before weir.Stream
	s, err := streams.update(ctx, tx, id, func(s *weir.Stream) error {
		before = *s
		return change(s)
	})
	if err != nil {
		return s, err
	}
	if err := tx.forget(ctx, s.PlaybackID); err != nil {
		return s, err
	}
	if why := s.EndedBy(&before); why != "" {
		if err := errors.Join(tx.endSession(ctx, id, why), tx.StopPull(ctx, id, 0)); err != nil {
			return s, err
		}
	}
	if !slices.Equal(s.Multistream.Targets, before.Multistream.Targets) {
		tx.bumpLater(TopicLive)
	}
	return s, tx.setStreamTargets(ctx, &s)
}

// setStreamTargets records which targets a stream names, so that deleting a target finds its
// streams.
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

// freePlaybackID replaces the playback id of a resource until no other has it.
func (q *queries) freePlaybackID(ctx context.Context, id string, playbackID *string) error {
	for {
		n, err := one(ctx, q.conn, scanInt,
			"SELECT (SELECT count(*) FROM stream WHERE playback_id = $1) + (SELECT count(*) FROM asset WHERE playback_id = $1)", *playbackID)
		if err != nil || n == 0 {
			return err
		}
		*playbackID = weir.NewPlaybackID(id)
	}
}
