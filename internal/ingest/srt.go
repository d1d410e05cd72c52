package ingest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	srt "github.com/datarhei/gosrt"

	"weir/internal/live"
	"weir/internal/weir"
)

// SRT lets encoders publish MPEG-TS over SRT, with their stream key as the streamid; see
// streamKeyIn for its forms.
type SRT struct {
	Addr string
	Hub  *live.Hub
	Log  *slog.Logger

	// Passphrase is what encoders must encrypt with; empty = they must not encrypt.
	Passphrase weir.Secret

	// Counters, if there are some, count the connections.
	Counters *Counters
	// MaxConnections is how many there may be at once; 0 = 1000.
	MaxConnections int
	// MaxWaiting is how many connections from one address may be there without having
	// shown a good stream key; 0 = 32.
	MaxWaiting int
	// MaxAhead is how many packets of a connection may wait for the time at which they
	// are delivered; 0 = 16384, five seconds of 35 Mbit/s. The library walks through them
	// all a hundred times a second.
	MaxAhead int

	// listening, if a test wants to know, gets the address that is listened on.
	listening func(net.Addr)
	// publish is Hub.Publish, if a test does not want another one.
	publish func(ctx context.Context, key string, from live.Source) (publisher, error)
}

const (
	// srtAnswerTime is how long a handshake may take here: callers give up after three
	// seconds.
	srtAnswerTime = 3 * time.Second
	// srtIdleTime is how long nothing may come, not even a sign of life, which callers
	// give every second. What waits for its time to be delivered is lost after that, so
	// it is longer than the latency that encoders ask for.
	srtIdleTime = 5 * time.Second
	// srtReceiveBuffer is how many bytes the kernel keeps while weir is busy.
	srtReceiveBuffer = 4 << 20
)

// Run lets encoders in until ctx ends, and returns when the last of them is gone.
func (r SRT) Run(ctx context.Context) error {
	s := newSRTServer(r)
	listener, err := s.listen()
	if err != nil {
		return err
	}
	if r.listening != nil {
		r.listening(listener.Addr())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.connections.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, listener.Close)
	defer listener.Close()
	defer stop()
	for {
		request, err := s.accept(listener)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case request == nil:
			continue
		}
		seat, ok := s.admit(request.RemoteAddr())
		if !ok {
			request.Reject(srt.REJX_OVERLOAD)
			continue
		}
		s.connections.Go(func() { s.serve(ctx, request, seat) })
	}
}

// srtServer is a running SRT.
type srtServer struct {
	SRT
	*seats
	calls       *srtCalls
	connections sync.WaitGroup
}

func newSRTServer(r SRT) *srtServer {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	return &srtServer{
		SRT: r, seats: newSeats(cmp.Or(r.MaxConnections, 1000), cmp.Or(r.MaxWaiting, 32), r.Log).countBy(r.Counters),
		calls: &srtCalls{calls: map[uint32]*srtConnection{}},
	}
}

func (s *srtServer) listen() (srt.Listener, error) {
	addr, err := net.ResolveUDPAddr("udp", s.Addr) // the library takes no names
	if err != nil {
		return nil, err
	}
	config := srt.DefaultConfig()
	config.PeerIdleTimeout = srtIdleTime
	config.Logger = s.calls
	// The library lets two programs listen on one address, of which one hears nothing.
	config.ListenerControl = func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0),
				// All connections share it; the kernel gives less if it does not allow as much.
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, srtReceiveBuffer),
			)
		})
		return errors.Join(err, failed)
	}
	return srt.Listen("srt", addr.String(), config)
}

// accept returns the next one who wants to connect; nil = it was none. The library does
// not check all lengths in a handshake before it uses them.
func (s *srtServer) accept(l srt.Listener) (request srt.ConnRequest, err error) {
	defer func() {
		if recover() != nil {
			request, err = nil, nil
		}
	}()
	return l.Accept2()
}

