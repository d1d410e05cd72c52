package endpoint

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCORS(t *testing.T) {
	preflight := func(asked string) func(CORS, http.Header) {
		return func(c CORS, h http.Header) {
			r := httptest.NewRequest(http.MethodOptions, "/", nil)
			if asked != "" {
				r.Header.Set("Access-Control-Request-Headers", asked)
			}
			c.Preflight(h, r)
		}
	}
	for _, tt := range []struct {
		name string
		cors CORS
		do   func(CORS, http.Header)
		want http.Header
	}{
		{"any origin", CORS{Origin: "*"}, CORS.Allow, http.Header{"Access-Control-Allow-Origin": {"*"}}},
		{"all of it", CORS{Origin: "https://a.example", Credentials: true, Expose: "ETag, Date"}, CORS.Allow, http.Header{
			"Access-Control-Allow-Origin": {"https://a.example"}, "Access-Control-Allow-Credentials": {"true"}, "Access-Control-Expose-Headers": {"ETag, Date"},
		}},
		{"other headers", CORS{Origin: "*", Expose: "ETag"}, func(c CORS, h http.Header) {
			c.Allow(h)
			Expose(h, "Location")
		}, http.Header{"Access-Control-Allow-Origin": {"*"}, "Access-Control-Expose-Headers": {"Location"}}},
		{"no origin", CORS{}, func(_ CORS, h http.Header) { Expose(h, "Location") }, http.Header{}},
		{"preflight", CORS{Methods: "GET, HEAD"}, preflight(""), http.Header{
			"Access-Control-Allow-Methods": {"GET, HEAD"}, "Access-Control-Max-Age": {"7200"},
		}},
		{"preflight with headers", CORS{Methods: "GET"}, preflight("livepeer-jwt, range"), http.Header{
			"Access-Control-Allow-Methods": {"GET"}, "Access-Control-Allow-Headers": {"livepeer-jwt, range"}, "Access-Control-Max-Age": {"7200"},
		}},
	} {
		h := http.Header{}
		tt.do(tt.cors, h)
		if diff := cmp.Diff(tt.want, h); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
