package ipfs

import (
	"context"
	"fmt"
	"io"
	"sync"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// Bounds of a file on IPFS.
const (
	maxFileDepth  = 16
	fileSizeLimit = 1 << 50
)

// fileNode is a block of a file: bytes, and then the parts below.
type fileNode struct {
	data     []byte
	children []child
	size     int64
}

// child is a part of a file that is not read yet.
type child struct {
	cid         ipld.CID
	start, size int64
	depth       int
	early       chan earlyBlock // nil if it is read when it is needed
}

// earlyBlock is a block that was read before it is needed.
type earlyBlock struct {
	data []byte
	err  error
}

// parseNode parses a block of a file, which anybody may have made.
func parseNode(c ipld.CID, block []byte) (fileNode, error) {
	if c.Codec() == ipld.Raw {
		return fileNode{data: block, size: int64(len(block))}, nil
	}
	node, err := decodeNode(block)
	if err != nil {
		return fileNode{}, notFile(c, err.Error())
	}
	return node.file(c)
}

// file returns the node as one of a file.
func (n *unixNode) file(c ipld.CID) (fileNode, error) {
	bad := func(why string) (fileNode, error) {
		return fileNode{}, notFile(c, why)
	}
	switch n.kind {
	case kindFile, kindBytes:
	case kindDirectory, kindShard:
		return bad("it is a directory; add the path of a file in it")
	default:
		return bad("it is neither a file nor a directory")
	}
	if len(n.links) != len(n.blockSizes) {
		return bad("its links have no sizes")
	}
	f := fileNode{data: n.data, size: int64(len(n.data)), children: make([]child, 0, len(n.links))}
	for i, l := range n.links {
		size := n.blockSizes[i]
		if size > fileSizeLimit || f.size > fileSizeLimit {
			return bad("it is too large")
		}
		f.children = append(f.children, child{cid: l.cid, size: int64(size)})
		f.size += int64(size)
	}
	if uint64(f.size) != n.fileSize {
		return bad("the sizes of its blocks do not add up to its size")
	}
	return f, nil
}

func notFile(c ipld.CID, why string) error {
	return weir.Errorf(weir.Invalid, "%s on IPFS is not a file: %s", c, why)
}

// fileReader reads a range of a file, in order. It starts goroutines if it reads ahead, so it must be
// closed.
type fileReader struct {
	ctx     context.Context
	get     getBlock
	at, end int64
	next    []child // a stack
	buffer  []byte  // bytes from at on

	ahead   int   // how many blocks are read before they are needed
	aheadTo int64 // where that ends
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

// open returns a reader of the bytes from one place to another.
func (n fileNode) open(ctx context.Context, get getBlock, from, to int64) *fileReader {
	ctx, cancel := context.WithCancel(ctx)
	r := &fileReader{ctx: ctx, get: get, at: from, end: to, cancel: cancel}
	r.enter(n, 0, 0)
	return r
}

func (r *fileReader) Close() error {
	r.cancel()
	r.reading.Wait()
	return nil
}

func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.buffer) == 0 {
		if r.at >= r.end {
			return 0, io.EOF
		}
		if len(r.next) == 0 {
			return 0, weir.Errorf(weir.Invalid, "a file on IPFS is shorter than its metadata says")
		}
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buffer)
	r.buffer = r.buffer[n:]
	r.at += int64(n)
	return n, nil
}

// advance reads the next part, unless it is before the range.
func (r *fileReader) advance() error {
	c := r.next[len(r.next)-1]
	r.next = r.next[:len(r.next)-1]
	if c.start+c.size <= r.at {
		return nil
	}
	data, err := r.block(c)
	if err != nil {
		return err
	}
	n, err := parseNode(c.cid, data)
	if err != nil {
		return err
	}
	if n.size != c.size || c.depth > maxFileDepth {
		return notFile(c.cid, "its size is not the one in the node above, or it is nested too deeply")
	}
	r.enter(n, c.start, c.depth)
	return nil
}

// enter takes the bytes of a node, and puts what is below it on the stack.
func (r *fileReader) enter(n fileNode, start int64, depth int) {
	if start+int64(len(n.data)) > r.at {
		r.buffer = n.data[r.at-start:]
		r.buffer = r.buffer[:min(int64(len(r.buffer)), r.end-r.at)]
	}
	end := start + n.size
	for i := len(n.children) - 1; i >= 0; i-- {
		below := n.children[i]
		end -= below.size
		r.next = append(r.next, child{cid: below.cid, start: end, size: below.size, depth: depth + 1})
	}
}

// block returns the block of a part, and starts to read those after it.
func (r *fileReader) block(c child) ([]byte, error) {
	left := r.ahead
	for i := len(r.next) - 1; i >= 0 && left > 0 && r.next[i].start < r.aheadTo; i-- {
		left--
		if r.next[i].early == nil {
			id, early := r.next[i].cid, make(chan earlyBlock, 1)
			r.next[i].early = early
			r.reading.Go(func() {
				data, err := r.get(r.ctx, id)
				early <- earlyBlock{data, err}
			})
		}
	}
	if c.early == nil {
		return r.get(r.ctx, c.cid)
	}
	b := <-c.early
	return b.data, b.err
}

// seekable is a file that is opened where it is read.
type seekable struct {
	open func(from int64) *fileReader
	size int64

	at     int64
	head   []byte // the first bytes, if they were read before
	reader *fileReader
}

func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d", offset)
	}
	s.at = offset
	return offset, nil
}

func (s *seekable) Read(p []byte) (int, error) {
	if s.at < int64(len(s.head)) {
		n := copy(p, s.head[s.at:])
		s.at += int64(n)
		return n, nil
	}
	if s.reader == nil || s.reader.at != s.at {
		_ = s.Close()
		s.reader = s.open(s.at)
	}
	n, err := s.reader.Read(p)
	s.at += int64(n)
	return n, err
}

// readHead reads the first bytes, which are kept, and goes back to the first one.
func (s *seekable) readHead(size int) ([]byte, error) {
	head := make([]byte, min(int64(size), s.size))
	if _, err := io.ReadFull(s, head); err != nil {
		return nil, err
	}
	s.head, s.at = head, 0
	return head, nil
}

func (s *seekable) Close() error {
	if s.reader != nil {
		_ = s.reader.Close()
		s.reader = nil
	}
	return nil
}
