package weir

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Gateways lists hosts that serve content of IPFS and Arweave by its id. The same content can be
// fetched from any other gateway.
type Gateways struct {
	IPFS    []string // at https://host/ipfs/<cid>/… and https://<cid>.ipfs.host/…
	Arweave []string // at https://host/<transaction>/… and https://<label>.host/<transaction>/…
}

// DefaultGateways returns the gateways that are trusted unless the operator sets others.
func DefaultGateways() Gateways {
	return Gateways{
		IPFS:    []string{"ipfs.io", "gateway.ipfs.io", "dweb.link", "w3s.link", "storacha.link", "nftstorage.link", "gateway.pinata.cloud", "4everland.io"},
		Arweave: []string{"arweave.net", "gateway.arweave.net"},
	}
}

var (
	// A CID of version 0, or of version 1 in base 32 or base 36.
	contentID = regexp.MustCompile(`^(Qm[1-9A-HJ-NP-Za-km-z]{44}|b[a-z2-7]{20,120}|k[0-9a-z]{20,120})$`)
	// 32 bytes in base64url.
	arweaveID = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
)

// IsContentID reports whether text has the form of an address on IPFS.
func IsContentID(text string) bool { return contentID.MatchString(text) }

// IsArweaveID reports whether text has the form of a transaction of Arweave.
func IsArweaveID(text string) bool { return arweaveID.MatchString(text) }

// Resolve returns the name of the content at a URL of a trusted gateway: ipfs://cid/path or
// ar://transaction/path. It returns any other URL as it is, with ok false.
func (g Gateways) Resolve(raw string) (name string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return raw, false
	}
	host, path := strings.ToLower(u.Hostname()), strings.TrimPrefix(u.EscapedPath(), "/")
	if cid, gateway, found := strings.Cut(host, ".ipfs."); found && IsContentID(cid) && slices.Contains(g.IPFS, gateway) {
		return join("ipfs://"+cid, path), true
	}
	id, rest, _ := strings.Cut(path, "/")
	if slices.Contains(g.IPFS, host) && id == "ipfs" {
		cid, rest, _ := strings.Cut(rest, "/")
		if IsContentID(cid) {
			return join("ipfs://"+cid, rest), true
		}
	}
	// Arweave's gateways serve each transaction from a host name of its own, whose
	// first label follows from the transaction; the path names it too.
	_, parent, _ := strings.Cut(host, ".")
	if (slices.Contains(g.Arweave, host) || slices.Contains(g.Arweave, parent)) && IsArweaveID(id) {
		return join("ar://"+id, rest), true
	}
	return raw, false
}

func join(name, path string) string {
	if path == "" {
		return name
	}
	return name + "/" + path
}
