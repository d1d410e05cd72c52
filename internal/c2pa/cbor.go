package c2pa

import (
	"crypto/sha256"

	"github.com/fxamacker/cbor/v2"

	"weir/internal/weir"
)

// object is a CBOR map.
type object = map[string]any

// encode encodes content of this package, always to the same bytes.
func encode(content any) []byte {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	data, err := mode.Marshal(content)
	if err != nil {
		panic(err)
	}
	return data
}

// decode decodes CBOR from outside. Members that the target does not have are left out.
func decode(data []byte, into any) error {
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 32, MaxArrayElements: 1 << 17, MaxMapPairs: 1 << 12,
	}.DecMode()
	if err != nil {
		return err
	}
	if err := mode.Unmarshal(data, into); err != nil {
		return weir.Wrap(weir.Invalid, err, "unreadable CBOR")
	}
	return nil
}

// link is the address of a box, and the hash of its content.
type link struct {
	URL  string `cbor:"url"`
	Hash []byte `cbor:"hash"`
	Alg  string `cbor:"alg,omitempty"`
}

// linkTo returns the link to an assertion of the same manifest.
func linkTo(label string, superbox []byte) link {
	sum := sha256.Sum256(superbox[8:])
	return link{URL: address + labelAssertions + "/" + label, Hash: sum[:]}
}
