package guard

import "net/netip"

// class is a range of addresses that are not public, and its description.
type class struct {
	network netip.Prefix // none if it can't be allowed
	is      string       // completes "10.0.0.1 …"
}

// classes are the ranges of the IANA registries of special-purpose addresses, for IPv4 and for
// IPv6; of nested ranges the narrower is first. A few of them reach a public service (AS112, AMT),
// but none that callers of weir need.
var classes = []class{
	{netip.MustParsePrefix("255.255.255.255/32"), "is the broadcast address"},
	{netip.MustParsePrefix("0.0.0.0/32"), "is the unspecified address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "is an address of this network only"},
	{netip.MustParsePrefix("10.0.0.0/8"), "is a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "is an address behind a carrier's NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "is a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "is a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "is a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "is an address for documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("192.52.193.0/24"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("192.88.99.0/24"), "is an address of a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "is a private address"},
	{netip.MustParsePrefix("192.175.48.0/24"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("198.18.0.0/15"), "is an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "is an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "is an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "is a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "is a reserved address"},

	{netip.MustParsePrefix("::/128"), "is the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "is the loopback address"},
	{netip.MustParsePrefix("::/96"), "is an IPv4-compatible address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "is an address of a local NAT64"},
	{netip.MustParsePrefix("100::/64"), "is an address that discards everything"},
	{netip.MustParsePrefix("2001::/32"), "is a Teredo address"},
	{netip.MustParsePrefix("2001:2::/48"), "is an address for benchmarks"},
	{netip.MustParsePrefix("2001::/23"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "is an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "is a 6to4 address"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "is an address reserved for protocols"},
	{netip.MustParsePrefix("3fff::/20"), "is an address for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "is a private address"},
	{netip.MustParsePrefix("fe80::/10"), "is a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "is a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "is a multicast address"},
}

var (
	// globalUnicast is the part of IPv6 in which all public addresses are.
	globalUnicast = netip.MustParsePrefix("2000::/3")

	// nat64 maps the IPv4 internet for machines that have only IPv6; the IPv4 address is in the
	// last four bytes.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// classify returns the class of the address to which a connection to addr leads; nil = it is
// public.
func classify(addr netip.Addr) *class {
	if addr.Zone() != "" {
		// It refers to an interface of this machine, which callers don't know.
		return &class{is: "has an IPv6 zone"}
	}
	addr = destination(addr)
	for i := range classes {
		if classes[i].network.Contains(addr) {
			return &classes[i]
		}
	}
	if addr.Is4() || globalUnicast.Contains(addr) {
		return nil
	}
	return &class{network: netip.PrefixFrom(addr, addr.BitLen()), is: "is not a public address"}
}

// destination returns the IPv4 address in addr if it is IPv4-mapped or has the well-known NAT64
// prefix, else addr. Addresses of other tunnels (6to4, Teredo, IPv4-compatible) are not decoded: no
// public server has one.
func destination(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}