// serve serves one connection.
func (s *srtServer) serve(ctx context.Context, request srt.ConnRequest, t *seat) {
	defer t.leave()
	from := live.Source{Protocol: "srt", Remote: request.RemoteAddr().String()}
	log := s.Log.With("remote", from.Remote)
	publisher, refused := s.let(ctx, request, from, log)
	if refused != nil {
		request.Reject(refused.code)
		t.fail()
		s.strangers.tell(log, slog.LevelWarn, "publisher refused", refused.why)
		return
	}
	t.settle()
	c := newSRTConnection(publisher, cmp.Or(s.MaxAhead, 1<<14), log.With("stream", publisher.StreamID()))
	// The number is known before the connection is there, so that no word of it is missed.
	s.calls.enter(request.SocketId(), c)
	defer s.calls.enter(request.SocketId(), nil)
	conn, err := request.Accept()
	if err != nil {
		publisher.Close(false)
		log.Warn("connection could not be accepted", "err", err)
		return
	}
	// Whatever an encoder can make us do, it happens to it alone.
	defer func() {
		if problem := recover(); problem != nil {
			c.leave(false)
			log.Error("connection ended by a defect", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	c.log.Info("publisher connected", "protocol", from.Protocol)
	c.end(ctx, c.run(ctx, conn))
}

// let looks who wants to publish, and whether it may.
func (s *srtServer) let(ctx context.Context, request srt.ConnRequest, from live.Source, log *slog.Logger) (publisher, *srtRefusal) {
	if request.Version() < 5 {
		return nil, &srtRefusal{srt.REJ_VERSION, "the encoder speaks a version of SRT that has no streamid; it must be 1.3 or newer"}
	}
	if size := packetSize(request); size < srt.MIN_PAYLOAD_SIZE || size > srt.MAX_PAYLOAD_SIZE {
		return nil, &srtRefusal{srt.REJ_ROGUE, "the encoder asks for packets of a size that does not exist"}
	}
	switch secret := s.Passphrase.Reveal(); {
	case secret == "" && request.IsEncrypted():
		return nil, &srtRefusal{srt.REJ_UNSECURE, "the encoder encrypts, and there is no passphrase here; set --srt-passphrase or leave it out at the encoder"}
	case secret != "" && !request.IsEncrypted():
		return nil, &srtRefusal{srt.REJ_UNSECURE, "the encoder does not encrypt; give it the passphrase"}
	case secret != "" && request.SetPassphrase(secret) != nil:
		return nil, &srtRefusal{srt.REJ_BADSECRET, "the encoder has another passphrase"}
	}
	key, refused := streamKeyIn(request.StreamId())
	if refused != nil {
		return nil, refused
	}
	asking, cancel := context.WithTimeout(ctx, srtAnswerTime)
	defer cancel()
	p, err := s.publish(asking, key, from)
	if err != nil {
		return nil, refuseSRT(err, log)
	}
	return p, nil
}

// packetSize returns how long the packets to a caller would be. The library does not
// show it, and makes room for 4 GiB when the caller says that it is nothing.
func packetSize(request srt.ConnRequest) uint64 {
	size := reflect.Indirect(reflect.ValueOf(request)).FieldByName("config").FieldByName("PayloadSize")
	return size.Uint()
}

// refuseSRT says why an encoder can't publish.
func refuseSRT(err error, log *slog.Logger) *srtRefusal {
	why := "the stream key could not be looked up"
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		why = strings.Join(e.Messages, "; ")
	}
	switch weir.KindOf(err) {
	case weir.NotFound:
		return &srtRefusal{srt.REJX_NOTFOUND, "no stream has this stream key"}
	case weir.Refused, weir.Denied:
		return &srtRefusal{srt.REJX_FORBIDDEN, why}
	case weir.Busy:
		return &srtRefusal{srt.REJX_DOWN, why}
	}
	log.Error("stream key could not be looked up", "err", err)
	return &srtRefusal{srt.REJX_ISE, why}
}

// srtCalls knows the connections by the numbers of their sockets.
//
// It is the library's logger, too. That is the only way to hear that an encoder says
// goodbye, and to keep the library from forgetting at once what it has received and
// would deliver within the next moments.
type srtCalls struct {
	mu    sync.Mutex
	calls map[uint32]*srtConnection
}

// goodbyeTopic is what the library logs first when the encoder ends the connection.
const goodbyeTopic = "control:recv:shutdown:dump"

// enter notes which connection has the number; nil = none.
func (s *srtCalls) enter(socket uint32, c *srtConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil {
		delete(s.calls, socket)
	} else {
		s.calls[socket] = c
	}
}

// Print hears what the library does. A connection that was told goodbye is kept waiting
// until all that came has been delivered.
func (s *srtCalls) Print(topic string, socket uint32, _ int, _ func() string) {
	if topic != goodbyeTopic {
		return
	}
	s.mu.Lock()
	c := s.calls[socket]
	s.mu.Unlock()
	if c != nil {
		c.hearGoodbye()
	}
}

// HasTopic is of the library's interface, as are Listen and Close.
func (s *srtCalls) HasTopic(topic string) bool { return topic == goodbyeTopic }

// Listen returns nothing: what is heard is handled at once.
func (s *srtCalls) Listen() <-chan srt.Log { return nil }

// Close has nothing to do.
func (s *srtCalls) Close() {}
