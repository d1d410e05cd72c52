package ipfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"weir/internal/blob"
	"weir/internal/ipld"
	"weir/internal/weir"
)

// Folder returns the folder of a store with the shards of an upload.
func Folder(upload string) string { return "ipfs/" + upload }

func shardFileKey(upload string, number int) string {
	return fmt.Sprintf("%s/%d.car", Folder(upload), number)
}

// A Remover is a Remote from which uploads can be removed. Those of NewLocal and NewKubo are.
type Remover interface {
	// Remove removes the upload with this root. One that is not there is no error.
	Remove(ctx context.Context, root string) error
}

// NewLocal returns weir's own storage as a Remote: shards are objects in Folder(upload), and their
// blocks are entered into the index. Its Remove deletes the folder, but not the rows of the index.
func NewLocal(s blob.Store, index Index, upload string) Remote { return local{s, index, upload} }

type local struct {
	store  blob.Store
	index  Index
	upload string
}

// PutShard writes a shard even if it is there: a stored one is not asked for again, except when weir
// stopped in the moment after it was written.
func (l local) PutShard(ctx context.Context, s Shard, open func() (io.ReadCloser, error)) error {
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	o := blob.PutOptions{ContentType: carType}
	if err := l.store.Put(ctx, shardFileKey(l.upload, s.Number), r, s.Size, o); err != nil {
		return err
	}
	return l.index.AddIPFSBlocks(ctx, l.upload, s.Blocks)
}

func (local) Finish(context.Context, string, []Shard) error { return nil }

func (l local) Remove(ctx context.Context, _ string) error {
	return l.store.DeletePrefix(ctx, Folder(l.upload))
}

// Bounds of blocks, in bytes.
const (
	maxBlock    = 2 << 20 // what every implementation of IPFS accepts
	maxIdentity = 128     // of a block that is inside its own CID
)

// Blocks reads the blocks of local uploads. Every block is verified against its hash, and is read only
// with the codec that it was stored with. Otherwise the bytes of a file could be read as the
// nodes of any graph, like one that has no end or that a decoder needs all memory for.
type Blocks struct {
	Log *slog.Logger // of damaged blocks; nil = no log

	store blob.Store
	index Index

	mu      sync.Mutex
	damaged map[string]struct{} // blocks that are in the log already
}

// NewBlocks returns a reader of the blocks that NewLocal stored.
func NewBlocks(s blob.Store, index Index) *Blocks {
	return &Blocks{store: s, index: index, damaged: map[string]struct{}{}}
}

var (
	// errDamaged means that a stored block does not have its hash.
	errDamaged = errors.New("the stored bytes are not those that were written")
	// errOtherCodec means that a block was stored with another codec.
	errOtherCodec = errors.New("the block has another codec")
)

