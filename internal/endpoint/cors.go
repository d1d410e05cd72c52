package endpoint

import "net/http"

// preflightMaxAge is how long browsers keep the response to a preflight request: two hours, the
// longest that Chromium takes.
const preflightMaxAge = "7200"

// CORS is what pages of other origins may do with a handler.
type CORS struct {
	Origin      string // the origin that may read responses; "*" = any
	Credentials bool   // also of requests with cookies
	Expose      string // the headers that pages may read, beside those that they always may
	Methods     string // what Preflight allows
}

// Allow lets pages read the response.
func (c CORS) Allow(h http.Header) {
	h.Set("Access-Control-Allow-Origin", c.Origin)
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if c.Expose != "" {
		Expose(h, c.Expose)
	}
}

// Expose changes the headers that pages may read, if they may read the response at all.
func Expose(h http.Header, names string) {
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Expose-Headers", names)
	}
}

// Preflight sets the headers of the response to a preflight request, beside those of Allow: pages may
// use the methods, and any header.
func (c CORS) Preflight(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Methods", c.Methods)
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", preflightMaxAge)
}
