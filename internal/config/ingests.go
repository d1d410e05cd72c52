package config

import (
	"net"
	"net/url"
)

// Ingests returns where encoders send to over other protocols than RTMP: rtmps, srt and whip. The
// stream key is appended. base is the URL of the API.
func (c *Config) Ingests(base string) map[string]string {
	all := map[string]string{}
	if !c.Runs(Live) {
		return all
	}
	anyHost := "localhost"
	if u, err := url.Parse(base); err == nil {
		anyHost = u.Hostname()
	}
	if c.RTMPS != "" {
		host, port := SplitAddress(c.RTMPS, anyHost)
		all["rtmps"] = "rtmps://" + net.JoinHostPort(host, port) + "/live/"
	}
	if c.SRT != "" {
		host, port := SplitAddress(c.SRT, anyHost)
		passphrase := ""
		if c.SRTPassphrase != "" {
			passphrase = "passphrase=PASSPHRASE&" // everybody may ask for the addresses
		}
		all["srt"] = "srt://" + net.JoinHostPort(host, port) + "?" + passphrase + "streamid="
	}
	if c.WebRTC != "" {
		all["whip"] = base + "/webrtc/"
	}
	return all
}
