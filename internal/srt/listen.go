package srt

import (
	"errors"
	"net"
	"reflect"
	"syscall"

	gosrt "github.com/datarhei/gosrt"

	"weir/internal/weir"
)

// receiveBuffer is how many bytes the kernel keeps while weir is busy. All connections of a
// listener share it.
const receiveBuffer = 4 << 20

// Listener waits for callers.
type Listener struct {
	passphrase weir.Secret
	maxAhead   int
	hooks      *hooks
	listener   gosrt.Listener
}

// Listen listens on an address, which it shares with no other program. Callers must encrypt with
// the passphrase; if it is empty, they must not encrypt.
func Listen(address string, passphrase weir.Secret) (*Listener, error) {
	addr, err := net.ResolveUDPAddr("udp", address) // the library takes no names
	if err != nil {
		return nil, err
	}
	hooks := newHooks()
	config := hooks.config()
	config.ListenerControl = func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = errors.Join(
				// The library lets two programs listen on one address, of which one hears nothing.
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0),
				// The kernel gives less if it does not allow as much.
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receiveBuffer),
			)
		})
		return errors.Join(err, failed)
	}
	listener, err := gosrt.Listen("srt", addr.String(), config)
	if err != nil {
		return nil, err
	}
	return &Listener{passphrase, maxAhead, hooks, listener}, nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close ends the listener and its connections. They must be closed too.
func (l *Listener) Close() { l.listener.Close() }

// Accept waits for the next caller.
func (l *Listener) Accept() (*Request, error) {
	for {
		request, err := l.accept()
		if err != nil {
			return nil, err
		}
		if request != nil {
			return &Request{request, l}, nil
		}
	}
}

// accept returns the next caller; nil = its handshake was malformed. The library does not check
// all lengths in a handshake before it uses them.
func (l *Listener) accept() (request gosrt.ConnRequest, err error) {
	defer func() {
		if recover() != nil {
			request, err = nil, nil
		}
	}()
	return l.listener.Accept2()
}

// Request is a caller that waits to be accepted or rejected.
type Request struct {
	request  gosrt.ConnRequest
	listener *Listener
}

// RemoteAddr returns the address of the caller.
func (r *Request) RemoteAddr() net.Addr { return r.request.RemoteAddr() }

// StreamKey returns the stream key in the stream id of a caller that connects as it must. The
// error says what is wrong, without the stream id; it is for Reject.
func (r *Request) StreamKey() (string, error) {
	secret := r.listener.passphrase.Reveal()
	switch size := r.packetSize(); {
	case r.request.Version() < 5:
		return "", &refusal{gosrt.REJ_VERSION, "the encoder speaks a version of SRT that has no streamid; it must be 1.3 or newer"}
	case size < gosrt.MIN_PAYLOAD_SIZE || size > gosrt.MAX_PAYLOAD_SIZE:
		return "", &refusal{gosrt.REJ_ROGUE, "the encoder asks for packets of a size that does not exist"}
	case secret == "" && r.request.IsEncrypted():
		return "", &refusal{gosrt.REJ_UNSECURE, "the encoder encrypts, and there is no passphrase here; set --srt-passphrase or leave it out at the encoder"}
	case secret != "" && !r.request.IsEncrypted():
		return "", &refusal{gosrt.REJ_UNSECURE, "the encoder does not encrypt; give it the passphrase"}
	case secret != "" && r.request.SetPassphrase(secret) != nil:
		return "", &refusal{gosrt.REJ_BADSECRET, "the encoder has another passphrase"}
	}
	return streamKey(r.request.StreamId())
}

// packetSize returns the size of packets to the caller. The library does not show it, and
// allocates 4 GiB when a caller says that it is 0.
func (r *Request) packetSize() uint64 {
	size := reflect.Indirect(reflect.ValueOf(r.request)).FieldByName("config").FieldByName("PayloadSize")
	return size.Uint()
}

// Accept takes the call. The connection must be closed.
func (r *Request) Accept() (*Conn, error) {
	c := newConn(r.listener.hooks, r.listener.maxAhead)
	// Before the connection exists, so that its end is heard however soon it comes.
	r.listener.hooks.enter(r.request.SocketId(), c)
	conn, err := r.request.Accept()
	if err != nil {
		r.listener.hooks.enter(r.request.SocketId(), nil)
		return nil, err
	}
	c.start(conn)
	return c, nil
}

// ErrOverload rejects a caller because there are too many.
var ErrOverload error = &refusal{gosrt.REJX_OVERLOAD, "there are too many connections"}

// Reject tells the caller that it can't connect, with the code of SRT for a kind of error.
func (r *Request) Reject(err error) { r.request.Reject(rejection(err)) }

func rejection(err error) gosrt.RejectionReason {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	switch weir.KindOf(err) {
	case weir.NotFound:
		return gosrt.REJX_NOTFOUND
	case weir.Refused, weir.Denied:
		return gosrt.REJX_FORBIDDEN
	case weir.Busy:
		return gosrt.REJX_DOWN
	}
	return gosrt.REJX_ISE
}

// refusal is why a caller is rejected: a code for it, a sentence for the log.
type refusal struct {
	code gosrt.RejectionReason
	why  string
}

func (r *refusal) Error() string { return r.why }
