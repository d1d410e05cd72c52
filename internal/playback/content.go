package playback

import (
	"errors"
	"io"
	"net/http"
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

// serveContent answers with a body of the storage or of memory, or with the requested range of it.
func serveContent(w *endpoint.Response, req *request, body io.ReadSeeker) error {
	s := &source{ReadSeeker: body}
	http.ServeContent(w, req.Request, "", time.Time{}, s)
	if s.err == nil {
		return nil
	}
	return storageError(s.err)
}
