package ipfs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"syscall"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// The layout of files: that of ipfs-car, which the clients of upload services use, and of the profile
// unixfs-v1-2025. The same files have the same CID in all of them.
const (
	leafSize  = 1 << 20 // bytes of a leaf
	nodeLinks = 1024    // of a node of a file
)

// carType is the media type of CAR files.
const carType = "application/vnd.ipld.car"

// shardSize is the largest size of a CAR file: what the upload service of the network accepts.
const shardSize = 133_169_152

// carHeader begins every shard: a CAR of version 1 without roots, because the root is known only after
// the last block was written.
var carHeader = ipld.AppendCARHeader(nil)

// open returns the bytes of a shard, and may be called more than once.
type open = func() (io.ReadCloser, error)

// packer makes UnixFS blocks of files and writes them to shards, in one pass. It holds one shard on
// disk, one block and the hashes of all blocks in memory. The same calls make the same shards.
type packer struct {
	scratch  string // folder of the shard
	max      int64  // size of a shard
	leafSize int
	links    int
	done     func(ctx context.Context, s Shard, o open) error // takes each shard

	seen  map[[sha256.Size]byte]struct{} // blocks that are in a shard
	next  int                            // number of the next shard
	shard *shardFile                     // nil between shards
	leaf  []byte
}

func newPacker(scratch string, done func(context.Context, Shard, open) error) *packer {
	return &packer{
		scratch: scratch, max: shardSize, leafSize: leafSize, links: nodeLinks, done: done,
		seen: map[[sha256.Size]byte]struct{}{},
	}
}

// skip tells the packer of a shard that was made before, and that the next one follows it.
func (p *packer) skip(s Shard) error {
	for _, b := range s.Blocks {
		digest, err := sha256Of(b.Hash)
		if err != nil {
			return err
		}
		p.seen[digest] = struct{}{}
	}
	p.next = s.Number + 1
	return nil
}

// node is a block that was written, with what is below it.
type node struct {
	cid    ipld.CID
	bytes  uint64 // of the file
	stored uint64 // size of all blocks, which links call Tsize
}

// file writes a file and returns its root.
func (p *packer) file(ctx context.Context, r io.Reader) (node, error) {
	if p.leaf == nil {
		p.leaf = make([]byte, p.leafSize)
	}
	t := tree{packer: p}
	for {
		n, readErr := io.ReadFull(r, p.leaf)
		if n > 0 || errors.Is(readErr, io.EOF) && t.rows == nil { // an empty file is an empty leaf
			c, err := p.block(ctx, ipld.Raw, p.leaf[:n])
			if err == nil {
				err = t.add(ctx, 0, node{c, uint64(n), uint64(n)})
			}
			if err != nil {
				return node{}, err
			}
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			return t.root(ctx)
		}
		if readErr != nil {
			return node{}, readErr
		}
	}
}

// tree is the balanced tree over the leaves of a file.
type tree struct {
	packer *packer
	rows   [][]node // nodes without a parent, by height
}

// add adds a node at a height. A full row gets its parent only when another node follows, so the last
// one may end as the row below the root.
func (t *tree) add(ctx context.Context, height int, n node) error {
	if height == len(t.rows) {
		t.rows = append(t.rows, nil)
	}
	row := t.rows[height]
	if len(row) < t.packer.links {
		t.rows[height] = append(row, n)
		return nil
	}
	parent, err := t.packer.parent(ctx, row)
	if err != nil {
		return err
	}
	t.rows[height] = append(row[:0], n)
	return t.add(ctx, height+1, parent)
}

func (t *tree) root(ctx context.Context) (node, error) {
	for height := 0; height < len(t.rows)-1; height++ {
		parent, err := t.packer.parent(ctx, t.rows[height])
		if err == nil {
			err = t.add(ctx, height+1, parent)
		}
		if err != nil {
			return node{}, err
		}
	}
	top := t.rows[len(t.rows)-1]
	if len(top) == 1 {
		return top[0], nil
	}
	return t.packer.parent(ctx, top)
}

