package weir

import "strings"

// Base is where clients reach the service. Stored addresses are relative to it, because it may change:
// they begin with a slash.
type Base struct {
	URL  string // of the API and the pages
	IPFS string // of the gateway, if it has a host of its own
}

// gatewayPath is what the addresses of the gateway begin with.
const gatewayPath = "/ipfs/"

// Of returns a stored address as a whole URL. Other addresses stay as they are.
func (b Base) Of(address string) string {
	switch {
	case b.IPFS != "" && strings.HasPrefix(address, gatewayPath):
		return b.IPFS + address
	case strings.HasPrefix(address, "/"):
		return b.URL + address
	}
	return address
}

// GatewayURL returns the URL of a CID at the gateway.
func (b Base) GatewayURL(cid string) string { return b.Of(gatewayPath + cid) }
