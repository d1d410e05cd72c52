package live

import (
	"context"
	"slices"
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

	returns bool // to its open session, and the store could not say whether it may

	session *session // nil = no tracks are announced yet

	// Guarded by the session.
	tracks  []cmaf.Track
	packers []*packer // by track; nil = left out
	clock   *clock
	shared  bool   // taps have the data of the pending video frame too
	issue   string // an issue: what the encoder sends and the stream does without

	stopping sync.Once
	stopped  chan struct{} // closed when the publisher must end
	cause    error         // why, from then on
}

func newPublisher(h *Hub, stream weir.Stream, from Source) *Publisher {
	return &Publisher{hub: h, stream: stream, from: from, stopped: make(chan struct{})}
}

// stop notes why the publisher must end; the first cause counts.
func (p *Publisher) stop(cause error) {
	p.stopping.Do(func() {
		p.cause = cause
		close(p.stopped)
	})
}

// err returns why the publisher must end; nil = it need not.
func (p *Publisher) err() error {
	select {
	case <-p.stopped:
		return p.cause
	default:
		return nil
	}
}

// StreamID names the stream, for logs.
func (p *Publisher) StreamID() string { return p.stream.ID }

// Done is closed when the publisher must end although nothing is being written.
func (p *Publisher) Done() <-chan struct{} { return p.stopped }

// opens reports whether players can begin with a frame.
func (p *Publisher) opens(f Frame) bool {
	hasVideo := slices.ContainsFunc(p.tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
	return !hasVideo || p.tracks[f.Track].Kind == cmaf.Video && f.Sync
}

// SetTracks sets the tracks that the encoder sends: before the first frame, and again when they
// change. With the first call the stream is on air.
func (p *Publisher) SetTracks(ctx context.Context, tracks []cmaf.Track) error {
	if p.session == nil {
		s, err := p.hub.onAir(ctx, p.stream, p.returns)
		if err != nil {
			return err
		}
		p.session = s
	}
	return p.session.connect(p, tracks, time.Now())
}

// SetIssue sets an issue of the stream, such as a track that is left out, in a sentence for its owner;
// "" = none.
func (p *Publisher) SetIssue(issue string) {
	if p.session != nil {
		p.session.mu.Lock()
		defer p.session.mu.Unlock()
	}
	p.issue = issue
}

// Write takes a frame. After an error the connection must end.
func (p *Publisher) Write(f Frame) error {
	if err := p.err(); err != nil {
		return err
	}
	if p.session == nil || f.Track < 0 || f.Track >= len(p.tracks) {
		return weir.Errorf(weir.Invalid, "the encoder sent a frame of a track that it did not announce")
	}
	return p.session.write(p, f)
}

// Close notes that the connection has ended; clean = the encoder announced that.
func (p *Publisher) Close(clean bool) {
	p.stop(errEnded)
	if p.session == nil {
		return
	}
	if err := p.session.disconnect(p, clean); err != nil {
		p.session.log.Warn("the last segment from the encoder could not be written", "err", err)
	}
}
