package endpoint

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestCaching(t *testing.T) {
	for _, tt := range []struct {
		c    Caching
		want string
	}{
		{Never, "private, no-store"},
		{Revalidate, "no-cache"},
		{PrivateRevalidate, "private, no-cache"},
		{Immutable, "public, max-age=31536000, immutable"},
		{TwoMinutesThenStale, "max-age=120,stale-while-revalidate=600"},
		{WeekThenStale, "public, max-age=604800, stale-while-revalidate=2678400"},
		{For(time.Second), "public, max-age=1"},
		{For(2999 * time.Millisecond), "public, max-age=2"},
		{For(999 * time.Millisecond), "public, max-age=0"},
		{PrivateFor(time.Hour), "private, max-age=3600"},
		{ImmutableFor(time.Hour), "public, max-age=3600, immutable"},
	} {
		c, want := tt.c, tt.want
		h := http.Header{"Cache-Control": {"public"}}
		c.Set(h)
		if got := h.Values("Cache-Control"); len(got) != 1 || got[0] != want || CachingOf(h) != c {
			t.Errorf("%q, read as %q, want %q", got, CachingOf(h), want)
		}
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "deflate,gzip;q=0.5": true, "*": true,
		"identity": false, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=x": false, "xgzip": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", header)
		if got := AcceptsGzip(r); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
