package playback

import (
	"errors"
	"io"
	"math"
	"net/http"
	"time"
)

// writeStep is the number of bytes that a viewer has to read within the timeout. A whole answer has
// no timeout: it may be a file of many gigabytes.
const writeStep = 1 << 20

// answer writes the answer to a viewer. It counts the bytes, delays the status until the first
// byte, so that a read error can still be answered with an error status, and ends the connection of
// a viewer that does not read.
type answer struct {
	http.ResponseWriter
	timeout time.Duration
	status  int
	begun   bool // the status is sent, and can't be changed
	bytes   int64
	limit   int64       // number of bytes at which the timeout starts again
	sent    func(int64) // gets the number of bytes of each write; may be nil
}

func (w *answer) WriteHeader(status int) {
	if !w.begun {
		w.status = status
	}
}

func (w *answer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.moreTime()
	w.ResponseWriter.WriteHeader(w.status)
}

// moreTime starts the timeout again after each step.
func (w *answer) moreTime() {
	if w.bytes >= w.limit {
		w.limit = w.bytes + writeStep
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
	}
}

func (w *answer) count(n int64) {
	w.bytes += n
	if w.sent != nil && n > 0 {
		w.sent(n)
	}
}

func (w *answer) Write(b []byte) (int, error) {
	w.begin()
	w.moreTime()
	n, err := w.ResponseWriter.Write(b)
	w.count(int64(n))
	return n, err
}

// ReadFrom lets the kernel copy a file to the connection, in steps because of the timeout.
func (w *answer) ReadFrom(r io.Reader) (int64, error) {
	var first [512]byte
	n, err := io.ReadAtLeast(r, first[:], 1)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, err
	}
	n, err = w.Write(first[:n])
	total := int64(n)
	all, ok := r.(*io.LimitedReader) // from io.CopyN
	if !ok {
		all = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for err == nil && all.N > 0 {
		w.moreTime()
		step := &io.LimitedReader{R: all.R, N: min(all.N, writeStep)}
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

// Unwrap lets http.ResponseController reach the connection.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// source remembers its read error: http.ServeContent does not return it.
type source struct {
	io.ReadSeeker
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.ReadSeeker.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && s.err == nil {
		s.err = err
	}
	return n, err
}

// serveContent answers with a body of the storage or of memory, or with the requested range of it.
func serveContent(w *answer, v *visit, body io.ReadSeeker) error {
	s := &source{ReadSeeker: body}
	http.ServeContent(w, v.Request, "", time.Time{}, s)
	if s.err == nil {
		return nil
	}
	return storageError(s.err)
}
