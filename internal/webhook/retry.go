package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/internal/guard"
	"weir/internal/weir"
)

const (
	maxRetries   = 33
	firstBackoff = 5 * time.Second
	maxBackoff   = time.Hour
)

// retryAt returns when to try again after an exchange, or zero if there is no further attempt.
// attempts is the number of earlier attempts.
func (x *exchange) retryAt(attempts int, first time.Duration) time.Time {
	again := !x.final && (x.status == 0 || x.status >= 500 ||
		x.status == http.StatusRequestTimeout || x.status == http.StatusTooManyRequests)
	if !again || attempts >= maxRetries {
		return time.Time{}
	}
	wait := max(backoff(attempts, first), x.retryAfter)
	// Jitter, so that deliveries that failed together are not retried together.
	wait += rand.N(wait/20 + 1)
	return time.Now().Add(min(wait, maxBackoff))
}

// backoff returns the pause after an attempt. It doubles each time, up to an hour.
func backoff(attempts int, first time.Duration) time.Duration {
	return min(first<<min(attempts, 10), maxBackoff) // 5 s · 2¹⁰ is more than an hour
}

// parseRetryAfter reads a Retry-After header: seconds, or a date. It returns 0 for an invalid value
// or a time in the past, and at most maxBackoff.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxBackoff/time.Second) { // too many digits
			return maxBackoff
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxBackoff)
}

// fail records why there was no response. The error of an http.Client contains the URL, which may
// have a token in it, so the reason is one of our own texts.
func (x *exchange) fail(err error) {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*guard.BlockedError](err); ok {
		// A name may get a public address, and those that do not exist must look like private ones.
		x.reason, x.final, x.blocked = e.Error(), e.Literal(), e.Literal()
		return
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind == weir.Invalid { // a redirect that is not followed
		x.reason, x.final = e.Messages[0], true
		return
	}
	x.reason, x.timedOut = x.describe(err), isTimeout(err)
}

// isTimeout reports whether an exchange ended because something took too long.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// describe names the cause of a network error.
func (x *exchange) describe(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host name could not be resolved"
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return weir.Shorten("the certificate is not valid: "+e.Err.Error(), 300)
	}
	if isTimeout(err) {
		return "timeout: no response within " + x.timeout.String()
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "host unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before the response"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "the server does not speak TLS"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return "the server refused the TLS handshake"
	}
	return "the response is not valid HTTP"
}
