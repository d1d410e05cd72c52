package endpoint

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"time"
)

// Response is an http.ResponseWriter that records what was sent, and ends the connection of a client
// that does not read. It delays the status until the first byte, so that an error before that can
// still be sent with its own status. Who makes a Response calls End when the handler has returned.
type Response struct {
	http.ResponseWriter

	// Request tells whether the client is still there; nil = it is not known.
	Request *http.Request
	// Timeout is how long the client may take to read Step bytes, or what is written at once if Step is
	// 0. It is no limit for all of the response, which may be a file of many gigabytes. 0 = the
	// deadline of the connection stays as it is.
	Timeout time.Duration
	// Step also lets the kernel copy files to the connection, so many bytes at once.
	Step int64

	// Edit, if set, is called once, before anything is sent, and may change the headers. It gets the
	// first bytes of the body, nil if there are none, and returns those that are sent instead.
	Edit func(status int, first []byte) []byte
	// Sent, if set, gets the number of bytes of each write.
	Sent func(n int64)

	status  int
	begun   bool
	flushed bool
	bytes   int64
	limit   int64 // number of bytes at which the timeout starts again
	readErr error
}

// StatusClientGone is the status of a request whose client disconnected before it got anything. It
// is for logs and metrics.
const StatusClientGone = 499

// Status returns the status of the response: 200, which net/http sends by itself, until the handler
// sets another one. After End it may be StatusClientGone.
func (w *Response) Status() int { return cmp.Or(w.status, http.StatusOK) }

// Begun reports whether the status is sent, and can't be changed any more.
func (w *Response) Begun() bool { return w.begun }

// Bytes returns the number of bytes of the body that were sent.
func (w *Response) Bytes() int64 { return w.bytes }

// Flushed reports whether the handler has sent what was buffered. Otherwise net/http may keep some
// kilobytes until the handler ends.
func (w *Response) Flushed() bool { return w.flushed }

// ReadError returns why nothing of a file could be sent, for callers of http.ServeContent, which does
// not return it; nil = it could be read.
func (w *Response) ReadError() error { return w.readErr }

// WriteHeader sets the status. It is sent with the first byte, or by End.
func (w *Response) WriteHeader(status int) {
	if !w.begun {
		w.status = status
	}
}

// End sends the status of a response without a body. Without a status, it leaves that to net/http. If
// the client has disconnected and got nothing, the status is StatusClientGone.
func (w *Response) End() {
	if w.Request != nil && w.Request.Context().Err() != nil && w.bytes == 0 && !w.flushed {
		w.status = StatusClientGone
	}
	if !w.begun && w.status != 0 {
		w.begin(nil)
		w.extendDeadline()
	}
}

// begin sends the status, and returns the bytes that are sent instead of the first ones.
func (w *Response) begin(first []byte) []byte {
	if w.begun {
		return first
	}
	w.begun, w.status = true, w.Status()
	if w.Edit != nil {
		first = w.Edit(w.status, first)
	}
	w.ResponseWriter.WriteHeader(w.status)
	return first
}

// extendDeadline starts the timeout again after each step.
func (w *Response) extendDeadline() {
	if w.Timeout > 0 && w.bytes >= w.limit {
		w.limit = w.bytes + w.Step
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.Timeout))
	}
}

func (w *Response) count(n int64) {
	w.bytes += n
	if w.Sent != nil && n > 0 {
		w.Sent(n)
	}
}

func (w *Response) Write(b []byte) (int, error) {
	body := w.begin(b)
	w.extendDeadline()
	n, err := w.ResponseWriter.Write(body)
	w.count(int64(n))
	if err == nil {
		return len(b), nil // also if Edit has made more or less of it
	}
	return min(n, len(b)), err
}

// ReadFrom lets the kernel copy a file to the connection, in steps because of the timeout.
func (w *Response) ReadFrom(r io.Reader) (total int64, err error) {
	if w.Step == 0 {
		return io.Copy(struct{ io.Writer }{w}, r) // by Write, without this method
	}
	if !w.begun {
		var first [512]byte
		n, err := io.ReadAtLeast(r, first[:], 1)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			w.readErr = err
			return 0, err
		}
		if n, err = w.Write(first[:n]); err != nil {
			return int64(n), err
		}
		total = int64(n)
	}
	all, ok := r.(*io.LimitedReader) // from io.CopyN
	if !ok {
		all = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for err == nil && all.N > 0 {
		w.extendDeadline()
		step := &io.LimitedReader{R: all.R, N: min(all.N, w.Step)}
		asked := step.N
		var n int64
		n, err = io.Copy(w.ResponseWriter, step)
		all.N -= n
		total += n
		w.count(n)
		if n < asked {
			break
		}
	}
	return total, err
}

// FlushError sends what is buffered; http.ResponseController calls it.
func (w *Response) FlushError() error {
	w.begin(nil)
	w.extendDeadline()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.flushed = w.flushed || err == nil
	return err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
