package blob

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"

	"weir/internal/guard"
	"weir/internal/weir"
)

// timing holds the timeouts and retries of requests. Zero fields stand for the defaults.
type timing struct {
	tries    int           // tries without success
	pause    time.Duration // before the second try; doubled before each later one
	maxPause time.Duration
	stall    time.Duration // how long a server may send and receive nothing
	finish   time.Duration // the same, while it copies or joins large objects
	probe    time.Duration // for the check of a destination
}

func (t timing) orDefault() timing {
	return timing{
		tries: cmp.Or(t.tries, 6), pause: cmp.Or(t.pause, 200*time.Millisecond), maxPause: cmp.Or(t.maxPause, 5*time.Second),
		stall: cmp.Or(t.stall, 30*time.Second), finish: cmp.Or(t.finish, 5*time.Minute), probe: cmp.Or(t.probe, 5*time.Second),
	}
}

// maxRetryAfter bounds the pause that a server can ask for with Retry-After.
const maxRetryAfter = 30 * time.Second

// worthRetry reports whether an error may go away within seconds.
func worthRetry(err error) bool {
	return weir.KindOf(err) == weir.Upstream && !errors.Is(err, errChanged) && !errors.Is(err, errWrongRange)
}

// wait sleeps before try number n+1, where n tries failed, the last one with err.
func (t timing) wait(ctx context.Context, n int, err error) error {
	pause := t.maxPause
	if n < 16 {
		pause = min(t.pause<<(n-1), t.maxPause)
	}
	// A random part spreads requests that failed at the same time.
	pause = pause/2 + rand.N(pause/2+1)
	if e, ok := errors.AsType[*weir.Error](err); ok && e.RetryAfter > 0 {
		pause = max(pause, min(e.RetryAfter, maxRetryAfter))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retry calls do until it works, fails with a final error or has failed too often.
func (t timing) retry(ctx context.Context, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if err == nil || ctx.Err() != nil || n >= t.tries || !worthRetry(err) {
			return err
		}
		if e := t.wait(ctx, n, err); e != nil {
			return errors.Join(e, err)
		}
	}
}

// errStalled is the cause of a context that a watchdog ended.
var errStalled = errors.New("no data for too long")

// watchdog ends a context when there was no progress for a while.
type watchdog struct {
	limit  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// watch returns a context with a watchdog, which must be stopped.
func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &watchdog{limit: limit, cancel: cancel}
	d.timer = time.AfterFunc(limit, func() { cancel(errStalled) })
	return ctx, d
}

func (d *watchdog) moved() { d.timer.Reset(d.limit) }

// stop may be called more than once.
func (d *watchdog) stop() {
	d.timer.Stop()
	d.cancel(nil)
}

// minProgress is how many bytes must arrive within the timeout of a watchdog: a server that sends a byte
// now and then has stalled, too.
const minProgress = 16 << 10

type watchedBody struct {
	io.ReadCloser
	cause func() error // of the context
	dog   *watchdog
	since int // bytes since dog.moved
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.since += n; b.since >= minProgress {
		b.since = 0
		b.dog.moved()
	}
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(b.cause(), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.dog.stop()
	return err
}

// sentBody is the body of one request. After end, Read fails: a transport may still read when the
// request has failed already, and the next request reads from the same reader.
type sentBody struct {
	mu    sync.Mutex
	r     io.Reader // nil after the end
	moved func()
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.r == nil {
		return 0, io.ErrClosedPipe
	}
	n, err := b.r.Read(p)
	if n > 0 {
		b.moved()
	}
	return n, err
}

func (b *sentBody) Close() error { b.end(); return nil }

func (b *sentBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r = nil
}

// netError returns an error of the network with its kind. Its message contains only parts of err that
// can't have a credential.
func netError(ctx context.Context, err error, host string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the rest is the URL, with its query and its user
	}
	if blocked, ok := errors.AsType[*guard.BlockedError](err); ok {
		return weir.Errorf(weir.Invalid, "%s", blocked.Error())
	}
	if _, ok := errors.AsType[*weir.Error](err); ok {
		return err
	}
	if errors.Is(context.Cause(ctx), errStalled) || errors.Is(err, errStalled) {
		return weir.Wrap(weir.Upstream, errStalled, "%s stopped answering", host)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return weir.Wrap(weir.Upstream, err, "the address of host %s could not be looked up", host)
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return weir.Errorf(weir.Invalid, "the TLS certificate of %s is not trusted: %s", host, e.Err)
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return weir.Wrap(weir.Upstream, err, "%s did not answer in time", host)
	}
	return weir.Wrap(weir.Upstream, err, "the connection to %s failed", host)
}

// bytesFor formats a number of bytes for people.
func bytesFor(n int64) string {
	const unit = 1024
	if n < unit && n > -unit {
		return fmt.Sprintf("%d bytes", n)
	}
	value, exp := float64(n), -1
	for (value >= unit || value <= -unit) && exp < 4 {
		value /= unit
		exp++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[exp])
}
