// Package ucan is user-controlled authorization. The service has an identity, a did:key, to which the
// owner of a storage space delegates the right to write there. Check (proof.go) verifies such a proof
// offline. With it, an Identity signs invocations for an upload service and reads the answers
// (message.go). Owners of spaces send invocations to this service, too (request.go). The package is
// pure: no I/O, no clock, no randomness.
//
// The store makes the seed of the key once and never changes it, because every signed delegation
// contains the DID.
//
// Proofs come from callers. What they cost is bounded before go-ucanto, which panics on malformed
// delegations, sees them (archive.go, link.go).
package ucan

import (
	"crypto/ed25519"
	"math/big"
	"slices"
)

// DID returns the did:key of the Ed25519 key with this seed: "did:key:z6Mk…".
func DID(seed [ed25519.SeedSize]byte) string {
	public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	// 0xed as a varint is the multicodec of Ed25519 public keys; z is the multibase prefix of
	// base58btc.
	return "did:key:z" + base58(append([]byte{0xed, 0x01}, public...))
}

// base58 returns b as a number to the base 58 in Bitcoin's alphabet; each leading zero byte is a 1.
func base58(b []byte) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var digits []byte
	base, rest := big.NewInt(int64(len(alphabet))), new(big.Int)
	for n := new(big.Int).SetBytes(b); n.Sign() > 0; {
		n.DivMod(n, base, rest)
		digits = append(digits, alphabet[rest.Int64()])
	}
	for i := 0; i < len(b) && b[i] == 0; i++ {
		digits = append(digits, alphabet[0])
	}
	slices.Reverse(digits)
	return string(digits)
}
