package playback

import (
	"errors"
	"io"
	"math"
	"net/http"
	"time"
)

// aStep is how much of an answer a viewer must read before its time is up. The time
// for a whole answer has no limit: it may be a file of many gigabytes.
const aStep = 1 << 20

// answer is what a viewer gets. It notes what was sent, keeps the status back until
// there is a first byte, so that what can't be read can still be answered with an
// error, and gives up on viewers who don't read.
type answer struct {
	http.ResponseWriter
	timeout time.Duration
	status  int
	begun   bool // the status is sent, and can't be changed
	bytes   int64
	limit   int64       // at how many bytes there is more time
	sent    func(int64) // is told how many bytes more were sent; may be nil
}

// WriteHeader notes the status.
func (w *answer) WriteHeader(status int) {
	if !w.begun {
		w.status = status
	}
}

// begin sends the status.
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

// moreTime lets the viewer read another step.
func (w *answer) moreTime() {
	if w.bytes >= w.limit {
		w.limit = w.bytes + aStep
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
	}
}

func (w *answer) count(n int64) {
	w.bytes += n
	if w.sent != nil && n > 0 {
		w.sent(n)
	}
}

// Write sends bytes.
func (w *answer) Write(b []byte) (int, error) {
	w.begin()
	w.moreTime()
	n, err := w.ResponseWriter.Write(b)
	w.count(int64(n))
	return n, err
}

// ReadFrom sends what can be read. A file goes from the kernel to the connection
// without a copy, in steps, for the sake of the time limit.
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
		step := &io.LimitedReader{R: all.R, N: min(all.N, aStep)}
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

// source remembers why it could not be read: http.ServeContent does not tell.
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

// serveContent answers with what can be read, or parts of it, as the request asks.
func serveContent(w *answer, v *visit, body io.ReadSeeker) error {
	s := &source{ReadSeeker: body}
	http.ServeContent(w, v.Request, "", time.Time{}, s)
	return s.err
}
