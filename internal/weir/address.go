package weir

import "net/netip"

// Network returns the network that counts as one client: with IPv6, a client has many addresses.
func Network(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
