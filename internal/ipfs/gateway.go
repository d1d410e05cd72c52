package ipfs

import (
	"context"
	"net/http"
)

// NewGateway returns a handler of /ipfs/<cid>/<path> for local uploads. may returns nil if the request
// of the context may read the upload, else the error to answer with.
func NewGateway(b *Blocks, may func(ctx context.Context, upload string) error) http.Handler {
	panic("not written yet")
}
