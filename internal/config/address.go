package config

import (
	"cmp"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"weir/internal/weir"
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

// EventBase returns the URLs at which receivers of events reach the service.
func (c *Config) EventBase() weir.Base { return weir.Base{URL: c.EventURL(), IPFS: c.IPFSURL} }

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

// IPFSHost returns the host that serves nothing but uploads to IPFS; "" = there is none.
func (c *Config) IPFSHost() string {
	if c.IPFSURL == "" {
		return ""
	}
	return hostOf(c.IPFSURL)
}

// addressSettings are the fields that say where a node is reached.
var addressSettings = []string{"HTTP", "RTMP", "RTMPS", "SRT", "SRTPassphrase", "WebRTC", "TLSCert", "ACME", "PublicURL", "IPFSURL"}

// Addresses returns the settings that say where this node is reached, by the names of their fields. port
// is that of the HTTP listener. Of the passphrase it only says that there is one.
func (c *Config) Addresses(port int) map[string]string {
	all, from := map[string]string{}, reflect.ValueOf(c).Elem()
	for _, name := range addressSettings {
		all[name] = from.FieldByName(name).String()
	}
	host, _, _ := net.SplitHostPort(c.HTTP)
	all["HTTP"] = net.JoinHostPort(host, strconv.Itoa(port))
	if c.SRTPassphrase != "" {
		all["SRTPassphrase"] = "PASSPHRASE"
	}
	return all
}

// UseAddresses changes the settings that say where a node is reached to those of another one, where they
// have their defaults.
func (c *Config) UseAddresses(all map[string]string) {
	to := reflect.ValueOf(c).Elem()
	for _, name := range addressSettings {
		field, _ := to.Type().FieldByName(name)
		value, known := all[name]
		if known && to.FieldByIndex(field.Index).String() == field.Tag.Get("default") {
			to.FieldByIndex(field.Index).SetString(value)
		}
	}
}

// IngestAddress is where encoders send a stream to over one protocol.
type IngestAddress struct{ Protocol, URL string }

// IngestAddresses returns the addresses that encoders can send the stream with the key to. base is the
// URL of the API.
func (c *Config) IngestAddresses(base, key string) []IngestAddress {
	var all []IngestAddress
	if !c.Runs(Live) {
		return all
	}
	if c.RTMP != "" {
		all = append(all, IngestAddress{"RTMP", rtmpServer("rtmp", c.RTMP, "1935", base) + "/" + key})
	}
	if c.RTMPS != "" {
		all = append(all, IngestAddress{"RTMPS", rtmpServer("rtmps", c.RTMPS, "443", base) + "/" + key})
	}
	if c.SRT != "" {
		host, port := SplitAddress(c.SRT, hostOf(base))
		passphrase := ""
		if c.SRTPassphrase != "" {
			passphrase = "passphrase=PASSPHRASE&"
		}
		all = append(all, IngestAddress{"SRT", "srt://" + net.JoinHostPort(host, port) + "?" + passphrase + "streamid=" + key})
	}
	if c.WebRTC != "" && c.Runs(API) {
		all = append(all, IngestAddress{"WHIP", base + "/webrtc/" + key})
	}
	return all
}

// Ingests returns the same for other protocols than RTMP, by their names in lower case. The stream key
// is appended.
func (c *Config) Ingests(base string) map[string]string {
	all := map[string]string{}
	for _, a := range c.IngestAddresses(base, "") {
		if a.Protocol != "RTMP" {
			all[strings.ToLower(a.Protocol)] = a.URL
		}
	}
	return all
}

// RTMPServer returns the URL that encoders send to over RTMP, without the stream key; "" =
// this node has no RTMP listener. base is the URL of the API.
func (c *Config) RTMPServer(base string) string {
	switch {
	case c.RTMP != "":
		return rtmpServer("rtmp", c.RTMP, "1935", base)
	case c.RTMPS != "":
		return rtmpServer("rtmps", c.RTMPS, "443", base)
	}
	return ""
}

// rtmpServer returns the URL of a listener; usual is the port that its scheme implies.
func rtmpServer(scheme, addr, usual, base string) string {
	host, port := SplitAddress(addr, hostOf(base))
	switch {
	case port != usual:
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return scheme + "://" + host + "/live"
}

// hostOf returns the host of a base URL.
func hostOf(base string) string {
	if u, err := url.Parse(base); err == nil {
		return u.Hostname()
	}
	return "localhost"
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
