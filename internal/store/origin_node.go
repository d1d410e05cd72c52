package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

// Origin node is the node that carries a stream, and how others reach it.
type OriginNode struct {
	Node      string
	URL       string // "" = it is gone, or can't be reached
	SessionID string // "" = it has ended
}

// endedLately is how long it can be asked who carried a session that is over: players are
// told for as long that it is.
const endedLately = time.Minute

// OriginNodeOf returns who carries what is played under an id, or did until a moment ago;
// NotFound when nobody does.
func (q *queries) OriginNodeOf(ctx context.Context, playbackID string) (OriginNode, error) {
	return one(ctx, q.conn, scanOrigin, `SELECT live.node, COALESCE(node.url, ''), live.session_id FROM live LEFT JOIN node ON node.id = live.node
		WHERE live.stream_id = (SELECT id FROM stream WHERE playback_id = $1) AND (live.session_id <> '' OR live.seen_at > $2)`,
		playbackID, weir.At(time.Now().Add(-endedLately)))
}

func scanOrigin(r rows) (c OriginNode, err error) { return c, r.Scan(&c.Node, &c.URL, &c.SessionID) }

// NodeURL returns how a node is reached; NotFound when it is gone, or can't be reached.
func (q *queries) NodeURL(ctx context.Context, node string) (string, error) {
	return one(ctx, q.conn, scanText, "SELECT url FROM node WHERE id = $1 AND url <> ''", node)
}

// NodeID returns the name of this node, as others know it; "" for a command.
func (s *Store) NodeID() string { return s.node.id }

// AnnounceURL says how other nodes reach this one. If that fails, the next heartbeat says
// it.
func (s *Store) AnnounceURL(ctx context.Context, url string) error {
	s.node.url.Store(url)
	_, err := s.conn.exec(ctx, `INSERT INTO node (id, boot, started_at, seen_at, slots, url) VALUES ($1, $2, $3, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET seen_at = $3, url = $5`, s.node.id, s.node.boot, weir.At(time.Now()), s.node.slots.Load(), url)
	return err
}
