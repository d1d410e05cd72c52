package ipfs

import (
	"io"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipld/go-car/v2"
)

// Bounds of a CAR file, in bytes.
const (
	carHeaderLimit  = 64 << 10
	carSectionLimit = maxBlock + 256 // a block with its CID
)

// carReader reads the blocks of a CAR file of anybody, and verifies each against its hash.
type carReader struct{ blocks *car.BlockReader }

func newCARReader(r io.Reader) (*carReader, error) {
	b, err := car.NewBlockReader(r, car.MaxAllowedHeaderSize(carHeaderLimit), car.MaxAllowedSectionSize(carSectionLimit))
	if err != nil {
		return nil, err
	}
	return &carReader{b}, nil
}

func (r *carReader) next() (blocks.Block, error) { return r.blocks.Next() }
