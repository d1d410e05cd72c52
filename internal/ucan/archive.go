package ucan

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"weir/internal/ipld"
)

// Bounds of an archive. They keep what a hostile one costs near to the cost of hashing its bytes.
const (
	maxText   = 1 << 20 // length of the text of a proof
	maxBlocks = 256     // of an archive; a proof of the usual tools has three to ten
)

// An archive is the content of a CAR file, verified against its hashes.
type archive struct {
	roots  []ipld.CID
	order  []ipld.CID
	blocks map[ipld.CID][]byte
}

// errText says what is wrong with the text or the archive of a proof.
type errText string

func (e errText) Error() string { return string(e) }

// decodeText returns the CAR file that the text of a proof contains: base64 of the file, or of a CID
// with the file inside. White space, base64url and missing padding are accepted.
func decodeText(text string) ([]byte, error) {
	if len(text) > maxText {
		return nil, errText("it is longer than 1 MiB")
	}
	text = strings.Map(func(r rune) rune {
		switch r {
		case ' ', '\t', '\r', '\n', '\v', '\f', '=', '\ufeff':
			return -1
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, text)
	if text == "" {
		return nil, errText("it is empty")
	}
	// These are the multibase prefixes of base64 and base64url. A CAR file in base64 starts with
	// the length of a short header, so never with these letters.
	if strings.ContainsRune("mMuU", rune(text[0])) {
		b, err := base64.RawStdEncoding.DecodeString(text[1:])
		if err != nil {
			return nil, errText("it is not base64")
		}
		c, err := ipld.AsCID(b)
		if err != nil || c.Codec() != ipld.CAR {
			return nil, errText("it is truncated, or not a CID that contains a CAR file")
		}
		function, file := c.Digest()
		if function != ipld.Identity {
			return nil, errText("it is the CID of a CAR file, not the file")
		}
		return file, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errText("it is not base64")
	}
	return b, nil
}

// readArchive reads a CAR file and verifies the hash of every block.
func readArchive(file []byte, blocks int) (*archive, error) {
	r, err := ipld.NewCARReader(bytes.NewReader(file), len(file))
	if err != nil {
		return nil, errText("it is not a CAR file")
	}
	a := &archive{roots: r.Roots, blocks: map[ipld.CID][]byte{}}
	for {
		c, block, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return a, nil
		case err != nil:
			return nil, errText("it is truncated, or one of its blocks can't be read")
		case len(a.order) == blocks:
			return nil, errText(fmt.Sprintf("it has more than %d blocks", blocks))
		}
		if function, digest := c.Digest(); c.Version1() != c || function != ipld.SHA256 || len(digest) != sha256.Size {
			return nil, errText("one of its blocks has no SHA-256 hash")
		}
		if !c.Verify(block) {
			return nil, errText("one of its blocks does not match its hash, so it was changed")
		}
		a.order = append(a.order, c)
		a.blocks[c] = block
	}
}
