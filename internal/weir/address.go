package weir

import (
	"net/netip"
	"slices"
	"strings"
)

// Network returns what counts as one address: with IPv6, everybody has many.
func Network(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

// ClientAddr returns who sent a request. What X-Forwarded-For says counts only as
// far as it was written by a trusted proxy: it is read from its end, and the
// first address that is not a trusted proxy's is the client.
func ClientAddr(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	port, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr := port.Addr().Unmap()
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(addr, trusted); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = hop.Unmap()
	}
	return addr
}

// RequestBase returns how a caller reaches the service, from the request itself.
// What a proxy says of scheme and host counts when the proxy is trusted.
func RequestBase(tls bool, host, remote, forwardedProto, forwardedHost string, trusted []netip.Prefix) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	if FromTrusted(remote, trusted) {
		if forwardedProto == "http" || forwardedProto == "https" {
			scheme = forwardedProto
		}
		if forwardedHost != "" && !strings.ContainsAny(forwardedHost, " ,/\\@<>\"'") {
			host = forwardedHost
		}
	}
	return scheme + "://" + host
}

// FromTrusted reports whether a request comes straight from a trusted proxy.
func FromTrusted(remote string, trusted []netip.Prefix) bool {
	port, err := netip.ParseAddrPort(remote)
	return err == nil && isTrusted(port.Addr().Unmap(), trusted)
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
