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

// TestBase58 has the vectors of the IETF draft on Base58, and the empty one.
func TestBase58(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"\x00":         "1",
		"Hello World!": "2NEpo7TZRRrLZSi2U",
		"The quick brown fox jumps over the lazy dog.": "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z",
		"\x00\x00\x28\x7f\xb4\xcd":                     "11233QC4",
	} {
		if got := base58([]byte(in)); got != want {
			t.Errorf("base58(%q) = %s, want %s", in, got, want)
		}
	}
}
