package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// web is a resource of a web server as an origin.
type web struct {
	client *http.Client
	url    string
	host   string
	fixed  bool // its name is derived from its content, so it can't change
}

func newWeb(client *http.Client, raw string) (*web, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, weir.Errorf(weir.Invalid, "the URL can't be read; write it as https://host/path")
	}
	return &web{client: client, url: raw, host: u.Hostname()}, nil
}

func (w *web) String() string { return w.host }

// immutable is the etag of a resource that can't change.
const immutable = "immutable"

func (w *web) open(ctx context.Context, s span, v version) (response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return response{}, weir.Errorf(weir.Invalid, "the URL can't be read; write it as https://host/path")
	}
	r.Header.Set("User-Agent", "weir")
	r.Header.Set("Accept-Encoding", "identity") // else offsets are not those of the file
	if h := s.header(); h != "" {
		r.Header.Set("Range", h)
		if condition := v.ifRange(); condition != "" {
			r.Header.Set("If-Range", condition)
		}
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return response{}, netError(ctx, err, w.host)
	}
	res, err := w.response(resp, s)
	if err != nil {
		_ = resp.Body.Close()
		return response{}, err
	}
	return res, nil
}

// ifRange returns the value of If-Range. Weak tags don't count: resources with the same weak tag may
// have different bytes.
func (v version) ifRange() string {
	if v.etag == immutable {
		return ""
	}
	return cmp.Or(v.etag, v.modified)
}

func (w *web) response(resp *http.Response, s span) (response, error) {
	h := resp.Header
	res := response{
		body: resp.Body, location: resp.Request.URL.String(),
		version: version{modified: h.Get("Last-Modified"), size: resp.ContentLength},
		whole:   resp.StatusCode == http.StatusOK,
	}
	if etag := h.Get("ETag"); !strings.HasPrefix(etag, "W/") {
		res.version.etag = etag
	}
	if w.fixed {
		res.version.etag, res.version.modified = immutable, ""
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return response{}, w.refusal(resp, s)
	}
	switch encoding := strings.ToLower(h.Get("Content-Encoding")); encoding {
	case "", "identity", "aws-chunked": // the last is how an object was uploaded
	default:
		return response{}, weir.Errorf(weir.Invalid, "%s sends the file compressed (%s), although that was not requested", w.host, cut(encoding, 40))
	}
	if resp.StatusCode == http.StatusPartialContent {
		return w.partial(resp, res, s)
	}
	return res, nil
}

// partial checks that a range is the requested one.
func (w *web) partial(resp *http.Response, res response, s span) (response, error) {
	text := resp.Header.Get("Content-Range")
	got, total, err := parseContentRange(text)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "multipart/") {
		err = errContentRange // several ranges, each with a header of its own; one was requested
	}
	if err != nil || got.from != s.from || s.to >= 0 && got.to > s.to || s.header() == "" {
		return response{}, weir.Wrap(weir.Upstream, errWrongRange, "%s sent another byte range than requested (%q)", w.host, cut(text, 60))
	}
	if n := resp.ContentLength; n >= 0 && n != got.to-got.from {
		return response{}, weir.Wrap(weir.Upstream, errWrongRange, "%s sent a Content-Range of %d bytes with a Content-Length of %d", w.host, got.to-got.from, n)
	}
	res.from, res.version.size = got.from, total
	return res, nil
}

var errContentRange = errors.New("not a range of bytes")

// parseContentRange parses the header of a range: bytes 0-99/1000. The total is -1 if the server does
// not know it.
func parseContentRange(text string) (s span, total int64, err error) {
	rest, ok := strings.CutPrefix(text, "bytes ")
	first, rest, ok1 := strings.Cut(rest, "-")
	last, size, ok2 := strings.Cut(rest, "/")
	if !ok || !ok1 || !ok2 {
		return span{}, 0, errContentRange
	}
	from, err1 := parseOffset(first)
	to, err2 := parseOffset(last)
	total = -1
	var err3 error
	if size != "*" {
		total, err3 = parseOffset(size)
	}
	if errors.Join(err1, err2, err3) != nil || to < from || total >= 0 && to >= total {
		return span{}, 0, errContentRange
	}
	return span{from, to + 1}, total, nil
}

// parseOffset parses a number that does not overflow when 1 is added.
func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err
}

// errNoRange means that a server sends no range, though it may send the whole file.
var errNoRange = errors.New("the server has no such range")

// refusal returns the error for a status without content.
func (w *web) refusal(resp *http.Response, s span) error {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	what := fmt.Sprintf("%s answered %d %s", w.host, resp.StatusCode, http.StatusText(resp.StatusCode))
	e := statusError(resp, what)
	switch code := resp.StatusCode; {
	case s.header() == "":
	case code == http.StatusRequestedRangeNotSatisfiable && s.from > 0:
		return changed(w.host) // it was longer before
	case code == http.StatusRequestedRangeNotSatisfiable, code == http.StatusBadRequest, code == http.StatusNotImplemented:
		e.Err = errNoRange
	}
	return e
}

// statusError returns the error for a status, whose kind says whether it is worth a retry.
func statusError(resp *http.Response, what string) *weir.Error {
	what = strings.TrimSpace(what)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly,
		code >= 500 && code != http.StatusNotImplemented && code != http.StatusHTTPVersionNotSupported:
		e := weir.Errorf(weir.Upstream, "%s", what)
		e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
		return e
	}
	return weir.Errorf(weir.Invalid, "%s", what)
}

// retryAfter parses the header, which has seconds or a date.
func retryAfter(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
