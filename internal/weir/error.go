package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a caller can do about an error. The HTTP status of each kind
// is in one table in package api.
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
	Busy            Kind = "busy"            // send the same request later
	Unavailable     Kind = "unavailable"     // this installation does not have it
	Upstream        Kind = "upstream"        // the other server failed, not this one
)

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
