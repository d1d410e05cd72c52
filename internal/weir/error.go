package weir

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kind says what a caller can do about an error.
type Kind string

// The kinds of errors.
const (
	Internal        Kind = "internal"        // nothing: it is our fault, and only the log says why
	Refused         Kind = "refused"         // ask for something else: this can't be done as asked
	Invalid         Kind = "invalid"         // mend the field that the message names
	Unauthenticated Kind = "unauthenticated" // send a credential that works
	Denied          Kind = "denied"          // ask somebody with more rights
	NotFound        Kind = "not-found"       // look elsewhere
	Conflict        Kind = "conflict"        // it exists already
	Gone            Kind = "gone"            // it was here once; start from what is here now
	NotReady        Kind = "not-ready"       // wait until the resource is ready
	TooLarge        Kind = "too-large"       // send less
	Unsupported     Kind = "unsupported"     // send it in another form
	Unacceptable    Kind = "unacceptable"    // ask for it in another form
	Busy            Kind = "busy"            // send the same request later
	Unavailable     Kind = "unavailable"     // this installation does not have it
	Upstream        Kind = "upstream"        // the other server failed, not this one
	Full            Kind = "full"            // the operator's disk is full; send the same request when there is room
)

// Status returns the HTTP status that a kind of error is answered with.
func (k Kind) Status() int {
	switch k {
	case Refused:
		return http.StatusBadRequest
	case Invalid:
		return http.StatusUnprocessableEntity
	case Unauthenticated:
		return http.StatusUnauthorized
	case Denied:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusConflict
	case Gone:
		return http.StatusGone
	case NotReady:
		return http.StatusPreconditionFailed
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Unsupported:
		return http.StatusUnsupportedMediaType
	case Unacceptable:
		return http.StatusNotAcceptable
	case Busy:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusNotImplemented
	case Upstream:
		return http.StatusBadGateway
	case Full:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// Error is an error whose Messages may be shown to the caller of the API. What
// only the operator may see is in Err.
type Error struct {
	Kind       Kind
	Messages   []string
	Err        error
	RetryAfter time.Duration // for Busy: when it is worth trying again
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

// KindOf returns the kind of the first Error in err's chain, and Internal for
// every other error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// ErrNotFound is the answer for what does not exist and for what belongs to
// somebody else: the two must look alike.
func ErrNotFound() *Error { return Errorf(NotFound, "not found") }

// Retriable reports whether what failed may work when it is done again, without
// anybody changing anything: another server failed, a disk was full, or the fault
// is ours.
func Retriable(err error) bool {
	switch KindOf(err) {
	case Internal, Busy, Upstream, Full:
		return true
	}
	return false
}
