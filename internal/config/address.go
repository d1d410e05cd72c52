package config

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// LocalURL returns the URL at which a person on this machine reaches the service. port is that
// of the HTTP listener; 0 = the one in the settings.
func (c *Config) LocalURL(port int) string {
	return cmp.Or(c.publicBase(), c.listenerURL("localhost", port))
}

// EventURL returns the URL at which receivers of events reach the service. There is no request from
// which it could be taken.
func (c *Config) EventURL() string {
	return cmp.Or(c.publicBase(), c.listenerURL(machineAddress(), 0))
}

// PeerURL returns the URL at which other nodes reach this one, whose HTTP listener has the port.
func (c *Config) PeerURL(port int) string {
	return cmp.Or(c.NodeURL, c.listenerURL(machineAddress(), port))
}

// publicBase returns the URL that the settings name, or "".
func (c *Config) publicBase() string {
	if c.PublicURL == "" && c.ACME != "" {
		return "https://" + c.ACME
	}
	return c.PublicURL
}

// listenerURL returns the URL of the HTTP listener. anyHost is its host if it listens on all
// addresses.
func (c *Config) listenerURL(anyHost string, port int) string {
	scheme := "http"
	if c.Secure() {
		scheme = "https"
	}
	host, configured := SplitAddress(c.HTTP, anyHost)
	if port != 0 {
		configured = strconv.Itoa(port)
	}
	return scheme + "://" + net.JoinHostPort(host, configured)
}

// RTMPServer returns the URL that encoders send to over RTMP, without the stream key; "" =
// this node has no RTMP listener. base is the URL of the API.
func (c *Config) RTMPServer(base string) string {
	scheme, addr, usual := "rtmp", c.RTMP, "1935"
	if addr == "" {
		scheme, addr, usual = "rtmps", c.RTMPS, "443"
	}
	if addr == "" {
		return ""
	}
	anyHost := "localhost"
	if u, err := url.Parse(base); err == nil {
		anyHost = u.Hostname()
	}
	host, port := SplitAddress(addr, anyHost)
	switch {
	case port != usual:
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return scheme + "://" + host + "/live"
}

// SplitAddress returns host and port of a listener's address. anyHost is the host if it listens on
// all addresses.
func SplitAddress(addr, anyHost string) (host, port string) {
	host, port, _ = net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = anyHost
	}
	return host, port
}

// machineAddress returns the first address of this machine that other machines can reach.
func machineAddress() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return "localhost"
}
