package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/endpoint"
	"weir/internal/weir"
)

const (
	maxBody     = 1 << 20
	bodyTimeout = 20 * time.Second
	// Only a few bodies larger than this are checked at once, so that many of them do not block
	// other requests.
	largeBody = 16 << 10
)

// readBody reads the body of a request and checks it against openapi.yaml. A
// request without a body has an empty object.
func (s *server) readBody(w *endpoint.Response, r *request, route *route) error {
	schema := s.contract.Body(route.method + " /api" + route.path)
	if schema == nil {
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := receive(w, r)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if len(body) > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	r.body, err = schema.Check(body)
	return err
}

// receive reads a body that is not too large. It reads some more of a body with a too large
// Content-Length, so that the client reads the response.
func receive(w http.ResponseWriter, r *request) ([]byte, error) {
	tooLarge := weir.Errorf(weir.TooLarge, "the body is larger than 1 MiB")
	if r.ContentLength > maxBody {
		_, _ = io.CopyN(io.Discard, http.MaxBytesReader(w, r.Body, 4*maxBody), 4*maxBody)
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if err != nil {
		return nil, weir.Wrap(weir.Refused, err, "the body did not arrive completely; send the request again")
	}
	if body = bytes.TrimSpace(body); len(body) == 0 {
		body = []byte("{}")
	}
	return body, nil
}

// checkAddress refuses paths and queries that are not valid text.
func checkAddress(r *http.Request) error {
	isText := func(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
	if !isText(r.URL.Path) {
		return weir.ErrNotFound()
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return weir.Errorf(weir.Refused, "the query of the URL is not valid: percent signs must be written as %%25, semicolons as %%3B")
	}
	for name, all := range values {
		if !isText(name) || slices.ContainsFunc(all, func(v string) bool { return !isText(v) }) {
			return weir.Errorf(weir.Refused, "the query of the URL is not valid UTF-8 text")
		}
	}
	return nil
}
