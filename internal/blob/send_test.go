package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/weir"
)

// receiver is a server that keeps what it was sent.
type receiver struct {
	fault func(n int, w http.ResponseWriter, r *http.Request) bool

	requests atomic.Int64
	mu       sync.Mutex
	method   string
	header   http.Header
	body     []byte
}

func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := int(s.requests.Add(1)); s.fault != nil && s.fault(n, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.method, s.header, s.body = r.Method, r.Header, body
	w.WriteHeader(http.StatusCreated)
}

func delivery(url string, content []byte, opened *atomic.Int64) Delivery {
	return Delivery{
		URL: url, Size: int64(len(content)), Headers: map[string]string{"Content-Type": "video/mp4", "x-token": "geheim"},
		Body: func(context.Context) (io.ReadCloser, error) {
			opened.Add(1)
			return closeCounter{bytes.NewReader(content), opened}, nil
		},
	}
}

// closeCounter counts how many are open.
type closeCounter struct {
	io.Reader
	opened *atomic.Int64
}

func (c closeCounter) Close() error { c.opened.Add(-1); return nil }

func TestSend(t *testing.T) {
	large := noise(50, 3<<20)
	for _, tt := range []struct {
		name    string
		content []byte
		method  string
		fault   func(s *receiver, n int, w http.ResponseWriter, r *http.Request) bool
	}{
		{name: "small", content: []byte("abc")},
		{name: "empty", content: nil},
		{name: "large", content: large, method: "POST"},
		{name: "fails at first", content: large, fault: func(_ *receiver, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n < 3
		}},
		{name: "breaks off", content: large, fault: func(_ *receiver, n int, _ http.ResponseWriter, r *http.Request) bool {
			if n < 3 {
				readSome(r)
			}
			return false
		}},
		{name: "redirects and keeps the method", content: large, fault: func(_ *receiver, n int, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/there" {
				http.Redirect(w, r, "/there", http.StatusPermanentRedirect)
			}
			return r.URL.Path != "/there"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &receiver{}
			if tt.fault != nil {
				s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool { return tt.fault(s, n, w, r) }
			}
			server := serveAt(t, public, s)
			var opened atomic.Int64
			d := delivery(server.URL+"/put?sig=geheim", tt.content, &opened)
			d.Method = tt.method
			if err := Send(t.Context(), d, Options{Guard: testGuard(t), timing: quick}); err != nil {
				t.Fatal(err)
			}
			server.Close()
			want := tt.method
			if want == "" {
				want = http.MethodPut
			}
			if s.method != want || !bytes.Equal(s.body, tt.content) {
				t.Errorf("%s of %d bytes, want %s of %d, or others", s.method, len(s.body), want, len(tt.content))
			}
			if s.header.Get("Content-Type") != "video/mp4" || s.header.Get("X-Token") != "geheim" {
				t.Errorf("headers = %v", s.header)
			}
			if n := opened.Load(); n != 0 {
				t.Errorf("%d bodies are still open", n)
			}
		})
	}
}

func TestSendErrors(t *testing.T) {
	inner := serveAt(t, private, http.NotFoundHandler())
	for _, tt := range []struct {
		name   string
		change func(*Delivery)
		serve  func(w http.ResponseWriter, r *http.Request)
		kind   weir.Kind
		want   string
		tries  int64
	}{
		{name: "refused", kind: weir.Invalid, want: "answered 403 Forbidden", tries: 1, serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}},
		{name: "fails", kind: weir.Upstream, want: "answered 500", tries: 6, serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}},
		{
			name: "redirect that loses the file", kind: weir.Invalid, want: "answered 302 Found; give the URL that it redirects to", tries: 1,
			serve: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
		},
		{name: "redirect to inside", kind: weir.Invalid, want: "is a loopback address", tries: 1, serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
		}},
		{name: "keeps still", kind: weir.Upstream, want: "stopped answering", serve: func(_ http.ResponseWriter, r *http.Request) { stall(r) }},
		{name: "inside", kind: weir.Invalid, want: "is a loopback address", change: func(d *Delivery) { d.URL = inner.URL }},
		{name: "bad URL", kind: weir.Invalid, want: "url:", change: func(d *Delivery) { d.URL = "http://%zz" }},
		{name: "bad scheme", kind: weir.Invalid, want: "use http or https", change: func(d *Delivery) { d.URL = "ftp://host/x" }},
		{name: "bad method", kind: weir.Invalid, want: `"P U T"`, change: func(d *Delivery) { d.Method = "P U T" }},
		{name: "header of the connection", kind: weir.Invalid, want: "host can't be set", change: func(d *Delivery) { d.Headers["host"] = "x" }},
		{name: "header that is none", kind: weir.Invalid, want: "not a valid header", change: func(d *Delivery) { d.Headers["a b"] = "x" }},
		{name: "header that splits", kind: weir.Invalid, want: "not a valid header", change: func(d *Delivery) { d.Headers["a"] = "x\r\nb: c" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &receiver{fault: func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if tt.serve != nil {
					tt.serve(w, r)
				}
				return tt.serve != nil
			}}
			server := serveAt(t, public, s)
			var opened atomic.Int64
			d := delivery(server.URL+"/put?sig=geheim", noise(51, 2<<20), &opened)
			if tt.change != nil {
				tt.change(&d)
			}
			o := Options{Guard: testGuard(t), timing: quick}
			if tt.name == "keeps still" {
				o.timing.stall = 300 * time.Millisecond
			}
			err := Send(t.Context(), d, o)
			if weir.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("error = %v of kind %q, want %q in it, %q", err, weir.KindOf(err), tt.want, tt.kind)
			}
			if strings.Contains(fmt.Sprint(err), "geheim") {
				t.Errorf("the error shows a secret: %v", err)
			}
			server.Close()
			if n := s.requests.Load(); tt.tries > 0 && n != tt.tries {
				t.Errorf("%d requests, want %d", n, tt.tries)
			}
			if n := opened.Load(); n != 0 {
				t.Errorf("%d bodies are still open", n)
			}
		})
	}
}

// TestSendKeepsHeadersFromOtherHosts checks that a redirect to another host does not get the caller's
// headers.
func TestSendKeepsHeadersFromOtherHosts(t *testing.T) {
	t.Parallel()
	there := &receiver{}
	second := serveAt(t, "127.0.0.3", there)
	first := serveAt(t, public, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, second.URL, http.StatusTemporaryRedirect)
	}))
	var opened atomic.Int64
	err := Send(t.Context(), delivery(first.URL, []byte("abc"), &opened), Options{Guard: testGuard(t, "127.0.0.3/32"), timing: quick})
	second.Close()
	if err != nil || string(there.body) != "abc" || there.header.Get("X-Token") != "" || there.header.Get("Content-Type") != "video/mp4" {
		t.Errorf("error %v, body %q, headers %v", err, there.body, there.header)
	}
}

func TestSendOfBodyThatFails(t *testing.T) {
	t.Parallel()
	server := serveAt(t, public, &receiver{})
	broken := errors.New("the file is gone")
	d := Delivery{URL: server.URL, Size: 5, Body: func(context.Context) (io.ReadCloser, error) { return nil, broken }}
	if err := Send(t.Context(), d, Options{Guard: testGuard(t), timing: quick}); !errors.Is(err, broken) {
		t.Errorf("error = %v, want that of the body", err)
	}
}
