package weir

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// NewID returns a random UUID (version 4).
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	s[8] = '-'
	hex.Encode(s[9:13], b[4:6])
	s[13] = '-'
	hex.Encode(s[14:18], b[6:8])
	s[18] = '-'
	hex.Encode(s[19:23], b[8:10])
	s[23] = '-'
	hex.Encode(s[24:36], b[10:16])
	return string(s[:])
}

// NewPlaybackID returns a playback id for the resource with the given id: 16
// characters of base 36, the first four those of the id.
func NewPlaybackID(id string) string { return id[:4] + randomBase36(12) }

// NewStreamKey returns a key for the stream with the given id: four groups of four characters.
func NewStreamKey(id string) Secret {
	r := randomBase36(12)
	return Secret(id[:4] + "-" + r[0:4] + "-" + r[4:8] + "-" + r[8:12])
}

// APIKeyPrefix starts every API key, so that secret scanners recognize it.
const APIKeyPrefix = "weir_"

// NewAPIKey returns an API key of 256 random bits.
func NewAPIKey() Secret { return Secret(APIKeyPrefix + NewToken()) }

// NewToken returns 256 random bits as lower-case text.
func NewToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

func randomBase36(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	out := make([]byte, 0, n)
	var buf [64]byte
	for len(out) < n {
		_, _ = rand.Read(buf[:])
		for _, b := range buf {
			// 252 is the largest multiple of 36 in a byte; larger bytes would favour the first
			// digits.
			if b < 252 && len(out) < n {
				out = append(out, digits[b%36])
			}
		}
	}
	return string(out)
}
