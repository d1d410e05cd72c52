package blob

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"weir/internal/weir"
)

// Delivery is a file and the URL to send it to.
type Delivery struct {
	URL     string
	Method  string            // "" = PUT
	Headers map[string]string // of the caller; they may contain credentials
	Size    int64
	Body    func(ctx context.Context) (io.ReadCloser, error) // opens the file, once for each try
}

// expectSize is the size from which on requests have an Expect header.
const expectSize = 1 << 20

// Send sends a file to a URL from a caller. Any status from 200 to 299 means success; a refusal is an
// error of kind weir.Invalid.
func Send(ctx context.Context, d Delivery, o Options) error {
	if err := d.Check(o); err != nil {
		return err
	}
	if d.Method == "" {
		d.Method = http.MethodPut
	}
	client, done := o.client()
	defer done()
	t := o.timing.orDefault()
	return t.retry(ctx, func() error { return d.send(ctx, client, t) })
}

// Check refuses a delivery that could never be sent. It makes no request.
func (d Delivery) Check(o Options) error {
	u, err := url.Parse(d.URL)
	if err != nil || u.Hostname() == "" {
		return weir.Errorf(weir.Invalid, "url: not valid; write it as https://host/path")
	}
	if d.Method != "" && !token.MatchString(d.Method) {
		return weir.Errorf(weir.Invalid, "method: %q is not an HTTP method; use PUT or POST", cut(d.Method, 40))
	}
	if err := checkHeaders(d.Headers); err != nil || o.Guard == nil {
		return err
	}
	return o.Guard.CheckHost(u.Hostname())
}

// client returns an HTTP client for addresses of callers, or of the operator.
func (o Options) client() (client *http.Client, done func()) {
	if o.Guard != nil {
		return o.Guard.Client(0), func() {}
	}
	own := ownTransport()
	return &http.Client{Transport: own}, own.CloseIdleConnections
}

// token matches methods and names of headers.
var token = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]{1,200}$")

// checkHeaders refuses headers of the connection.
func checkHeaders(headers map[string]string) error {
	for name, value := range headers {
		if !token.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			return weir.Errorf(weir.Invalid, "headers: %q is not a valid header", cut(name, 100))
		}
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Expect", "Te":
			return weir.Errorf(weir.Invalid, "headers: %s can't be set", name)
		}
	}
	return nil
}

func (d Delivery) send(ctx context.Context, client *http.Client, t timing) error {
	watched, dog := watch(ctx, t.stall)
	defer dog.stop()
	var opened []*outgoing
	defer func() {
		for _, body := range opened {
			_ = body.Close() // the transport closes it too, but maybe later
		}
	}()
	open := func() (io.ReadCloser, error) {
		body, err := d.Body(watched)
		if err != nil {
			return nil, err
		}
		opened = append(opened, &outgoing{sentBody: sentBody{r: body, moved: dog.moved}, from: body})
		return opened[len(opened)-1], nil
	}
	body, err := open()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(watched, d.Method, d.URL, body)
	if err != nil {
		return weir.Errorf(weir.Invalid, "the file can't be sent with %q to this URL", cut(d.Method, 40))
	}
	r.GetBody, r.ContentLength = open, d.Size
	if d.Size == 0 {
		r.Body, r.GetBody = http.NoBody, nil
	}
	for name, value := range d.Headers {
		r.Header.Set(name, value)
	}
	if d.Size >= expectSize {
		r.Header.Set("Expect", "100-continue")
	}
	once := *client
	once.CheckRedirect = d.redirect(client.CheckRedirect)
	host := r.URL.Hostname()
	resp, err := once.Do(r)
	if err != nil {
		return netError(watched, err, host)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	what := fmt.Sprintf("%s answered %d %s", host, resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		what += "; give the URL that it redirects to"
	}
	return statusError(resp, what)
}

// redirect follows only redirects that keep the body. Headers of the caller are not sent to another
// host.
func (d Delivery) redirect(check func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		if r.Method != d.Method || r.Body == nil && d.Size > 0 {
			return http.ErrUseLastResponse
		}
		if r.URL.Host != via[0].URL.Host {
			for name := range d.Headers {
				if textproto.CanonicalMIMEHeaderKey(name) != "Content-Type" {
					r.Header.Del(name)
				}
			}
		}
		if check == nil {
			return nil
		}
		return check(r, via)
	}
}

// outgoing is a sentBody that closes its source.
type outgoing struct {
	sentBody
	once sync.Once
	from io.Closer
}

// Close waits for a running Read.
func (b *outgoing) Close() (err error) {
	b.end()
	b.once.Do(func() { err = b.from.Close() })
	return err
}
