package blob

import (
	"context"
	"crypto/x509"
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

// tempo is how patient blob is with other servers. The zero value of a field stands
// for the default.
type tempo struct {
	tries    int           // how often something is tried that brings nothing
	pause    time.Duration // before the second try; twice as long before each later one
	maxPause time.Duration
	stall    time.Duration // how long a server may keep still
	finish   time.Duration // the same, when it has to copy or join large objects
	probe    time.Duration // for the check of a destination
}

func (t tempo) orDefault() tempo {
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	if t.tries == 0 {
		t.tries = 6
	}
	or(&t.pause, 200*time.Millisecond)
	or(&t.maxPause, 5*time.Second)
	or(&t.stall, 30*time.Second)
	or(&t.finish, 5*time.Minute)
	or(&t.probe, 5*time.Second)
	return t
}

// maxRetryAfter bounds how long a server can ask for timeout.
const maxRetryAfter = 30 * time.Second

// worthRetry reports whether an error may go away within seconds.
func worthRetry(err error) bool {
	return weir.KindOf(err) == weir.Upstream && !errors.Is(err, errChanged)
}

// wait sleeps before try number n+1, where n tries failed, the last one with err.
func (t tempo) wait(ctx context.Context, n int, err error) error {
	pause := t.maxPause
	if n < 16 {
		pause = min(t.pause<<(n-1), t.maxPause)
	}
	// A random part keeps those that failed together from coming back together.
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

// retry does something until it works, fails for good or has failed too often.
func (t tempo) retry(ctx context.Context, do func() error) error {
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

// errStalled is the cause of a context whose watchdog bit.
var errStalled = errors.New("nothing came for too long")

// watchdog ends a context when nothing has moved for a while.
type watchdog struct {
	limit  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// watch returns a context with a watchdog. It must be stopped.
func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &watchdog{limit: limit, cancel: cancel}
	d.timer = time.AfterFunc(limit, func() { cancel(errStalled) })
	return ctx, d
}

// moved tells the watchdog that something happened.
func (d *watchdog) moved() { d.timer.Reset(d.limit) }

func (d *watchdog) stop() {
	d.timer.Stop()
	d.cancel(nil)
}

// enough is how much has to come within the timeout of a watchdog: a server that
// sends a byte now and then keeps still, too.
const enough = 16 << 10

// watchedBody is a body that must keep coming.
type watchedBody struct {
	io.ReadCloser
	ctx   func() error // the cause, if the watchdog bit
	dog   *watchdog
	since int
	once  sync.Once
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.since += n; b.since >= enough {
		b.since = 0
		b.dog.moved()
	}
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(b.ctx(), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.dog.stop)
	return err
}

// sentBody is the body of one request. After end, it gives nothing: a transport may
// go on reading when the request has failed already, and the next one reads the same.
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

// Close lets it be the body of a request.
func (b *sentBody) Close() error { b.end(); return nil }

func (b *sentBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r = nil
}

// netError gives an error on the way to a server its kind. Of the error itself only
// what can't have a credential in it goes into the message.
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
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return weir.Errorf(weir.Invalid, "host %s has no address; check its name", host)
		}
		return weir.Wrap(weir.Upstream, err, "the address of host %s could not be looked up", host)
	}
	if why, ok := badCertificate(err); ok {
		return weir.Errorf(weir.Invalid, "%s has no certificate that can be trusted: %s", host, why)
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return weir.Wrap(weir.Upstream, err, "%s did not answer in time", host)
	}
	return weir.Wrap(weir.Upstream, err, "the connection to %s failed", host)
}

// badCertificate says what is wrong with the certificate of a server.
func badCertificate(err error) (string, bool) {
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return e.Error(), true
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return e.Error(), true
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return e.Error(), true
	}
	return "", false
}

// bytesFor writes a number of bytes for people.
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