// get returns a block that may allows to read. The error is of kind NotFound if no upload has it, and
// that of may if one has it and may refuses all of them.
func (b *Blocks) get(ctx context.Context, c ipld.CID, may func(ctx context.Context, upload string) error) ([]byte, error) {
	digest, inline, err := digestOf(c)
	if err != nil || inline != nil {
		return inline, err
	}
	var data []byte
	var failed error
	err = b.find(ctx, c, may, func(place weir.IPFSBlockPlace) bool {
		var err error
		data, err = b.read(ctx, place, c, digest)
		switch {
		case err == nil || ctx.Err() != nil:
			return true
		case errors.Is(err, errOtherCodec):
			return false
		case errors.Is(err, errDamaged):
			b.report(ctx, c, place)
		}
		failed = errors.Join(failed, err)
		return false
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case data == nil && failed != nil:
		return nil, weir.Wrap(weir.Internal, failed, "block %s can't be read: its stored copy is damaged or missing", c)
	}
	return data, err
}

// check returns nil if a block is here and may be read.
func (b *Blocks) check(ctx context.Context, c ipld.CID, may func(context.Context, string) error) error {
	_, inline, err := digestOf(c)
	if err != nil || inline != nil {
		return err
	}
	return b.find(ctx, c, may, func(weir.IPFSBlockPlace) bool { return true })
}

// find calls use with the places of a block that may be read, until it returns true. Without one, it
// returns the reason.
func (b *Blocks) find(ctx context.Context, c ipld.CID, may func(context.Context, string) error, use func(weir.IPFSBlockPlace) bool) error {
	places, err := b.index.IPFSBlocks(ctx, c.Hash())
	if err != nil {
		return err
	}
	refusal := error(weir.Errorf(weir.NotFound, "%s is not stored here", c))
	for _, place := range places {
		if err := may(ctx, place.Upload); err == nil {
			if use(place) {
				return nil
			}
		} else if weir.IsNotFound(refusal) {
			refusal = err
		}
	}
	return refusal
}

// longestCID is enough for the CIDs in shards.
const longestCID = 40

func (b *Blocks) read(ctx context.Context, place weir.IPFSBlockPlace, c ipld.CID, digest [sha256.Size]byte) ([]byte, error) {
	if place.Size < 0 || place.Size > maxBlock {
		return nil, fmt.Errorf("index has a block of %d bytes: %w", place.Size, errDamaged)
	}
	head := min(place.Offset, longestCID)
	r, _, err := b.store.Get(ctx, shardFileKey(place.Upload, place.Shard), place.Offset-head, head+place.Size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	data := make([]byte, head+place.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errDamaged // the shard ends before
		}
		return nil, err
	}
	if sha256.Sum256(data[head:]) != digest {
		return nil, errDamaged
	}
	switch codec, ok := codecBefore(data[:head], c.Hash(), place.Size); {
	case !ok:
		return nil, errDamaged
	case codec != c.Codec() && c.Codec() != ipld.Raw: // any bytes can be read as they are
		return nil, errOtherCodec
	}
	return data[head:], nil
}

// codecBefore returns the codec in the CID of a block, which is before it in a shard.
func codecBefore(head, hash []byte, size int64) (uint64, bool) {
	for _, codec := range codecs {
		if bytes.HasSuffix(head, append(binary.AppendUvarint([]byte{1}, codec), hash...)) {
			return codec, true
		}
	}
	// A CID of version 0, which weir does not make, is a hash after the length of both.
	section := append(binary.AppendUvarint(nil, uint64(len(hash))+uint64(size)), hash...)
	return ipld.DagPB, bytes.HasSuffix(head, section)
}

// reportsKept bounds how many damaged blocks are remembered, so that the log has each of them once.
const reportsKept = 1000

func (b *Blocks) report(ctx context.Context, c ipld.CID, place weir.IPFSBlockPlace) {
	b.mu.Lock()
	key := string(c.Hash()) + place.Upload
	_, known := b.damaged[key]
	if full := len(b.damaged) >= reportsKept; !known && !full {
		b.damaged[key] = struct{}{}
	} else if full {
		known = true
	}
	b.mu.Unlock()
	if !known && b.Log != nil {
		b.Log.ErrorContext(ctx, "stored block is damaged", "block", c.String(), "file", shardFileKey(place.Upload, place.Shard), "offset", place.Offset)
	}
}

// digestOf returns the SHA-256 in a CID, or the block itself if it is inside the CID. No other hash is
// accepted: nothing here is stored under one.
func digestOf(c ipld.CID) (digest [sha256.Size]byte, inline []byte, err error) {
	function, value := c.Digest()
	switch {
	case !slices.Contains(codecs, c.Codec()):
		return digest, nil, weir.Errorf(weir.NotFound, "%s is not stored here: only files, directories and JSON or CBOR documents are", weir.Shorten(c.String(), 100))
	case function == ipld.Identity && len(value) <= maxIdentity:
		return digest, append([]byte{}, value...), nil
	case function == ipld.SHA256 && len(value) == sha256.Size:
		return [sha256.Size]byte(value), nil, nil
	}
	return digest, nil, weir.Errorf(weir.Refused, "%s is not the address of content here: its hash must be a SHA-256", weir.Shorten(c.String(), 100))
}

// codecs of blocks that are read: those of UnixFS, and those of documents.
var codecs = []uint64{ipld.Raw, ipld.DagPB, ipld.DagCBOR, ipld.DagJSON, ipld.CBOR, ipld.JSON}
