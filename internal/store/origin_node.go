package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

// OriginNode is the node that carries a stream.
type OriginNode struct {
	Node      string
	URL       string // at which other nodes reach it; "" = they can't
	SessionID string // "" = the session has ended
}

// endedLately is how long OriginNodeOf knows a session after its end, so that players learn that it
// has ended.
const endedLately = time.Minute

// OriginNodeOf returns the node that carries the stream with the playback id, or did until a minute
// ago; NotFound when there is none.
func (q *queries) OriginNodeOf(ctx context.Context, playbackID string) (OriginNode, error) {
	return one(ctx, q.conn, scanOrigin, `SELECT live.node, COALESCE(node.url, ''), live.session_id FROM live LEFT JOIN node ON node.id = live.node
		WHERE live.stream_id = (SELECT id FROM stream WHERE playback_id = $1) AND (live.session_id <> '' OR live.seen_at > $2)`,
		playbackID, weir.At(time.Now().Add(-endedLately)))
}

func scanOrigin(r rows) (c OriginNode, err error) { return c, r.Scan(&c.Node, &c.URL, &c.SessionID) }

// NodeURL returns the URL at which other nodes reach a node; NotFound when they can't.
func (q *queries) NodeURL(ctx context.Context, node string) (string, error) {
	return one(ctx, q.conn, scanText, "SELECT url FROM node WHERE id = $1 AND url <> ''", node)
}

// NodeID returns the id of this node; "" for a command.
func (s *Store) NodeID() string { return s.node.id }

// AnnounceURL publishes the URL at which other nodes reach this one. If that fails, the next
// heartbeat does it.
func (s *Store) AnnounceURL(ctx context.Context, url string) error {
	s.node.url.Store(url)
	_, err := s.saveNode(ctx, s.engine.alone(), "")
	return err
}
