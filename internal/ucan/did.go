// Package ucan is user-controlled authorization. The service has an identity, a did:key, to which the
// owner of a storage space delegates the right to write there. Check (proof.go) verifies such a proof
// offline. With it, an Identity signs invocations for an upload service and reads the responses
// (message.go). Owners of spaces send invocations to this service, too (request.go). The package is
// pure: no I/O, no clock, no randomness.
//
// The store makes the seed of the key once and never changes it, because every signed delegation
// contains the DID.
//
// Proofs come from callers. What they cost is bounded before they are decoded (archive.go, link.go).
package ucan

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"strings"

	"weir/internal/ipld"
)

// What the bytes of a principal begin with, as a varint.
const (
	codeEd25519 = 0xed   // a key
	codeRSA     = 0x1205 // a key
	codeDID     = 0x0d1d // any other DID, as text
)

// DID returns the did:key of the Ed25519 key with this seed: "did:key:z6Mk…".
func DID(seed [ed25519.SeedSize]byte) string {
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	return keyDID(principalOf(public))
}

// principalOf returns the bytes of a key as a principal.
func principalOf(key ed25519.PublicKey) []byte {
	return append(binary.AppendUvarint(nil, codeEd25519), key...)
}

// keyDID returns the DID of a principal that is a key.
func keyDID(b []byte) string { return "did:key:z" + ipld.Base58(b) }

// principal returns the bytes of a DID, and principalName the DID of bytes.
func principal(did string) ([]byte, error) {
	if text, isKey := strings.CutPrefix(did, "did:key:"); isKey {
		b, err := ipld.DecodeBase(text)
		if _, ok := principalName(b); err != nil || !ok || text[0] != 'z' {
			return nil, fmt.Errorf("%.200q is not the DID of a key", did)
		}
		return b, nil
	}
	rest, ok := strings.CutPrefix(did, "did:")
	if !ok || !printable([]byte(rest)) {
		return nil, fmt.Errorf("%.200q is not a DID", did)
	}
	return append(binary.AppendUvarint(nil, codeDID), rest...), nil
}

// principalName returns the DID of an encoded principal.
func principalName(b []byte) (string, bool) {
	code, n := binary.Uvarint(b)
	if n <= 0 || len(b) > maxPrincipal {
		return "", false
	}
	switch code {
	case codeEd25519:
		return keyDID(b), len(b) == n+ed25519.PublicKeySize
	case codeRSA:
		return keyDID(b), true
	case codeDID:
		return "did:" + string(b[n:]), printable(b[n:])
	}
	return "", false
}

// printable says whether a text can be shown in an error message.
func printable(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return len(text) > 0
}
