package endpoint

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Caching is a value of Cache-Control: who may keep a response, and for how long.
type Caching string

const (
	// Never is for responses that only this client may have, and only now: caches keep nothing.
	Never Caching = "private, no-store"
	// Revalidate lets caches keep a response, but they ask each time whether it is still the same.
	Revalidate Caching = "no-cache"
	// PrivateRevalidate is Revalidate for caches that one person uses; others keep nothing.
	PrivateRevalidate Caching = "private, no-cache"
	// Immutable is for addresses that name their content, and so never have another one.
	Immutable Caching = "public, max-age=31536000, immutable"
	// TwoMinutesThenStale is for two minutes, and for ten more while the cache loads a new response.
	TwoMinutesThenStale Caching = "max-age=120,stale-while-revalidate=600"
	// WeekThenStale is for a week, and for a month more while the cache loads a new response: for pages
	// that only look different in another version.
	WeekThenStale Caching = "public, max-age=604800, stale-while-revalidate=2678400"
)

// For lets all caches keep a response for so many whole seconds.
func For(d time.Duration) Caching { return "public, " + maxAge(d) }

// PrivateFor is For for caches that one person uses; others keep nothing.
func PrivateFor(d time.Duration) Caching { return "private, " + maxAge(d) }

// ImmutableFor is For for a response that does not change, so that caches do not even ask when the
// user loads the page again. It may still be deleted.
func ImmutableFor(d time.Duration) Caching { return For(d) + ", immutable" }

// maxAge is rounded down: a response is never kept for too long.
func maxAge(d time.Duration) Caching {
	return "max-age=" + Caching(strconv.FormatInt(int64(d/time.Second), 10))
}

const cacheControl = "Cache-Control"

// Set sets the header.
func (c Caching) Set(h http.Header) { h.Set(cacheControl, string(c)) }

// CachingOf reads the header of a response.
func CachingOf(h http.Header) Caching { return Caching(h.Get(cacheControl)) }

// AcceptsGzip reports whether the client takes a response that is compressed with gzip.
func AcceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(coding, ";")
		if name = strings.TrimSpace(name); name == "gzip" || name == "*" {
			q, weighed := strings.CutPrefix(strings.TrimSpace(quality), "q=")
			n, err := strconv.ParseFloat(q, 64)
			return !weighed || err == nil && n > 0
		}
	}
	return false
}
