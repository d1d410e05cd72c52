package ipld

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// AppendCARHeader appends the begin of a CAR file of version 1.
func AppendCARHeader(b []byte, roots ...CID) []byte {
	links := []any{}
	for _, c := range roots {
		links = append(links, c)
	}
	header, err := EncodeCBOR(Map{"version": int64(1), "roots": links})
	if err != nil {
		panic(err) // all values are of known kinds
	}
	return append(binary.AppendUvarint(b, uint64(len(header))), header...)
}

// AppendCARBlock appends a block to a CAR file.
func AppendCARBlock(b []byte, c CID, block []byte) []byte {
	return append(AppendCARSection(b, c, len(block)), block...)
}

// AppendCARSection appends what is before a block of this size in a CAR file.
func AppendCARSection(b []byte, c CID, size int) []byte {
	return append(binary.AppendUvarint(b, uint64(len(c)+size)), c...)
}

// A CARReader reads a CAR file of version 1. It does not verify blocks.
type CARReader struct {
	Roots []CID

	r   *bufio.Reader
	max uint64
}

var errCAR = errors.New("it is not a CAR file")

// maxCARHeader is the size of the largest header.
const maxCARHeader = 4 << 10

// NewCARReader reads the header of a CAR file. Sections, which are blocks with their CIDs, may have max
// bytes.
func NewCARReader(r io.Reader, max int) (*CARReader, error) {
	c := &CARReader{r: bufio.NewReader(r), max: maxCARHeader}
	header, err := c.section()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCAR, err)
	}
	d := cborDecoder{rest: header}
	value, err := d.document()
	m, ok := value.(Map)
	roots, ok2 := m["roots"].([]any)
	if err != nil || !ok || !ok2 || m["version"] != int64(1) {
		return nil, errCAR
	}
	for _, root := range roots {
		link, ok := root.(CID)
		if !ok {
			return nil, errCAR
		}
		c.Roots = append(c.Roots, link)
	}
	c.max = uint64(max)
	return c, nil
}

// Next returns the next block. After the last one, the error is io.EOF.
func (c *CARReader) Next() (CID, []byte, error) {
	section, err := c.section()
	if err != nil {
		return "", nil, err
	}
	id, n, err := ReadCID(section)
	return id, section[n:], err
}

// section reads a length and that many bytes.
func (c *CARReader) section() ([]byte, error) {
	size, err := binary.ReadUvarint(c.r)
	if err != nil {
		return nil, err // io.EOF only before its first byte
	}
	if size > c.max {
		return nil, fmt.Errorf("a section has %d bytes, and %d are allowed", size, c.max)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}
