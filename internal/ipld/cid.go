package ipld

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// A CID is the address of a block: what kind of block it is, and the hash of its bytes. It is in its
// binary form, so that it can be compared; String is the form for people. The zero value is no CID.
type CID string

// The codecs of blocks.
const (
	Raw     = 0x55
	DagPB   = 0x70 // of UnixFS
	DagCBOR = 0x71
	DagJSON = 0x0129
	CBOR    = 0x51
	JSON    = 0x0200
	CAR     = 0x0202
)

// The functions of hashes.
const (
	Identity = 0x00 // the block itself is in the place of its hash
	SHA256   = 0x12
)

// Multihash returns a SHA-256 in the form that says what it is.
func Multihash(digest [sha256.Size]byte) []byte {
	return append([]byte{SHA256, sha256.Size}, digest[:]...)
}

// NewCID returns the CID of a block with this codec and SHA-256.
func NewCID(codec uint64, digest [sha256.Size]byte) CID {
	return CID(append(binary.AppendUvarint([]byte{1}, codec), Multihash(digest)...))
}

// Sum returns the CID of a block with this codec.
func Sum(codec uint64, block []byte) CID { return NewCID(codec, sha256.Sum256(block)) }

var errCID = errors.New("it is not a CID")

// ReadCID returns the CID that b begins with, and its length.
func ReadCID(b []byte) (CID, int, error) {
	at := 0
	if len(b) < 2 || b[0] != SHA256 || b[1] != sha256.Size { // else it is of version 0: a hash alone
		version, n := uvarint(b)
		_, m := uvarint(b[n:])
		if version != 1 || n == 0 || m == 0 {
			return "", 0, errCID
		}
		at = n + m
	}
	_, n := uvarint(b[at:])
	size, m := uvarint(b[at+n:])
	at += n + m
	if n == 0 || m == 0 || size > uint64(len(b)-at) {
		return "", 0, errCID
	}
	at += int(size)
	return CID(b[:at]), at, nil
}

// uvarint returns a number and its length, which is 0 if it is cut off or longer than needed.
func uvarint(b []byte) (value uint64, n int) {
	value, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return value, n
}

// AsCID returns the CID that b is.
func AsCID(b []byte) (CID, error) {
	c, n, err := ReadCID(b)
	if err != nil || n != len(b) {
		return "", errCID
	}
	return c, nil
}

// maxBigText is the length of the longest text in a base that is no power of two: such texts take
// quadratic time.
const maxBigText = 512

// ParseCID reads a CID in the form for people.
func ParseCID(text string) (CID, error) {
	b, err := DecodeBase(text)
	if err != nil {
		return "", fmt.Errorf("%.100q is not a CID", text)
	}
	c, err := AsCID(b)
	if err != nil {
		return "", fmt.Errorf("%.100q is not a CID", text)
	}
	return c, nil
}

// DecodeBase returns the bytes of a text that begins with the letter of its base.
func DecodeBase(text string) ([]byte, error) {
	if len(text) == 46 && strings.HasPrefix(text, "Qm") {
		return decodeBig(text, base58Alphabet)
	}
	if text == "" {
		return nil, errCID
	}
	switch digits := text[1:]; text[0] {
	case 'b', 'B':
		return base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(digits))
	case 'z':
		return decodeBig(digits, base58Alphabet)
	case 'k', 'K':
		return decodeBig(strings.ToLower(digits), base36Alphabet)
	case 'f', 'F':
		return hex.DecodeString(digits)
	case 'm':
		return base64.RawStdEncoding.DecodeString(digits)
	case 'M':
		return base64.StdEncoding.DecodeString(digits)
	case 'u':
		return base64.RawURLEncoding.DecodeString(digits)
	case 'U':
		return base64.URLEncoding.DecodeString(digits)
	}
	return nil, errCID
}

const (
	base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	base36Alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// decodeBig reads a number with these digits. Each leading zero is a byte.
func decodeBig(text, alphabet string) ([]byte, error) {
	if len(text) > maxBigText {
		return nil, errCID
	}
	base, n := big.NewInt(int64(len(alphabet))), new(big.Int)
	for _, digit := range []byte(text) {
		i := strings.IndexByte(alphabet, digit)
		if i < 0 {
			return nil, errCID
		}
		n.Add(n.Mul(n, base), big.NewInt(int64(i)))
	}
	zeros := len(text) - len(strings.TrimLeft(text, alphabet[:1]))
	return append(make([]byte, zeros), n.Bytes()...), nil
}

// Base58 returns b as a number to the base 58 in Bitcoin's alphabet; each leading zero byte is a 1.
func Base58(b []byte) string {
	base, rest := big.NewInt(int64(len(base58Alphabet))), new(big.Int)
	var digits []byte
	for n := new(big.Int).SetBytes(b); n.Sign() > 0; {
		n.DivMod(n, base, rest)
		digits = append(digits, base58Alphabet[rest.Int64()])
	}
	for i := 0; i < len(b) && b[i] == 0; i++ {
		digits = append(digits, base58Alphabet[0])
	}
	slices.Reverse(digits)
	return string(digits)
}

// String returns the usual form for people.
func (c CID) String() string {
	if c == "" {
		return ""
	}
	if c.version0() {
		return Base58([]byte(c))
	}
	return "b" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(c)))
}

// version0 says whether the CID is a SHA-256 alone.
func (c CID) version0() bool { return len(c) > 0 && c[0] == SHA256 }

// Codec returns how the bytes of the block are to be read.
func (c CID) Codec() uint64 {
	if c.version0() {
		return DagPB
	}
	codec, _ := c.parts()
	return codec
}

// Version1 returns the CID in version 1.
func (c CID) Version1() CID {
	if !c.version0() {
		return c
	}
	return CID(append([]byte{1, DagPB}, c...))
}

// Hash returns the multihash of the block.
func (c CID) Hash() []byte {
	if c.version0() {
		return []byte(c)
	}
	_, hash := c.parts()
	return hash
}

// parts returns codec and multihash of a CID of version 1.
func (c CID) parts() (codec uint64, hash []byte) {
	b := []byte(c)
	_, n := uvarint(b)
	codec, m := uvarint(b[n:])
	return codec, b[n+m:]
}

// Digest returns the multihash in parts: its function, and what that returned.
func (c CID) Digest() (function uint64, digest []byte) {
	hash := c.Hash()
	function, n := uvarint(hash)
	_, m := uvarint(hash[n:])
	return function, hash[n+m:]
}

// Verify says whether the CID is that of these bytes. Only SHA-256 and the identity are known.
func (c CID) Verify(block []byte) bool {
	switch function, digest := c.Digest(); function {
	case Identity:
		return string(digest) == string(block)
	case SHA256:
		sum := sha256.Sum256(block)
		return string(digest) == string(sum[:])
	}
	return false
}
