package ipfs

import (
	"context"
	"io"

	"weir/internal/ucan"
	"weir/internal/weir"
)

// Service is a UCAN upload service, together with the proof of a space to write to.
type Service struct {
	url, did string
	identity ucan.Identity
	proof    ucan.Proof
}

// NewService returns the Remote that uploads to the service at url, whose DID is did, into the space
// of the proof.
func NewService(url, did string, identity ucan.Identity, proof ucan.Proof) *Service {
	return &Service{url, did, identity, proof}
}

// PutShard implements Remote.
func (s *Service) PutShard(ctx context.Context, shard Shard, open func() (io.ReadCloser, error)) error {
	return weir.Errorf(weir.Unavailable, "not written yet")
}

// Finish implements Remote.
func (s *Service) Finish(ctx context.Context, root string, shards []Shard) error {
	return weir.Errorf(weir.Unavailable, "not written yet")
}
