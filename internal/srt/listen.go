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

// Listen listens on an address. Callers must encrypt with the passphrase; if it is empty, they must
// not encrypt.
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
				// With the library's option, two programs could listen on one address, and one of
				// them would get nothing.
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0),
				// The kernel may give less.
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

// accept returns the next caller; nil = its handshake was malformed. The library does not check all
// lengths in a handshake before it uses them.
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

// StreamKey checks the encryption of the caller and returns the stream key in its stream id. The
// error is for Reject and does not contain the stream id.
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

// packetSize returns the packet size that the caller asks for. The library does not export it, and
// allocates 4 GiB if it is 0.
func (r *Request) packetSize() uint64 {
	return reflect.Indirect(reflect.ValueOf(r.request)).FieldByName("config").FieldByName("PayloadSize").Uint()
}

// Accept accepts the caller. The connection must be closed.
func (r *Request) Accept() (*Conn, error) {
	c := newConn(r.listener.hooks, r.listener.maxAhead)
	// It is registered before the connection exists, so that an early shutdown is not missed.
	r.listener.hooks.register(r.request.SocketId(), c)
	conn, err := r.request.Accept()
	if err != nil {
		r.listener.hooks.register(r.request.SocketId(), nil)
		return nil, err
	}
	c.start(conn)
	return c, nil
}

// ErrOverload rejects a caller because there are too many.
var ErrOverload error = &refusal{gosrt.REJX_OVERLOAD, "there are too many connections"}

// Reject rejects the caller with the SRT code for an error.
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
	case weir.Busy, weir.Outage:
		return gosrt.REJX_DOWN
	case weir.Full:
		return gosrt.REJX_NOROOM
	case weir.Overloaded:
		return gosrt.REJX_OVERLOAD
	}
	return gosrt.REJX_ISE
}

// refusal is why a caller is rejected: a code for it, a sentence for the log.
type refusal struct {
	code gosrt.RejectionReason
	why  string
}

func (r *refusal) Error() string { return r.why }
