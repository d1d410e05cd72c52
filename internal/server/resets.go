package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"weir/internal/endpoint"
)

// maxResets is by how many more requests of an HTTP/2 connection than got a response may be reset by the
// client. Players reset some when they seek, and a proxy those of all its viewers who leave, up to 250
// at once (net/http); all of them take many more responses.
const maxResets = 500

// sentEarly is how many bytes of a response net/http keeps until the handler ends, at most.
const sentEarly = 4 << 10

// resets are the requests of a connection that its client resets before it gets anything. Each costs
// the server a handler and the client two small frames. net/http bounds only how many run at once.
type resets struct {
	conn   net.Conn
	closed *atomic.Int64

	mu   sync.Mutex
	more int // requests that were reset than that got a response; never below 0
}

// ended notes the end of a request, and closes the connection when too many were reset.
func (c *resets) ended(reset bool) {
	if c.note(reset) == maxResets && reset {
		c.closed.Add(1)
		_ = c.conn.Close()
	}
}

// note counts a request, and returns by how many more were reset than got a response.
func (c *resets) note(reset bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reset {
		c.more++
	} else {
		c.more = max(c.more-1, 0)
	}
	return c.more
}

type resetsKey struct{}

// withResets returns the context of a connection whose resets are counted. closed counts the connections
// that are closed for them.
func withResets(ctx context.Context, c net.Conn, closed *atomic.Int64) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: c, closed: closed})
}

// countReset lets next answer a request, and notes whether the client reset it before it got anything.
func countReset(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c, ok := r.Context().Value(resetsKey{}).(*resets)
	if !ok || r.ProtoMajor != 2 {
		next.ServeHTTP(w, r)
		return
	}
	out := &endpoint.Response{ResponseWriter: w}
	next.ServeHTTP(out, r)
	out.End()
	c.ended(r.Context().Err() != nil && !out.Flushed() && out.Bytes() <= sentEarly)
}
