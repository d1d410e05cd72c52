package endpoint

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestFailure(t *testing.T) {
	const internal = "Internal server error"
	overloaded := weir.Errorf(weir.Overloaded, "this server is busy")
	overloaded.RetryAfter = 5 * time.Second
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, tt := range []struct {
		name    string
		failure Failure
		before  http.Header
		status  int
		body    string
		header  http.Header
	}{
		{"with a kind", FailureOf(weir.Errorf(weir.NotFound, "not found"), internal), nil, 404, `{"errors":["not found"]}`, header("Content-Type", JSON)},
		{"with a cause", FailureOf(weir.Wrap(weir.Upstream, errors.New("secret"), "try again"), internal), nil, 502, `{"errors":["try again"]}`, header("Content-Type", JSON)},
		{"several messages", FailureOf(&weir.Error{Kind: weir.Invalid, Messages: []string{"a", "b"}}, internal), nil, 422, `{"errors":["a","b"]}`, header("Content-Type", JSON)},
		{"without a kind", FailureOf(errors.New("secret"), internal), nil, 500, `{"errors":["Internal server error"]}`, header("Content-Type", JSON)},
		{"of kind internal", FailureOf(weir.Errorf(weir.Internal, "secret"), internal), nil, 500, `{"errors":["Internal server error"]}`, header("Content-Type", JSON)},
		{"to try again", FailureOf(overloaded, internal), nil, 503, `{"errors":["this server is busy"]}`, header("Content-Type", JSON, "Retry-After", "5")},
		{"characters of HTML", Failure{Status: 400, Messages: []string{`"<a>" & ö`}}, nil, 400, `{"errors":["\"<a>\" & ö"]}`, header("Content-Type", JSON)},
		{
			"after the headers of another response",
			Failure{Status: 502, Messages: []string{"x"}, Caching: Never},
			header(
				"Content-Type", "video/mp4", "Content-Length", "5", "Content-Range", "bytes 0-4/5", "Content-Disposition", "attachment",
				"Accept-Ranges", "bytes", "ETag", `"1"`, "Cache-Control", "public, max-age=3600", "Vary", "Origin",
			),
			502, `{"errors":["x"]}`, header("Content-Type", JSON, "Cache-Control", "private, no-store", "Vary", "Origin"),
		},
		{
			"what the handler has set",
			Failure{Status: 404, Messages: []string{"x"}},
			header("Content-Type", "application/json", "Cache-Control", "max-age=120"),
			404, `{"errors":["x"]}`, header("Content-Type", "application/json", "Cache-Control", "max-age=120"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			for name, values := range tt.before {
				w.Header()[name] = values
			}
			tt.failure.Write(w)
			if w.Code != tt.status || w.Body.String() != tt.body+"\n" || string(tt.failure.Body()) != tt.body {
				t.Errorf("%d %q, body %q, want %d %s", w.Code, w.Body, tt.failure.Body(), tt.status, tt.body)
			}
			if diff := cmp.Diff(tt.header, w.Header()); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "", -time.Second: "", time.Nanosecond: "1", 300 * time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60",
	} {
		h := http.Header{}
		SetRetryAfter(h, after)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%s: %q, want %q", after, got, want)
		}
	}
}
