package view

import (
	"net/netip"
	"strings"
)

// Viewer is who sent a request, as far as it can be known. The User-Agent itself is no part of it,
// because a client can send another one with every request.
type Viewer struct {
	Network netip.Prefix // of the client, see weir.Network
	Device  Device
	Token   string // what a token says who it is; "" = there is none
}

// identity returns what identifies a viewer: the token, or the network and the device.
func (w Viewer) identity() Viewer {
	if w.Token != "" {
		return Viewer{Token: w.Token}
	}
	return w
}

// Device is what a User-Agent says.
type Device struct{ Kind, OS, Browser string }

// maxAgent is far above the length of the User-Agent of a browser.
const maxAgent = 512

// DeviceOf reads a User-Agent.
func DeviceOf(agent string) (d Device) {
	agent = agent[:min(len(agent), maxAgent)]
	first := func(pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(agent, pairs[i]) {
				return pairs[i+1]
			}
		}
		return ""
	}
	d.OS = first("iPhone", "iOS", "iPad", "iOS", "Android", "Android", "Windows", "Windows", "Mac OS X", "macOS", "CrOS", "ChromeOS", "Linux", "Linux")
	d.Browser = first("Edg/", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "Chrome/", "Chrome", "Safari/", "Safari")
	d.Kind = first("iPad", "tablet", "Tablet", "tablet", "Mobile", "mobile", "iPhone", "mobile", "TV", "tv")
	if d.Kind == "" && d.Browser != "" {
		d.Kind = "desktop"
	}
	return d
}
