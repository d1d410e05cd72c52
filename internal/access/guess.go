package access

import (
	"net/netip"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

const (
	// A network may send so many wrong credentials at once, and then so many a second.
	wrongAtOnce    = 100
	wrongPerSecond = 1
	// A media server of the owner may send so many, because it asks for all of its viewers.
	ofServerAtOnce    = 1000
	ofServerPerSecond = 50
	// maxNetworks is the maximum number of networks whose wrong credentials are counted at once.
	maxNetworks = 100_000
)

// guesses count wrong credentials by the network that they come from. Each costs a signature check or
// a request to an access webhook.
type guesses struct {
	viewers, servers weir.Buckets[netip.Prefix]
	throttled        atomic.Int64
}

func newGuesses() guesses {
	return guesses{
		viewers: weir.Buckets[netip.Prefix]{AtOnce: wrongAtOnce, PerSecond: wrongPerSecond, Max: maxNetworks},
		servers: weir.Buckets[netip.Prefix]{AtOnce: ofServerAtOnce, PerSecond: ofServerPerSecond, Max: maxNetworks},
	}
}

// of returns the bucket that counts the wrong credentials of the sender of a request.
func (g *guesses) of(c content, r Request) *weir.Buckets[netip.Prefix] {
	if c.isServer(r) {
		return &g.servers
	}
	return &g.viewers
}

// refuse counts a viewer who is refused because of earlier wrong credentials.
func (g *guesses) refuse() error {
	g.throttled.Add(1)
	return weir.TooMany(time.Second, "too many wrong credentials from this address; try again in a second")
}

// count counts a wrong credential, and returns the error that says why it is wrong, unless there were too
// many.
func (g *guesses) count(c content, r Request, wrong error) error {
	if kind := weir.KindOf(wrong); kind != weir.Denied && kind != weir.NotFound && kind != weir.Refused || g.of(c, r).Take(r.From, time.Now()) {
		return wrong
	}
	return g.refuse()
}

// try calls check with a credential of a request, unless too many of its network were wrong. It is
// counted before it is known to be wrong, so that many at once count too.
func (g *guesses) try(c content, r Request, check func() error) error {
	if r.known {
		return check()
	}
	if !g.of(c, r).Take(r.From, time.Now()) {
		return g.refuse()
	}
	err := check()
	switch kind := weir.KindOf(err); {
	case err == nil, kind == weir.Internal, kind == weir.Busy, kind == weir.Outage:
		g.of(c, r).Return(r.From)
	}
	return err
}
