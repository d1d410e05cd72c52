package guard

import (
	"net/netip"
	"slices"
	"testing"

	"code.dny.dev/ssrf"
	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestCheckAddr(t *testing.T) {
	none := New(nil)
	office := New([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00:1::/32"),
		netip.MustParsePrefix("fe80::/10"),
	})
	for _, tt := range []struct {
		name  string
		guard *Guard
		addr  string
		ok    bool
	}{
		{"public", none, "1.1.1.1", true},
		{"public IPv6", none, "2606:4700:4700::1111", true},
		{"public, IPv4-mapped", none, "::ffff:8.8.8.8", true},
		{"public behind NAT64", none, "64:ff9b::808:808", true},
		{"next to 10.0.0.0/8", none, "11.0.0.0", true},
		{"next to 172.16.0.0/12", none, "172.32.0.0", true},
		{"before CGNAT", none, "100.63.255.255", true},
		{"after CGNAT", none, "100.128.0.0", true},

		{"loopback", none, "127.0.0.1", false},
		{"loopback, far end", none, "127.255.255.254", false},
		{"loopback IPv6", none, "::1", false},
		{"loopback, IPv4-mapped", none, "::ffff:127.0.0.1", false},
		{"loopback, IPv4-compatible", none, "::127.0.0.1", false},
		{"loopback, IPv4-translated", none, "::ffff:0:127.0.0.1", false},
		{"loopback behind NAT64", none, "64:ff9b::7f00:1", false},
		{"loopback behind a local NAT64", none, "64:ff9b:1::7f00:1", false},
		{"loopback in 6to4", none, "2002:7f00:1::", false},
		{"loopback in Teredo", none, "2001:0:4136:e378:8000:63bf:80ff:fffe", false},
		{"unspecified", none, "0.0.0.0", false},
		{"unspecified IPv6", none, "::", false},
		{"this network", none, "0.1.2.3", false},
		{"private 10", none, "10.255.255.255", false},
		{"private 172.16", none, "172.31.255.255", false},
		{"private 192.168", none, "192.168.0.1", false},
		{"private, IPv4-mapped", none, "::ffff:a00:1", false},
		{"private IPv6", none, "fd12:3456::1", false},
		{"CGNAT", none, "100.64.0.1", false},
		{"metadata service", none, "169.254.169.254", false},
		{"metadata service of AWS on IPv6", none, "fd00:ec2::254", false},
		{"metadata service, IPv4-mapped", none, "::ffff:169.254.169.254", false},
		{"link-local IPv6", none, "fe80::1", false},
		{"link-local with zone", none, "fe80::1%eth0", false},
		{"public with zone", none, "2606:4700::1%eth0", false},
		{"site-local", none, "fec0::1", false},
		{"protocol assignments", none, "192.0.0.170", false},
		{"documentation 1", none, "192.0.2.1", false},
		{"documentation 2", none, "198.51.100.1", false},
		{"documentation 3", none, "203.0.113.1", false},
		{"documentation IPv6", none, "2001:db8::1", false},
		{"documentation IPv6, second", none, "3fff::1", false},
		{"benchmarks", none, "198.19.255.255", false},
		{"benchmarks IPv6", none, "2001:2::1", false},
		{"multicast", none, "224.0.0.1", false},
		{"multicast IPv6", none, "ff02::1", false},
		{"reserved", none, "240.0.0.1", false},
		{"broadcast", none, "255.255.255.255", false},
		{"discard", none, "100::1", false},
		{"segment routing", none, "5f00::1", false},
		{"unassigned IPv6", none, "4000::1", false},

		{"allowed", office, "10.1.2.3", true},
		{"allowed, IPv4-mapped", office, "::ffff:10.1.2.3", true},
		{"allowed behind NAT64", office, "64:ff9b::a01:203", true},
		{"allowed IPv6", office, "fd00:1::7", true},
		{"allowed link-local", office, "fe80::1", true},
		{"allowed but with zone", office, "fe80::1%eth0", false},
		{"not among the allowed", office, "127.0.0.1", false},
		{"not among the allowed IPv6", office, "fd00:2::7", false},
		{"public beside the allowed", office, "9.9.9.9", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.guard.checkAddr("h", netip.MustParseAddr(tt.addr))
			if got := err == nil; got != tt.ok {
				t.Errorf("%s allowed = %v, want %v (%v)", tt.addr, got, tt.ok, err)
			}
		})
	}
}

