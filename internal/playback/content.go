package playback

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"weir/internal/endpoint"
)

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

// conditions are the headers of requests for less than the whole body.
var conditions = []string{"Range", "If-None-Match", "If-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"}

// serveBody answers with a body of memory, in one write where it can: http.ServeContent takes two, and
// twice the CPU time.
func serveBody(w *endpoint.Response, req *request, body []byte) error {
	if slices.ContainsFunc(conditions, func(name string) bool { return req.Header[name] != nil }) {
		return serveContent(w, req, bytes.NewReader(body))
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if req.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, _ = w.Write(body) // who has left gets nothing
	return nil
}

// serveContent answers with a body of the storage or of memory, or with the requested range of it.
func serveContent(w *endpoint.Response, req *request, body io.ReadSeeker) error {
	s := &source{ReadSeeker: body}
	http.ServeContent(w, req.Request, "", time.Time{}, s)
	if s.err == nil {
		return nil
	}
	return storageError(s.err)
}
