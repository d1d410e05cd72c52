package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"weir/internal/weir"
)

// retryAfter is when clients may try again after an outage of the database. A standby takes over in
// some seconds.
const retryAfter = 5 * time.Second

// outage is the error for callers while the database does not answer, or refuses writes.
func outage(cause error) error {
	e := weir.Wrap(weir.Outage, cause, "the database does not answer; try again in a few seconds")
	e.RetryAfter = retryAfter
	return e
}

// pgError gives an error of PostgreSQL its kind.
func pgError(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && e.Code == "23505":
		return fmt.Errorf("%w: %w", errDuplicate, err)
	case ok && e.Code == "22021": // zero bytes, invalid UTF-8
		return weir.Wrap(weir.Refused, err, "the request has text that is not valid UTF-8, or has a zero byte")
	case ok && e.Code == "53100":
		return weir.Wrap(weir.Full, err, "the disk of the database is full")
	case gone(err), ok && e.Severity == "FATAL":
		return outage(err)
	}
	return err
}

// readOnlyCode is the error of a write to a standby.
const readOnlyCode = "25006"

// goneCodes are the errors of a server that stops, starts, or is not the primary any more.
var goneCodes = []string{
	readOnlyCode,
	"57P01", "57P02", "57P03", // stopped by its administrator, crashed, can't connect now
	"53300", // all its connections are in use
}

// gone reports whether an error means that the server behind a connection does not answer, or is
// the wrong one by now. The end of the caller's context by a timeout is such an error, but not its
// cancellation.
func gone(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains(goneCodes, e.Code) || strings.HasPrefix(e.Code, "08")
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok { // context.DeadlineExceeded is one
		return true
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
