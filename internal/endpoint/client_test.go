package endpoint

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"testing"
)

func TestClientAddr(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1"},
		{"192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"}, // not a proxy of ours
		{"10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:5", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"}, // what the client claims does not count
		{"10.0.0.1:5", []string{"198.51.100.1, 10.2.3.4"}, "198.51.100.1"},
		{"10.0.0.1:5", []string{"198.51.100.1", "10.2.3.4"}, "198.51.100.1"},
		{"10.0.0.1:5", []string{"nonsense"}, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:5", []string{"198.51.100.1"}, "198.51.100.1"},
	} {
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
		if got := ClientAddr(r, trusted).String(); got != tt.want {
			t.Errorf("ClientAddr(%s, %v) = %s, want %s", tt.remote, tt.forwarded, got, tt.want)
		}
	}
}

func TestRequestBase(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		remote      string
		tls         *tls.ConnectionState
		proto, host string // as a proxy reports them
		want        string
	}{
		{"192.0.2.1:5", nil, "", "", "http://weir:8080"},
		{"192.0.2.1:5", &tls.ConnectionState{}, "", "", "https://weir:8080"},
		{"192.0.2.1:5", nil, "https", "evil.example", "http://weir:8080"}, // not a proxy of ours
		{"10.0.0.1:5", nil, "https", "video.example.com", "https://video.example.com"},
		{"10.0.0.1:5", nil, "ftp", "a/b", "http://weir:8080"},
	} {
		r := &http.Request{RemoteAddr: tt.remote, TLS: tt.tls, Host: "weir:8080", Header: http.Header{}}
		r.Header.Set("X-Forwarded-Proto", tt.proto)
		r.Header.Set("X-Forwarded-Host", tt.host)
		if got := RequestBase(r, trusted); got != tt.want {
			t.Errorf("RequestBase of %+v = %s", tt, got)
		}
	}
}
