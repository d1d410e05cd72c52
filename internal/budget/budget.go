// Package budget divides the connections that a process can have between its clients.
//
// A process may have a limited number of open files. A [Budget] keeps some of them for the database,
// the storage and the encodes, some for the files of streams on air, and divides the rest into pools
// (pool.go): HTTP connections without and with a good key, encoders that have not shown a stream key
// yet, WebRTC over TCP. No pool takes the places of another one, so clients without a key can't keep
// away those who have one. Who does nothing makes room for who comes.
//
// Listeners that accept connections within the budget are made by [Budget.HTTP], [Budget.Ingest],
// [Budget.Peers] and [Budget.Ops] (conn.go). The HTTP server tells what its connections do ([ConnState])
// and puts them into the contexts of requests ([WithConn]); whoever finds that a credential is good calls
// [Authenticated].
package budget

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"weir/internal/weir"
)

const (
	// maxConnections is the default number of connections if the limit of open files allows more:
	// each one takes memory too.
	maxConnections = 16384
	// maxStreams limits the open files of streams in the same way.
	maxStreams = 16384
	// maxOps is the number of connections for metrics.
	maxOps = 16
	// The open files that the process keeps for itself: database, storage, tasks, webhooks. Both
	// databases and the encodes use more on a machine with more cores.
	ownFiles        = 128
	ownFilesPerCore = 8
	// minFiles is the number of open files without which weir does not start.
	minFiles = 256

	// gracePeriod is how long a connection has to send its request, and to be answered, before another one takes its
	// place.
	gracePeriod = 100 * time.Millisecond

	// logEvery is the interval of log lines about clients that found no place.
	logEvery = 10 * time.Second
	// retryAfter is when a client that found no place may try again.
	retryAfter = 5 * time.Second
)

// Options are the options of a budget.
type Options struct {
	// Files is how many files the process may have open; 0 = the limit of the system.
	Files int
	// Connections is the maximum number of connections of clients, without encoders on air; 0 = as many as
	// the open files allow.
	Connections int
	// PerAddress is the maximum number of HTTP connections without a good key from one address; 0 =
	// half of all.
	PerAddress int
	// TrustedProxies are not limited per address.
	TrustedProxies []netip.Prefix
	Log            *slog.Logger
}

// Budget divides the connections of a process. A nil Budget has no limits.
type Budget struct {
	anonymous     *Pool // HTTP connections without a good key
	authenticated *Pool // HTTP connections whose last request had a good key
	waiting       *Pool // encoders that have not shown a good stream key yet
	peers         *Pool // WebRTC over TCP
	ops           *Pool
	requests      *Pool // that run, on connections without a good key
	log           *slog.Logger

	mu             sync.Mutex
	streamFiles    int // open files of the streams on air
	streamsLimit   int
	streamsRefused int64     // streams that were refused
	logged         time.Time // when the last line was written
	reported       int64     // clients without a place up to that line
}

// New returns a budget.
func New(o Options) (*Budget, error) {
	files := o.Files
	if files == 0 {
		var err error
		if files, err = fileLimit(); err != nil {
			return nil, err
		}
	}
	if files < minFiles {
		return nil, fmt.Errorf("the limit of open files is %d, and weir needs %d; raise it (ulimit -n)", files, minFiles)
	}
	// Of what is left, two fifths are connections, one fifth files that requests read and write, and two
	// fifths are for streams on air.
	left := files - min(ownFiles+ownFilesPerCore*runtime.GOMAXPROCS(0), files/2)
	most := left * 2 / 5
	connections := o.Connections
	if connections == 0 {
		connections = min(most, maxConnections)
	}
	if connections > most {
		return nil, fmt.Errorf("--max-connections: %d is too high; with %d open files (ulimit -n), at most %d are possible", connections, files, most)
	}
	anonymous := max(connections*3/8, 1)
	perAddress := o.PerAddress
	if perAddress == 0 {
		perAddress = max(anonymous/2, 1)
	}
	b := &Budget{
		anonymous:     NewPool(Limits{Members: anonymous, PerAddress: perAddress, Exempt: o.TrustedProxies, Grace: gracePeriod}),
		authenticated: NewPool(Limits{Members: max(connections*3/8, 1)}),
		waiting:       newShared(connections / 8),
		peers:         newShared(connections / 8),
		ops:           NewPool(Limits{Members: maxOps}),
		// Fewer than there are connections, so that some can always make room for new ones.
		requests:     NewPool(Limits{Members: max(anonymous*3/4, 1), PerAddress: max(perAddress*3/4, 1), Exempt: o.TrustedProxies}),
		streamsLimit: min(left*2/5, maxStreams),
		log:          o.Log,
	}
	o.Log.Info("budget of open files", "limit", files, "connections", connections, "streams", b.streamsLimit)
	return b, nil
}

