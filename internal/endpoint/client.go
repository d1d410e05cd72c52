package endpoint

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientAddr returns the address of the client that sent a request. X-Forwarded-For counts only
// as far as trusted proxies wrote it: it is read from its end, and the first address that is not
// a trusted proxy's is the client.
func ClientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	port, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := port.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(addr, trusted); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = hop.Unmap()
	}
	return addr
}

// RequestBase returns the base URL at which the client reached the service. The scheme and host
// that a proxy reports count only when the proxy is trusted.
func RequestBase(r *http.Request, trusted []netip.Prefix) string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if FromTrusted(r, trusted) {
		if proto := r.Header.Get("X-Forwarded-Proto"); proto == "http" || proto == "https" {
			scheme = proto
		}
		if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" && !strings.ContainsAny(forwarded, " ,/\\@<>\"'") {
			host = forwarded
		}
	}
	return scheme + "://" + host
}

// FromTrusted reports whether a trusted proxy sent the request.
func FromTrusted(r *http.Request, trusted []netip.Prefix) bool {
	port, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && isTrusted(port.Addr().Unmap(), trusted)
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
