package ucan

import "crypto/ed25519"

// An Identity is the key of this service.
type Identity struct {
	seed [ed25519.SeedSize]byte
}

// NewIdentity returns the identity with this seed.
func NewIdentity(seed [ed25519.SeedSize]byte) Identity { return Identity{seed} }

// DID returns the did:key of the identity.
func (i Identity) DID() string { return DID(i.seed) }

// String returns the DID, so that no log has the key.
func (i Identity) String() string { return i.DID() }

// key returns the key that signs.
func (i Identity) key() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(i.seed[:]) }
