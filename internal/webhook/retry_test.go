package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/guard"
	"weir/internal/weir"
)

func TestRetryAt(t *testing.T) {
	for _, tt := range []struct {
		name        string
		x           exchange
		attempts    int
		want, limit time.Duration // 0 = not again
	}{
		{"first", exchange{status: 500}, 0, 5 * time.Second, 5250 * time.Millisecond},
		{"second", exchange{status: 500}, 1, 10 * time.Second, 10500 * time.Millisecond},
		{"tenth", exchange{status: 500}, 9, 2560 * time.Second, 2688 * time.Second},
		{"eleventh", exchange{status: 500}, 10, time.Hour, time.Hour},
		{"last", exchange{status: 500}, 32, time.Hour, time.Hour},
		{"over", exchange{status: 500}, 33, 0, 0},
		{"no response", exchange{reason: "timeout"}, 0, 5 * time.Second, 5250 * time.Millisecond},
		{"with Retry-After", exchange{status: 429, retryAfter: time.Minute}, 0, time.Minute, 63 * time.Second},
		{"with a too short Retry-After", exchange{status: 429, retryAfter: time.Second}, 3, 40 * time.Second, 42 * time.Second},
		{"with a too long Retry-After", exchange{status: 503, retryAfter: maxBackoff}, 0, time.Hour, time.Hour},
		{"final", exchange{reason: "blocked", final: true}, 0, 0, 0},
		{"refused", exchange{status: 404, retryAfter: time.Minute}, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 100 {
					at := tt.x.retryAt(tt.attempts, firstBackoff)
					if tt.want == 0 {
						if !at.IsZero() {
							t.Fatalf("again in %s, want not at all", time.Until(at))
						}
						continue
					}
					if wait := time.Until(at); wait < tt.want || wait > tt.limit {
						t.Fatalf("again in %s, want %s to %s", wait, tt.want, tt.limit)
					}
				}
			})
		})
	}
}

func TestRetriesTakeAboutADay(t *testing.T) {
	var total time.Duration
	for attempts := range maxRetries {
		total += backoff(attempts, firstBackoff)
	}
	if total < 23*time.Hour || total > 26*time.Hour {
		t.Errorf("all retries take %s", total)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"7":                             7 * time.Second,
		" 7 ":                           7 * time.Second,
		"3600":                          time.Hour,
		"3601":                          time.Hour,
		"99999999999999999999999":       time.Hour,
		"-5":                            0,
		"1.5":                           0,
		"soon":                          0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:03:05 GMT": 0,
		"Sat, 02 Jan 2027 03:04:05 GMT": time.Hour,
	} {
		if got := parseRetryAfter(value, now); got != want {
			t.Errorf("parseRetryAfter(%q) = %s, want %s", value, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "120", "-1", "Fri, 02 Jan 2026 03:05:05 GMT", "Friday, 02-Jan-26 03:05:05 GMT", "9e9", "٣"} {
		f.Add(seed, int64(0))
		f.Add(seed, int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		if d := parseRetryAfter(value, time.Unix(now, 0)); d < 0 || d > maxBackoff {
			t.Errorf("parseRetryAfter(%q) = %s", value, d)
		}
	})
}

// TestNoAnswer plays what can go wrong on the way. No reason may have the URL in
// it, which has a token.
func TestNoAnswer(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	hijack := func(do func(net.Conn)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			do(conn)
			_ = conn.Close()
		}
	}
	hanging, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	cut, _ := receiver(t, hijack(func(net.Conn) {}))
	babbling, _ := receiver(t, hijack(func(c net.Conn) { _, _ = io.WriteString(c, "220 smtp.example.com ESMTP\r\n") }))
	plain, _ := receiver(t, nil)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	elsewhere, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusTemporaryRedirect)
	})
	toFile, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(http.StatusFound)
	})
	var round string
	round, _ = receiver(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, round+"/again", http.StatusTemporaryRedirect)
	})
	h := newFixture(t)
	for _, tt := range []struct {
		name, url, reason string
		final, blocked    bool
	}{
		{name: "refused", url: closed, reason: "connection refused"},
		{name: "timeout", url: hanging, reason: "timeout: no response within 100ms"},
		{name: "cut", url: cut, reason: "connection closed before the response"},
		{name: "not HTTP", url: babbling, reason: "the response is not valid HTTP"},
		{name: "not TLS", url: strings.Replace(plain, "http:", "https:", 1), reason: "the server does not speak TLS"},
		{name: "unknown authority", url: secure.URL, reason: "the certificate is not valid: x509: certificate signed by unknown authority"},
		{name: "redirect to a blocked address", url: elsewhere, reason: "127.0.0.2 is a loopback address; start weir with --allow-networks 127.0.0.0/8 to allow it", final: true, blocked: true},
		{name: "redirect to a file", url: toFile, reason: `the scheme "file" is not supported; use http or https`, final: true},
		{name: "endless redirects", url: round, reason: "127.0.0.1 redirects more than 10 times", final: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.sender.timeouts = timeouts()
			if tt.name == "timeout" {
				h.sender.timeouts[0] = 100 * time.Millisecond
			}
			stream, pending, blocked := h.newStream("of a case"), h.pending(), h.sender.Stats().Blocked
			hook := h.hook(tt.url, stream)
			h.emit(stream, 1)
			h.deliver(hook, 1)
			entry := h.logs(hook)[0]
			if entry.Response.Error != tt.reason || entry.Response.Status != 0 || entry.Response.Body != "" || entry.Success {
				t.Errorf("entry = %+v, want reason %q", entry.Response, tt.reason)
			}
			if failure := h.status(hook).LastFailure; failure == nil || failure.Error != tt.reason || failure.StatusCode != 0 {
				t.Errorf("last failure = %+v", failure)
			}
			if final := h.pending() == pending; final != tt.final {
				t.Errorf("final = %v, want %v", final, tt.final)
			}
			if blocked := h.sender.Stats().Blocked > blocked; blocked != tt.blocked {
				t.Errorf("Stats() = %+v, want blocked = %v", h.sender.Stats(), tt.blocked)
			}
			if strings.Contains(h.log.String(), "planted") {
				t.Errorf("the log has the URL in it: %s", h.log)
			}
		})
	}
}