// parent writes a node of a file.
func (p *packer) parent(ctx context.Context, children []node) (node, error) {
	var all node
	file := &unixNode{kind: kindFile}
	for _, c := range children {
		file.links = append(file.links, unixLink{cid: c.cid, stored: c.stored})
		file.blockSizes = append(file.blockSizes, c.bytes)
		all.bytes += c.bytes
		all.stored += c.stored
	}
	file.fileSize = all.bytes
	block := file.encode()
	all.stored += uint64(len(block))
	var err error
	all.cid, err = p.block(ctx, ipld.DagPB, block)
	return all, err
}

// entry is a file or directory inside a directory.
type entry struct {
	name string
	node node
}

// directory writes a directory. A large one is a tree of nodes by the hash of names.
func (p *packer) directory(ctx context.Context, entries []entry) (node, error) {
	links := make([]unixLink, 0, len(entries))
	for _, e := range entries {
		links = append(links, unixLink{e.name, e.node.cid, e.node.stored})
	}
	blocks, root, err := encodeDirectory(links)
	if err != nil {
		return node{}, err
	}
	slices.SortFunc(blocks, bytes.Compare)
	for _, b := range blocks {
		if _, err := p.block(ctx, ipld.DagPB, b); err != nil {
			return node{}, err
		}
	}
	return root, nil
}

// block writes a block, unless it is in a shard already.
func (p *packer) block(ctx context.Context, codec uint64, data []byte) (ipld.CID, error) {
	digest := sha256.Sum256(data)
	c := ipld.NewCID(codec, digest)
	if _, seen := p.seen[digest]; seen {
		return c, nil
	}
	head := ipld.AppendCARSection(nil, c, len(data))
	if p.shard != nil && p.shard.Size+int64(len(head)+len(data)) > p.max {
		if err := p.flush(ctx); err != nil {
			return "", err
		}
	}
	if p.shard == nil {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		var err error
		if p.shard, err = newShardFile(p.scratch, p.next); err != nil {
			return "", diskError(err)
		}
	}
	if err := p.shard.write(head, data, c.Hash()); err != nil {
		return "", diskError(err)
	}
	p.seen[digest] = struct{}{}
	return c, nil
}

// flush ends the shard that is being written, if there is one, and hands it over.
func (p *packer) flush(ctx context.Context) error {
	if p.shard == nil {
		return nil
	}
	s := p.shard
	defer p.close()
	if err := s.w.Flush(); err != nil {
		return diskError(err)
	}
	s.Digest = [sha256.Size]byte(s.hash.Sum(nil))
	err := p.done(ctx, s.Shard, func() (io.ReadCloser, error) {
		return section{io.NewSectionReader(s.file, 0, s.Size)}, nil
	})
	p.next++
	return err
}

// close removes a shard that was not handed over.
func (p *packer) close() {
	if p.shard != nil {
		_ = p.shard.file.Close()
		p.shard = nil
	}
}

// section is a shard that is being read. It can seek, so a failed request can be repeated.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// shardFile is a shard that is being written. Its file has no name, so nothing is left of it when weir
// is killed.
type shardFile struct {
	Shard
	file *os.File
	hash hash.Hash
	w    *bufio.Writer
}

func newShardFile(dir string, number int) (*shardFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "shard-*.car")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &shardFile{Shard: Shard{Number: number, Size: int64(len(carHeader))}, file: f, hash: sha256.New()}
	s.w = bufio.NewWriterSize(io.MultiWriter(f, s.hash), 256<<10)
	_, err = s.w.Write(carHeader)
	return s, err
}

func (s *shardFile) write(head, data, hash []byte) error {
	if _, err := s.w.Write(head); err != nil {
		return err
	}
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	s.Blocks = append(s.Blocks, weir.IPFSBlock{
		Hash: hash, Shard: s.Number, Offset: s.Size + int64(len(head)), Size: int64(len(data)),
	})
	s.Size += int64(len(head) + len(data))
	return nil
}

// diskError returns an error of the scratch folder with its kind.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return weir.Wrap(weir.Full, err, "the disk is full")
	}
	return fmt.Errorf("write shard: %w", err)
}

// sha256Of returns the digest in a multihash, which must be a SHA-256.
func sha256Of(hash []byte) ([sha256.Size]byte, error) {
	if len(hash) != 2+sha256.Size || hash[0] != ipld.SHA256 || hash[1] != sha256.Size {
		return [sha256.Size]byte{}, fmt.Errorf("%x is not the multihash of a SHA-256", hash)
	}
	return [sha256.Size]byte(hash[2:]), nil
}
