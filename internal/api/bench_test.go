package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// discard is an http.ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkGetStream(b *testing.B) {
	f := newFixture(b)
	r := httptest.NewRequest("GET", "/api/stream/"+f.vars["stream"], nil)
	r.Header.Set("Authorization", "Bearer "+f.vars["ann.key"])
	b.ReportAllocs()
	for b.Loop() {
		f.server.ServeHTTP(&discard{http.Header{}}, r)
	}
}

func BenchmarkListStreams(b *testing.B) {
	f := newFixture(b)
	r := httptest.NewRequest("GET", "/api/stream?limit=20", nil)
	r.Header.Set("Authorization", "Bearer "+f.vars["ann.key"])
	b.ReportAllocs()
	for b.Loop() {
		f.server.ServeHTTP(&discard{http.Header{}}, r)
	}
}