// TestBlocked shows that nothing of this machine is reached unless that is allowed.
func TestBlocked(t *testing.T) {
	h := newFixtureOn(t, "sqlite:"+filepath.Join(t.TempDir(), "weir.db"))
	address, requests := receiver(t, nil)
	hook := h.hook(address)
	h.emit(h.stream, 1)
	h.deliver(hook, 1)
	if n := len(requests); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	logs := h.logs(hook)
	if len(logs) != 1 || !strings.Contains(logs[0].Response.Error, "127.0.0.1 is a loopback address") {
		t.Errorf("log = %+v, want one entry that says it was blocked", logs)
	}
	if h.pending() != 0 || h.sender.Stats() != (Stats{Blocked: 1}) {
		t.Errorf("%d pending, %+v", h.pending(), h.sender.Stats())
	}
}

// TestRedirect shows that a redirect takes the event along, however it is made.
func TestRedirect(t *testing.T) {
	h := newFixture(t)
	for _, code := range []int{301, 302, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			address, requests := receiver(t, nil)
			hops := 0
			from, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
				if hops++; hops < 3 {
					http.Redirect(w, r, fmt.Sprintf("/hop/%d", hops), code)
					return
				}
				http.Redirect(w, r, address, code)
			})
			stream := h.newStream("of a case")
			hook := h.hook(from, stream)
			h.emit(stream, 3)
			h.deliver(hook, 1)
			g := <-requests
			if _, n := number(t, g); n != 3 || g.method != "POST" || !genuine(g, secret) || g.header.Get("Content-Type") != "application/json" {
				t.Errorf("got %s with %s, %v", g.method, g.body, g.header)
			}
			if g.header.Get("Referer") != "" {
				t.Errorf("Referer = %q", g.header.Get("Referer"))
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Post", URL: "https://u:planted@h/planted", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	long := &tls.CertificateVerificationError{Err: errors.New(strings.Repeat("é", 500))}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{dial(&net.DNSError{Name: "planted", IsTimeout: true}), "the host name could not be resolved"},
		{dial(syscall.EHOSTUNREACH), "host unreachable"},
		{dial(syscall.ECONNRESET), "connection reset"},
		{dial(tls.AlertError(40)), "the server refused the TLS handshake"},
		{dial(errors.New("planted")), "the response is not valid HTTP"},
		{&url.Error{URL: "planted", Err: weir.Errorf(weir.Invalid, "mend it")}, "mend it"},
		{dial(long), "the certificate is not valid: " + strings.Repeat("é", 135) + "…"},
	} {
		var x exchange
		if x.fail(tt.err); x.reason != tt.want {
			t.Errorf("reason = %q, want %q", x.reason, tt.want)
		}
	}
}

// Names of private addresses can't be told from names that do not exist, neither by the sentence nor by
// what happens next.
func TestPrivateNames(t *testing.T) {
	private := netip.MustParseAddr("10.7.8.9")
	type outcome struct {
		reason   string
		timedOut bool
	}
	said := map[outcome]bool{}
	for _, blocked := range []*guard.BlockedError{{Host: "db.internal", Addr: private}, {Host: "db.internal"}} {
		var x exchange
		x.fail(&url.Error{Err: &net.OpError{Op: "dial", Net: "tcp", Err: blocked}})
		if x.final || x.blocked || x.retryAt(0, time.Second).IsZero() {
			t.Errorf("%+v: %+v, want that it is tried again", blocked, x)
		}
		said[outcome{x.reason, x.timedOut}] = true
	}
	if len(said) != 1 {
		t.Errorf("a private name is told from a missing one: %+v", said)
	}
	var x exchange
	if x.fail(&url.Error{Err: &guard.BlockedError{Host: "10.7.8.9", Addr: private}}); !x.final || !x.blocked {
		t.Errorf("an address: %+v, want that it is final", x)
	}
}

func TestBadURL(t *testing.T) {
	x := New(nil, guard.New(nil), "test", nil).exchange(t.Context(), time.Minute, &weir.Webhook{URL: "http://planted\x7f/"}, nil, time.Now(), maxLogged)
	if !x.final || x.reason != "the URL of the webhook is not valid" {
		t.Errorf("exchange = %+v", x)
	}
}
