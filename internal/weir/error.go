package weir

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kind classifies an error by what the caller can do about it.
type Kind string

// The kinds of errors.
const (
	Internal        Kind = "internal"        // nothing: it is our fault; the log has the cause
	Refused         Kind = "refused"         // send another request: this one can't be done
	Invalid         Kind = "invalid"         // correct the field that the message names
	Unauthenticated Kind = "unauthenticated" // send a credential that works
	Denied          Kind = "denied"          // use an account with more rights
	NotFound        Kind = "not-found"       // look elsewhere
	Conflict        Kind = "conflict"        // it exists already
	Gone            Kind = "gone"            // it existed once; read the current state
	NotReady        Kind = "not-ready"       // wait until the resource is ready
	TooLarge        Kind = "too-large"       // send less
	Unsupported     Kind = "unsupported"     // send it in another form
	Unacceptable    Kind = "unacceptable"    // request another form
	Busy            Kind = "busy"            // send the same request later
	Overloaded      Kind = "overloaded"      // send the same request later: others use all that this server has
	Unavailable     Kind = "unavailable"     // this installation does not have it
	Upstream        Kind = "upstream"        // the other server failed, not this one
	Full            Kind = "full"            // the operator's disk is full; send the same request when there is free space
	Outage          Kind = "outage"          // send the same request later: the database does not answer, or refuses writes
)

var statuses = map[Kind]int{
	Refused: http.StatusBadRequest, Invalid: http.StatusUnprocessableEntity, Unauthenticated: http.StatusUnauthorized,
	Denied: http.StatusForbidden, NotFound: http.StatusNotFound, Conflict: http.StatusConflict, Gone: http.StatusGone,
	NotReady: http.StatusPreconditionFailed, TooLarge: http.StatusRequestEntityTooLarge, Unsupported: http.StatusUnsupportedMediaType,
	Unacceptable: http.StatusNotAcceptable, Busy: http.StatusTooManyRequests, Unavailable: http.StatusNotImplemented,
	Upstream: http.StatusBadGateway, Full: http.StatusInsufficientStorage, Overloaded: http.StatusServiceUnavailable,
	Outage: http.StatusServiceUnavailable,
}

// Status returns the HTTP status of the response to an error of this kind.
func (k Kind) Status() int { return cmp.Or(statuses[k], http.StatusInternalServerError) }

// KindOfStatus returns the kind of error that an HTTP status stands for. Of a 503 it can't say what
// the server lacks.
func KindOfStatus(status int) Kind {
	for kind, of := range statuses {
		if of == status && kind != Outage {
			return kind
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		return Upstream
	case status == http.StatusLocked, status == http.StatusRequestTimeout:
		return Busy
	}
	return Refused
}

// Error is an error whose Messages may be shown to the caller of the API. Err holds what only the
// operator may see.
type Error struct {
	Kind       Kind
	Messages   []string
	Err        error
	RetryAfter time.Duration // for Busy, Overloaded and Outage: when to try again
}

func (e *Error) Error() string {
	text := strings.Join(e.Messages, "; ")
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error with a message for the caller.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Messages: []string{fmt.Sprintf(format, args...)}}
}

// Wrap is Errorf with a cause that only the log shows.
func Wrap(kind Kind, cause error, format string, args ...any) *Error {
	e := Errorf(kind, format, args...)
	e.Err = cause
	return e
}

// TooMany makes an error of kind Busy: the caller may try again after the given time.
func TooMany(retryAfter time.Duration, format string, args ...any) *Error {
	e := Errorf(Busy, format, args...)
	e.RetryAfter = retryAfter
	return e
}

// Shorten cuts a text of a caller, or of another server, that goes into a message.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// KindOf returns the kind of the first Error in err's chain, and Internal for every other error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// ErrNotFound is the error for resources that do not exist and for those of other accounts: the
// two must look alike.
func ErrNotFound() *Error { return Errorf(NotFound, "not found") }

// IsNotFound reports whether err is of kind NotFound.
func IsNotFound(err error) bool { return KindOf(err) == NotFound }

// Retriable reports whether a retry may succeed without any change: another server or the database
// failed, a disk or this server was full, or the fault is ours.
func Retriable(err error) bool {
	switch KindOf(err) {
	case Internal, Busy, Overloaded, Upstream, Full, Outage:
		return true
	}
	return false
}