func TestBlockedErrorSaysWhatToChange(t *testing.T) {
	for _, tt := range []struct {
		host, addr string
		want       string
	}{
		{
			"db.example.com", "10.0.0.1",
			"host db.example.com has no public address; check its name, or if it is in a private network, start weir with --allow-networks and that network",
		},
		{
			"127.0.0.1", "127.0.0.1",
			"127.0.0.1 is a loopback address; start weir with --allow-networks 127.0.0.0/8 to allow it",
		},
		{
			"::ffff:127.0.0.1", "127.0.0.1",
			"::ffff:127.0.0.1 is a loopback address; start weir with --allow-networks 127.0.0.0/8 to allow it",
		},
		{
			"six.example.com", "4000::1",
			"host six.example.com has no public address; check its name, or if it is in a private network, start weir with --allow-networks and that network",
		},
		{
			"fe80::1%eth0", "fe80::1%eth0",
			"fe80::1%eth0 has an IPv6 zone and can't be used",
		},
	} {
		t.Run(tt.host, func(t *testing.T) {
			err := &BlockedError{Host: tt.host, Addr: netip.MustParseAddr(tt.addr)}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
			if got := weir.KindOf(err); got != weir.Invalid {
				t.Errorf("kind = %q, want %q", got, weir.Invalid)
			}
		})
	}
}

// TestSuggestedNetworkHelps allows the network that the error suggests, for the edges of every class.
func TestSuggestedNetworkHelps(t *testing.T) {
	none := New(nil)
	for _, addr := range edges() {
		if none.checkAddr("h", addr) == nil {
			continue
		}
		opened := New([]netip.Prefix{classify(addr).network})
		if err := opened.checkAddr("h", addr); err != nil {
			t.Errorf("after following the advice: %v", err)
		}
	}
}

// TestClassesAgreeWithAnotherReading compares our reading of the IANA registries
// with the one of package ssrf, at the edges of every range that either has.
func TestClassesAgreeWithAnotherReading(t *testing.T) {
	ours, theirs := New(nil), ssrf.New()
	for _, addr := range edges() {
		if nat64.Contains(addr) {
			continue // theirs refuses all of it
		}
		got, want := ours.checkAddr("h", addr) == nil, theirs.SafeAddr(addr) == nil
		if got != want {
			t.Errorf("%s allowed = %v, want %v", addr, got, want)
		}
	}
}

// edges returns the first and the last address of every range, and their neighbours.
func edges() []netip.Addr {
	networks := slices.Concat(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes, []netip.Prefix{globalUnicast, nat64})
	for _, c := range classes {
		networks = append(networks, c.network)
	}
	var addrs []netip.Addr
	for _, n := range networks {
		first, last := n.Masked().Addr(), lastOf(n)
		for _, a := range []netip.Addr{first.Prev(), first, last, last.Next()} {
			if a.IsValid() && !a.Is4In6() {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

func lastOf(n netip.Prefix) netip.Addr {
	b := n.Masked().Addr().AsSlice()
	for bit := n.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// FuzzCheck compares the check with the standard library and package ssrf.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"1.1.1.1:80", "127.0.0.1:443", "[::1]:80", "[::ffff:127.0.0.1]:80", "[64:ff9b::7f00:1]:80",
		"[fe80::1%eth0]:80", "[2002:7f00:1::]:80", "0:80", "127.1:80", "[::ffff:7f00:1%lo]:1", "", ":",
	} {
		f.Add(seed)
	}
	guard, other := New(nil), ssrf.New(ssrf.WithAnyPort())
	f.Fuzz(func(t *testing.T, address string) {
		if guard.check("h", address) != nil {
			return
		}
		addrPort, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatalf("%q passed and is not an address: %v", address, err)
		}
		addr := destination(addrPort.Addr())
		if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.Zone() != "" {
			t.Errorf("%q passed and is not public", address)
		}
		if err := other.SafeAddr(addr); err != nil {
			t.Errorf("%q passed: %v", address, err)
		}
	})
}
