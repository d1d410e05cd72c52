// Package ipfs writes the outputs of tasks to IPFS and serves them from there. It packs files into
// one UnixFS directory inside CAR files (pack.go), collects the outputs of a task as a blob.Dest
// (dest.go), and sends the CAR files to a Remote: weir's own storage (local.go), an IPFS node
// (kubo.go) or a UCAN upload service (service.go). gateway.go serves what is stored locally.
package ipfs

import (
	"context"
	"crypto/sha256"
	"io"

	"weir/internal/weir"
)

// A Shard is one CAR file of an upload. The same files always give the same shards.
type Shard struct {
	Number int // from 0
	Size   int64
	Digest [sha256.Size]byte // SHA-256 of the file
	Blocks []weir.IPFSBlock  // in the order of the file
}

// A Remote takes the CAR files of one upload.
type Remote interface {
	// PutShard stores a shard unless it is stored already. open returns its bytes and may be called
	// more than once.
	PutShard(ctx context.Context, s Shard, open func() (io.ReadCloser, error)) error

	// Finish makes the upload known under the CID of its root, after all its shards were put.
	Finish(ctx context.Context, root string, shards []Shard) error
}

// An Index knows in which shard of which upload a block is. The store implements it.
type Index interface {
	AddIPFSBlocks(ctx context.Context, upload string, blocks []weir.IPFSBlock) error

	// IPFSBlocks returns every place of a block, by its multihash.
	IPFSBlocks(ctx context.Context, hash []byte) ([]weir.IPFSBlockPlace, error)
}
