package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestTracesWanted(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want string
	}{
		{"", "false <nil>"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "true <nil>"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces", "true <nil>"},
		{"OTEL_TRACES_EXPORTER=otlp", "true <nil>"},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "false <nil>"},
		{"OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "false <nil>"},
		{"OTEL_TRACES_EXPORTER=zipkin", `false OTEL_TRACES_EXPORTER: "zipkin" is not supported; use otlp or none`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", `false OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not supported; use http/protobuf`},
	} {
		env := map[string]string{}
		for assignment := range strings.FieldsSeq(tt.env) {
			name, value, _ := strings.Cut(assignment, "=")
			env[name] = value
		}
		wanted, err := tracesWanted(func(name string) (string, bool) { value, ok := env[name]; return value, ok })
		if got := fmt.Sprint(wanted, " ", err); got != tt.want {
			t.Errorf("with %q: %s, want %s", tt.env, got, tt.want)
		}
	}
}

// serveTraced serves one request through the tracer, as the routes do.
func serveTraced(t *testing.T, tr *tracer, status int) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /webrtc/{key}", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		tr.observe(r.Context(), r.Pattern, status)
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/webrtc/s3cr-etke-y?token=s3cret", nil)
	request.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	recorder := httptest.NewRecorder()
	tr.wrap(mux).ServeHTTP(recorder, request)
	if recorder.Code != status {
		t.Errorf("status %d, want %d", recorder.Code, status)
	}
}

func TestSpans(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	tr := tracerOf(sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory)))
	serveTraced(t, tr, http.StatusOK)
	serveTraced(t, tr, http.StatusInternalServerError)
	spans := memory.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want 2", len(spans))
	}
	for _, span := range spans {
		if span.Name != "GET /webrtc/{key}" {
			t.Errorf("name %q, want the route", span.Name)
		}
		if got := span.SpanContext.TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("trace id %s, want the caller's", got)
		}
		if text := fmt.Sprintf("%+v", span); strings.Contains(text, "s3cr") {
			t.Errorf("the span shows the path or the query: %s", text)
		}
	}
	if spans[0].Status.Code != codes.Unset || spans[1].Status.Code != codes.Error {
		t.Errorf("status codes %v and %v, want unset and error", spans[0].Status.Code, spans[1].Status.Code)
	}
	if err := tr.close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A real collector gets the spans, at the latest when weir ends.
func TestSpansReachCollector(t *testing.T) {
	bodies := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		bodies <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tr, err := newTracer(t.Context(), os.LookupEnv, Version{Tag: "v1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serveTraced(t, tr, http.StatusOK)
	if err := tr.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := <-bodies, "POST /v1/traces application/x-protobuf"; got != want {
		t.Errorf("the collector got %s, want %s", got, want)
	}
}

func TestNoTracer(t *testing.T) {
	tr, err := newTracer(t.Context(), func(string) (string, bool) { return "", false }, Version{}, nil)
	if tr != nil || err != nil {
		t.Fatalf("tracer %v, error %v, want none", tr, err)
	}
	serveTraced(t, tr, http.StatusOK)
	if err := tr.close(t.Context()); err != nil {
		t.Error(err)
	}
}
