package live

import (
	"context"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// Why a publisher must end.
var (
	errTakenOver = weir.Errorf(weir.Refused, "another encoder sends to this stream key now")
	errEnded     = weir.Errorf(weir.Refused, "the stream was ended by its owner")
	errStopping  = weir.Errorf(weir.Busy, "this server is shutting down; connect again")
)

// Publisher is an encoder that sends a stream. One goroutine uses it.
type Publisher struct {
	hub    *Hub
	stream weir.Stream
	from   Source

	// What its session keeps of it.
	session *session
	tracks  []cmaf.Track
	packers []*packer // by track; nil = left out
	clock   *clock
	shared  bool   // others have the picture in hand too
	leftOut string // what the encoder sends and nobody gets, for people

	done  chan struct{}
	once  sync.Once
	cause error
}

// StreamID names the stream, for logs.
func (p *Publisher) StreamID() string { return p.stream.ID }

// Done is closed when the publisher must end although nothing is being written.
func (p *Publisher) Done() <-chan struct{} { return p.done }

// stop tells the publisher to end.
func (p *Publisher) stop(cause error) {
	p.once.Do(func() {
		p.cause = cause
		close(p.done)
	})
}

// SetTracks says what the encoder sends: before the first frame, and again when that
// changes. With the first call the stream is on air.
func (p *Publisher) SetTracks(ctx context.Context, tracks []cmaf.Track) error {
	if p.session == nil {
		s, err := p.hub.onAir(ctx, p.stream)
		if err != nil {
			return err
		}
		p.session = s
	}
	return p.session.begin(p, tracks, time.Now())
}

// LeaveOut notes what the encoder sends and the stream has to do without, in a sentence for
// the health of the stream; "" = nothing.
func (p *Publisher) LeaveOut(what string) {
	if p.session != nil {
		p.session.mu.Lock()
		defer p.session.mu.Unlock()
	}
	p.leftOut = what
}

// Write takes a frame. An error says why the connection must end.
func (p *Publisher) Write(f Frame) error {
	select {
	case <-p.done:
		return p.cause
	default:
	}
	if p.session == nil || f.Track < 0 || f.Track >= len(p.tracks) {
		return weir.Errorf(weir.Invalid, "a frame of a track that was not announced")
	}
	return p.session.write(p, f)
}

// Close says that the connection has ended; clean = the encoder said so before.
func (p *Publisher) Close(clean bool) {
	p.stop(errEnded)
	if p.session != nil {
		p.hub.left(p, clean)
	}
}
