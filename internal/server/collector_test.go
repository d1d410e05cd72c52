package server

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// variables returns a function that finds OTEL_EXPORTER_OTLP_* in a list such as A=b C=d.
func variables(list string) func(string) (string, bool) {
	all := map[string]string{}
	for assignment := range strings.FieldsSeq(list) {
		name, value, _ := strings.Cut(assignment, "=")
		all["OTEL_EXPORTER_OTLP_"+name] = value
	}
	return func(name string) (string, bool) { value, ok := all[name]; return value, ok }
}

func TestCollectorVariables(t *testing.T) {
	for list, want := range map[string]string{
		"": "https://localhost:4318/v1/traces map[] false 10s",
		"ENDPOINT=http://c:4318 HEADERS=a=b,C=d%20e,x,=y COMPRESSION=gzip TIMEOUT=1500":                             "http://c:4318/v1/traces map[C:d e a:b] true 1.5s",
		"ENDPOINT=https://c/base/ TRACES_HEADERS=a=2 HEADERS=a=1,b=1":                                               "https://c/base/v1/traces map[a:2 b:1] false 10s",
		"ENDPOINT=http://a TRACES_ENDPOINT=https://c/x TRACES_COMPRESSION=none COMPRESSION=gzip TRACES_TIMEOUT=100": "https://c/x map[] false 100ms",
		"TRACES_ENDPOINT=http://c:4318":               "http://c:4318/ map[] false 10s",
		"INSECURE=true":                               "http://localhost:4318/v1/traces map[] false 10s",
		"ENDPOINT=collector:4318":                     "OTEL_EXPORTER_OTLP_ENDPOINT is not the address of a collector, such as http://collector:4318",
		"TRACES_ENDPOINT=unix:///a":                   "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not the address of a collector, such as http://collector:4318",
		"TIMEOUT=1s":                                  `OTEL_EXPORTER_OTLP_TIMEOUT: "1s" is not a number of milliseconds`,
		"CERTIFICATE=/dev/null":                       "OTEL_EXPORTER_OTLP_CERTIFICATE: /dev/null has no certificates in PEM format",
		"CLIENT_CERTIFICATE=/dev/null CLIENT_KEY=/no": "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: open /no: no such file or directory",
	} {
		c, err := newCollector(variables(list))
		got := fmt.Sprint(c.url, " ", c.headers, " ", c.gzip, " ", c.http.Timeout)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", list, got, want)
		}
	}
}

// spans are some to send.
func spans() []*tracepb.ResourceSpans {
	return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "GET /x"}}}}}}
}

func TestCollector(t *testing.T) {
	type response struct {
		status int
		body   string
	}
	const partial = "\x0a\x07\x08\x03\x12\x03bad" // 3 spans, because of bad
	for _, tt := range []struct {
		name      string
		options   string
		responses []response // the last one again and again
		asked     int
		err       string
	}{
		{"accepted", "", []response{{200, ""}}, 1, ""},
		{"compressed", "COMPRESSION=gzip HEADERS=Authorization=Bearer%20x", []response{{202, "\x0a\x00"}}, 1, ""},
		{"later", "", []response{{503, ""}, {429, "slow"}, {502, ""}, {504, ""}, {200, ""}}, 5, ""},
		{"refused", "", []response{{400, "no\nspans"}}, 1, `the collector answered 400 Bad Request: "no\nspans"`},
		{"in part", "", []response{{200, partial}}, 1, `the collector refused 3 spans: "bad"`},
		{"a page", "", []response{{200, "<html>hello</html>"}}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked int
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := io.Reader(r.Body)
				if r.Header.Get("Content-Encoding") == "gzip" {
					var err error
					if body, err = gzip.NewReader(r.Body); err != nil {
						t.Error(err)
					}
				}
				data, err := io.ReadAll(body)
				if err != nil {
					t.Error(err)
				}
				var got tracepb.TracesData
				if err := proto.Unmarshal(data, &got); err != nil || !proto.Equal(&got, &tracepb.TracesData{ResourceSpans: spans()}) {
					t.Errorf("%v: %v", &got, err)
				}
				if strings.Contains(tt.options, "Bearer") && r.Header.Get("Authorization") != "Bearer x" {
					t.Errorf("header %q", r.Header.Get("Authorization"))
				}
				a := tt.responses[min(asked, len(tt.responses)-1)]
				asked++
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body)
			}))
			defer web.Close()
			c, err := newCollector(variables("ENDPOINT=" + web.URL + " " + tt.options))
			if err != nil {
				t.Fatal(err)
			}
			c.wait = time.Microsecond
			text := ""
			if err := c.UploadTraces(t.Context(), spans()); err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.err, text); diff != "" || asked != tt.asked {
				t.Errorf("%d requests: %s", asked, diff)
			}
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A collector that is asked to come back later does not keep weir from ending.
func TestCollectorStops(t *testing.T) {
	asked := make(chan struct{}, 2)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- struct{}{}
	}))
	defer web.Close()
	for _, end := range []string{"stop", "context"} {
		c, err := newCollector(variables("ENDPOINT=" + web.URL))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.UploadTraces(ctx, spans()) }()
		<-asked
		if end == "context" {
			cancel()
		} else if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) != (end == "context") {
			t.Errorf("%s: %v", end, err)
		}
		cancel()
		c.http.CloseIdleConnections()
	}
}

// The certificate of a collector may be private.
func TestCollectorCertificate(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"ENDPOINT=" + web.URL, "ENDPOINT=" + web.URL + " CERTIFICATE=" + file} {
		c, err := newCollector(variables(list))
		if err != nil {
			t.Fatal(err)
		}
		err = c.UploadTraces(t.Context(), spans())
		if trusted := strings.Contains(list, file); (err == nil) != trusted {
			t.Errorf("trusted %t: %v", trusted, err)
		}
		c.http.CloseIdleConnections()
	}
}
