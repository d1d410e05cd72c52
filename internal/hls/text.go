package hls

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// Text is a playlist as it is sent. It is prepared once for all who get it: thousands ask for the same
// state of a live playlist at the same moment.
type Text struct {
	Plain []byte
	Tag   string        // names the content, for an ETag
	Gzip  func() []byte // Plain compressed, on the first call
}

// NewText prepares a playlist.
func NewText(plain []byte) *Text {
	sum := sha256.Sum256(plain)
	return &Text{
		Plain: plain, Tag: hex.EncodeToString(sum[:12]),
		Gzip: sync.OnceValue(func() []byte {
			var small bytes.Buffer
			w := gzip.NewWriter(&small) // a playlist of 4.3 KB becomes 0.7 KB
			_, _ = w.Write(plain)       // a buffer takes everything
			_ = w.Close()
			return small.Bytes()
		}),
	}
}

// Wrap returns the playlist with a prefix before and a suffix behind every URI.
func (t *Text) Wrap(prefix, suffix string) *Text {
	if prefix == "" && suffix == "" {
		return t
	}
	return NewText(wrapURIs(t.Plain, prefix, suffix))
}
