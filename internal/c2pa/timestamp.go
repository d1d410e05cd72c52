package c2pa

import (
	"context"
	"time"

	"weir/internal/weir"
)

// stamp returns a time stamp token for the bytes of a signature.
func (s *Signer) stamp(ctx context.Context, signature []byte) ([]byte, error) {
	return nil, weir.Errorf(weir.Unavailable, "time stamps are not available")
}

// stamped returns when the signature was made, by its time stamp; nil = it has none.
func (s signature) stamped() (*time.Time, error) { return nil, nil }
