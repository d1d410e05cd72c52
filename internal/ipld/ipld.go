// Package ipld has the formats that content-addressed data is made of: the address of a block (CID,
// cid.go), the two forms of documents (DAG-CBOR and DAG-JSON, cbor.go and json.go), and the file that
// carries blocks (CAR, car.go). UCANs and files on IPFS are made of them. Pure: no I/O but that of the
// reader it is given.
//
// Whatever is decoded here may be from anybody: nesting is bounded, and no length is believed before
// its bytes are there.
package ipld

import "fmt"

// A Map is a document or a part of one. Its values are nil, bool, int64, float64, string, []byte, CID,
// []any or Map.
type Map = map[string]any

// maxNesting is how deep the values of a document may be nested.
const maxNesting = 128

// Decode returns the value of a document with this codec, and the blocks that it links to, in its order.
func Decode(codec uint64, block []byte) (value any, links []CID, err error) {
	switch codec {
	case DagCBOR, CBOR:
		d := cborDecoder{rest: block, plain: codec == CBOR}
		value, err = d.document()
		return value, d.links, err
	case DagJSON, JSON:
		return decodeJSON(block, codec == JSON)
	}
	return nil, nil, fmt.Errorf("codec 0x%x is not that of a document", codec)
}
