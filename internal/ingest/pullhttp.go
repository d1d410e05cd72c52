package ingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/mpegts"
	"weir/internal/weir"
)

// responseTimeout is the timeout for a response of a server, and for its next byte.
const responseTimeout = 15 * time.Second

// fetcher fetches the files of a source over HTTP.
type fetcher struct {
	client    *http.Client
	ownerHost string // host that gets the owner's headers
	headers   map[string]string
}

// reservedHeaders are not taken from the owner.
var reservedHeaders = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Te", "Trailer", "Range", "Accept-Encoding"}

func newFetcher(s *pullSource, u *url.URL) *fetcher {
	w := &fetcher{client: s.Guard.Client(0), ownerHost: u.Host, headers: map[string]string{}}
	for name, value := range s.where.Headers {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(reservedHeaders, name) {
			w.headers[name] = value
		}
	}
	check := w.client.CheckRedirect
	w.client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		w.prepare(r)
		return check(r, via)
	}
	return w
}

// prepare sets the owner's headers if the request goes to the host in the owner's URL. They may be
// credentials, which other hosts must not get.
func (w *fetcher) prepare(r *http.Request) {
	for name, value := range w.headers {
		if r.URL.Host == w.ownerHost {
			r.Header.Set(name, value)
		} else {
			r.Header.Del(name)
		}
	}
}

// httpResponse is the response of a server.
type httpResponse struct {
	io.Reader
	body io.Closer
	stop func()
	from *url.URL // after redirects
	at   int64    // position of the first byte in the file
	live bool     // the server does not know the length
}

func (a *httpResponse) Close() {
	a.stop()
	_ = a.body.Close()
}

// get requests the bytes of a file from one position up to another; 0 = to its end.
func (w *fetcher) get(ctx context.Context, at *url.URL, from, to int64) (*httpResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, weir.Errorf(weir.Invalid, "an address in the source is invalid")
	}
	w.prepare(r)
	r.Header.Set("Accept-Encoding", "identity") // or the length would be unknown
	switch {
	case to > 0:
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	case from > 0:
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	silent := time.AfterFunc(responseTimeout, func() { cancel(errSilent(at.Hostname())) })
	response, err := w.client.Do(r)
	silent.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, w.failed(ctx, at, err)
	}
	a := &httpResponse{body: response.Body, stop: func() { cancel(nil) }, from: response.Request.URL, live: response.ContentLength < 0}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		a.at = from
	default:
		a.Close()
		return nil, &statusError{at.Hostname(), response.StatusCode}
	}
	a.Reader = &timeoutReader{from: response.Body, timer: silent, failed: func(err error) error { return w.failed(ctx, at, err) }}
	if skip := from - a.at; skip > 0 { // the server does not support ranges
		if _, err := io.CopyN(io.Discard, a.Reader, skip); err != nil {
			a.Close()
			return nil, err
		}
		a.at = from
	}
	if to > 0 {
		a.Reader = io.LimitReader(a.Reader, to-from)
	}
	return a, nil
}

// statusError is a response with an error status.
type statusError struct {
	host   string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers with status %d", e.host, e.status)
}

func (e *statusError) Unwrap() error { return weir.Errorf(weir.Upstream, "%s", e.Error()) }

// notFound reports whether the server says that the file does not exist.
func notFound(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.status == http.StatusNotFound || e.status == http.StatusGone)
}

func errSilent(host string) error {
	return weir.Errorf(weir.Upstream, "%s sent nothing for %d seconds", host, int(responseTimeout.Seconds()))
}

// failed returns an error in words for the owner.
func (w *fetcher) failed(ctx context.Context, at *url.URL, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	err = withoutURL(err)
	if _, ok := errors.AsType[*weir.Error](err); ok {
		return err
	}
	return weir.Wrap(weir.Upstream, err, "%s can't be reached, or ended the connection", at.Hostname())
}

// timeoutReader limits the time of each Read. The time between reads is not limited: files are read
// in real time.
type timeoutReader struct {
	from   io.Reader
	timer  *time.Timer
	failed func(error) error
}

func (p *timeoutReader) Read(b []byte) (int, error) {
	p.timer.Reset(responseTimeout)
	n, err := p.from.Read(b)
	p.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = p.failed(err)
	}
	return n, err
}

// getAll returns a whole file of at most limit bytes, and its URL after redirects.
func (w *fetcher) getAll(ctx context.Context, at *url.URL, from, to, limit int64) ([]byte, *url.URL, error) {
	a, err := w.get(ctx, at, from, to)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	data, err := readAll(a, limit)
	return data, a.from, err
}

// readAll reads at most limit bytes to the end.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var data bytes.Buffer
	n, err := data.ReadFrom(io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = weir.Errorf(weir.Invalid, "a file of the source has more than %d MiB", limit>>20)
	}
	return data.Bytes(), err
}

// readHTTP reads a source over HTTP, whose format it detects.
func (s *pullSource) readHTTP(ctx context.Context, u *url.URL) error {
	w := newFetcher(s, u)
	a, err := w.get(ctx, u, 0, 0)
	if err != nil {
		return err
	}
	defer a.Close()
	in := bufio.NewReaderSize(a, 64<<10)
	// A live source may have sent little so far.
	head, err := in.Peek(12)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), []byte("#EXTM3U")):
		text, err := readAll(in, maxPlaylist)
		a.Close()
		if err != nil {
			return err
		}
		return s.readHLS(ctx, w, text, u, a.from)
	case bytes.HasPrefix(head, []byte("FLV")):
		return s.readFLV(ctx, a, in)
	case len(head) >= 8 && strings.Contains("ftyp moov free skip wide mdat styp sidx", string(head[4:8])):
		return s.readMP4(ctx, w, a, in)
	case mpegts.Detect(head[:min(1, len(head))]):
		return s.readTS(ctx, a, in)
	}
	return weir.Errorf(weir.Invalid, "%s sends neither HLS nor MP4, FLV or MPEG-TS", s.host)
}

// resumeAt returns the time in a file where reading continues. A live stream has none: its times
// start again with each connection.
func (s *pullSource) resumeAt(a *httpResponse) time.Duration {
	if a.live {
		return 0
	}
	return time.Duration(s.pull.Position()) * time.Millisecond
}

// reached notes the position in a file.
func (s *pullSource) reached(a *httpResponse, at time.Duration) {
	if !a.live {
		s.pull.SetPosition(at.Milliseconds())
	}
}

// ended returns the result of reading to the end: that of a live stream is an error, because it may
// start again.
func (s *pullSource) ended(a *httpResponse, err error) error {
	if err == nil && a.live {
		return weir.Errorf(weir.Upstream, "the stream at %s has ended", s.host)
	}
	return err
}
