package ucan

import (
	"testing"
)

// TestDID has the Ed25519 vectors of the did:key specification.
func TestDID(t *testing.T) {
	for seed, want := range map[[32]byte]string{
		{}:      "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp",
		{31: 1}: "did:key:z6MkjchhfUsD6mmvni8mCdXHw216Xrm9bQe2mBH1P5RDjVJG",
		{31: 2}: "did:key:z6MknGc3ocHs3zdPiJbnaaqDi58NGb4pk1Sp9WxWufuXSdxf",
	} {
		if got := DID(seed); got != want {
			t.Errorf("DID of seed %x = %s, want %s", seed, got, want)
		}
	}
}

// TestPrincipals has DIDs as text and in bytes.
func TestPrincipals(t *testing.T) {
	for _, did := range []string{DID([32]byte{}), "did:web:up.storacha.network", "did:mailto:example.com:a"} {
		b, err := principal(did)
		if name, ok := principalName(b); err != nil || !ok || name != did {
			t.Errorf("%s: %x, %s, %v", did, b, name, err)
		}
	}
	for _, did := range []string{"", "did:", "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp", "did:key:", "did:key:z6Mk", "did:key:bafkqaaa", "did:web:a b"} {
		if b, err := principal(did); err == nil {
			t.Errorf("%q: %x", did, b)
		}
	}
}