// newShared returns a pool of which one address gets half, and busy members three quarters.
func newShared(members int) *Pool {
	return NewPool(Limits{Members: max(members, 1), PerAddress: max(members/2, 1), Busy: max(members*3/4, 1)})
}

// fileLimit returns how many files the process may have open. At the start, Go has raised the soft
// limit to the hard one.
func fileLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return int(min(limit.Cur, 1<<30)), nil
}

// Wait takes a place for an encoder that has no connection of its own, until its stream key was
// found good; end is called when it loses the place to another one.
func (b *Budget) Wait(from net.Addr, end func()) (*Place, error) {
	if b == nil {
		return nil, nil
	}
	place, err := b.waiting.Enter(addrPort(from), end)
	b.report()
	return place, err
}

// Stream takes the open files of a stream that goes on air, until release is called.
func (b *Budget) Stream(files int) (release func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streamFiles+files > b.streamsLimit {
		b.streamsRefused++
		e := weir.Errorf(weir.Overloaded, "this server has reached its limit of open files, and another stream needs %d; end a stream, or raise the limit", files)
		e.RetryAfter = retryAfter
		return nil, e
	}
	b.streamFiles += files
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.streamFiles -= files
	}), nil
}

// Request takes a place for a request without a good key: it may take long, and may open a file. The
// connection in its context is not evicted until done is called. from is the address of the
// client, which may be behind a proxy.
func (b *Budget) Request(ctx context.Context, from netip.Addr) (done func(), err error) {
	place, err := b.requests.Enter(netip.AddrPortFrom(from, 0), nil)
	switch err {
	case nil:
		c := connOf(ctx)
		c.view(1)
		return func() {
			c.view(-1)
			place.Leave()
		}, nil
	case ErrAddress:
		return nil, weir.TooMany(retryAfter, "too many concurrent requests from this address; wait for responses before you send more")
	}
	e := weir.Errorf(weir.Overloaded, "this server has reached its limit of concurrent requests; try again in a few seconds")
	e.RetryAfter = retryAfter
	return nil, e
}

// Stats are the numbers of a budget since its start.
type Stats struct {
	Anonymous     int64 // HTTP connections without a good key
	Authenticated int64 // HTTP connections with one
	Waiting       int64 // encoders that have not shown a good stream key yet
	Peers         int64 // connections of WebRTC over TCP
	Requests      int64 // that run, without a good key
	StreamFiles   int64 // open files that streams on air may have
	Refused       int64 // connections, requests and streams
	Evicted       int64 // connections that made room for others
}

// Stats returns the current numbers.
func (b *Budget) Stats() Stats {
	anonymous, authenticated, waiting := b.anonymous.Stats(), b.authenticated.Stats(), b.waiting.Stats()
	peers, requests := b.peers.Stats(), b.requests.Stats()
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		Anonymous: anonymous.Members, Authenticated: authenticated.Members, Waiting: waiting.Members,
		Peers: peers.Members, Requests: requests.Members, StreamFiles: int64(b.streamFiles),
		// A connection without a place among those with a key keeps the one that it has.
		Refused: anonymous.Refused + waiting.Refused + peers.Refused + requests.Refused + b.streamsRefused,
		Evicted: anonymous.Evicted + authenticated.Evicted + waiting.Evicted + peers.Evicted,
	}
}

// report logs from time to time that clients found no place.
func (b *Budget) report() {
	s := b.Stats()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if s.Refused+s.Evicted == b.reported || now.Sub(b.logged) < logEvery {
		return
	}
	b.reported, b.logged = s.Refused+s.Evicted, now
	b.log.Warn("connection limit reached; idle connections were closed, or new ones refused",
		"closed", s.Evicted, "refused", s.Refused, "anonymous", s.Anonymous, "authenticated", s.Authenticated, "waiting", s.Waiting, "peers", s.Peers)
}
