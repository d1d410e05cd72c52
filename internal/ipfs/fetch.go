package ipfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ipfs/boxo/blockservice"
	bsfetcher "github.com/ipfs/boxo/fetcher/impl/blockservice"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	ipfspath "github.com/ipfs/boxo/path"
	"github.com/ipfs/boxo/path/resolver"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-unixfsnode"
	dagpb "github.com/ipld/go-codec-dagpb"

	"weir/internal/blob"
	"weir/internal/guard"
	"weir/internal/weir"
)

// A Source reads files on IPFS and verifies every block against its hash: from local uploads first,
// then from gateways, which have to serve blocks (trustless gateways). It is safe for concurrent use.
type Source struct {
	Blocks   *Blocks                                        // local uploads; nil = none
	May      func(ctx context.Context, upload string) error // which of them may be read
	Gateways blob.Gateways
	Guard    *guard.Guard

	mu    sync.Mutex
	nodes map[cid.Cid][]byte // that were read, so that the files of a directory don't need them again
}

// Bounds of a file on IPFS.
const (
	maxFileDepth  = 16
	fileSizeLimit = 1 << 50
)

const (
	keptNodes = 64        // in memory
	keptNode  = 512 << 10 // size of the largest of them
	carSkip   = 16        // blocks of a CAR in a row that are not needed
)

// rawType is the media type of blocks.
const rawType = "application/vnd.ipld.raw"

// Open finds a file by the CID of a directory or a file, and a path. It is the IPFS function of
// blob.Fetcher.
func (s *Source) Open(ctx context.Context, id, path string) (blob.Content, error) {
	root, err := cid.Decode(id)
	if err != nil {
		return nil, weir.Errorf(weir.Invalid, "%s is not an address on IPFS", weir.Shorten(id, 100))
	}
	f := &remoteFile{source: s, name: "ipfs://" + weir.Shorten(id, 100)}
	if f.root, err = s.resolve(ctx, f, root, path); err != nil {
		return nil, err
	}
	data, err := f.block(ctx, f.root, nil)
	if err != nil {
		return nil, err
	}
	n, err := parseNode(f.root, data)
	if err != nil {
		return nil, err
	}
	f.size = n.size
	return f, nil
}

// resolve returns the CID of a path below a directory.
func (s *Source) resolve(ctx context.Context, f *remoteFile, root cid.Cid, path string) (cid.Cid, error) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(names) == 0 {
		return root, nil
	}
	p, err := ipfspath.NewPathFromSegments(append([]string{ipfspath.IPFSNamespace, root.String()}, names...)...)
	if err != nil {
		return cid.Undef, weir.Errorf(weir.Invalid, "the path of the source can't be read")
	}
	fixed, err := ipfspath.NewImmutablePath(p)
	if err != nil {
		return cid.Undef, weir.Errorf(weir.Invalid, "the path of the source can't be read")
	}
	var failed error // of a block: the library does not keep its kind
	config := bsfetcher.NewFetcherConfig(blockservice.New(readStore{get: func(ctx context.Context, c cid.Cid) ([]byte, error) {
		data, err := f.block(ctx, c, nil)
		failed = errors.Join(failed, err)
		return data, err
	}}, nil))
	config.PrototypeChooser = dagpb.AddSupportToChooser(bsfetcher.DefaultPrototypeChooser)
	at, rest, err := resolver.NewBasicResolver(config.WithReifier(unixfsnode.Reify)).ResolveToLastNode(ctx, fixed)
	switch {
	case failed != nil:
		return cid.Undef, failed
	case err != nil || len(rest) > 0:
		return cid.Undef, weir.Wrap(weir.Invalid, err, "there is no file %q in the directory %s on IPFS", weir.Shorten(path, 200), root)
	}
	return at, nil
}

// remoteFile is a file on IPFS.
type remoteFile struct {
	source  *Source
	name    string // for people
	root    cid.Cid
	size    int64
	current atomic.Int64 // number of the gateway to ask first
}

func (f *remoteFile) String() string { return f.name }

func (f *remoteFile) Size() int64 { return f.size }

// Open returns length bytes from offset on.
func (f *remoteFile) Open(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || length < 0 || offset > f.size || length > f.size-offset {
		return nil, weir.Errorf(weir.Invalid, "%s has %d bytes", f.name, f.size)
	}
	return &fileReader{
		ctx: ctx, file: f, stream: &carStream{file: f, from: offset, to: offset + length},
		at: offset, end: offset + length, next: []child{{cid: f.root, size: f.size}},
	}, nil
}

// child is a part of a file that is not read yet.
type child struct {
	cid         cid.Cid
	start, size int64
	depth       int
}

// fileReader reads a range of a file, in order.
type fileReader struct {
	ctx     context.Context // of Open: a Read has no context of its own
	file    *remoteFile
	stream  *carStream
	at, end int64
	next    []child // a stack
	buffer  []byte  // bytes from at on
}

func (r *fileReader) Close() error { return r.stream.close() }

func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.buffer) == 0 {
		if r.at >= r.end {
			return 0, io.EOF
		}
		if len(r.next) == 0 {
			return 0, weir.Errorf(weir.Invalid, "%s is shorter than its description", r.file.name)
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
	data, err := r.file.block(r.ctx, c.cid, r.stream)
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
	start := c.start + int64(len(n.data))
	if start > r.at {
		r.buffer = n.data[r.at-c.start:]
		r.buffer = r.buffer[:min(int64(len(r.buffer)), r.end-r.at)]
	}
	first := len(r.next)
	for _, below := range n.children {
		r.next = append(r.next, child{below.cid, start, below.size, c.depth + 1})
		start += below.size
	}
	for i, j := first, len(r.next)-1; i < j; i, j = i+1, j-1 {
		r.next[i], r.next[j] = r.next[j], r.next[i]
	}
	return nil
}

// fileNode is a block of a file: bytes, and then the parts below.
type fileNode struct {
	data     []byte
	children []child
	size     int64
}

// parseNode parses a block of a file, which anybody may have made.
func parseNode(c cid.Cid, block []byte) (fileNode, error) {
	if c.Type() == cid.Raw {
		return fileNode{data: block, size: int64(len(block))}, nil
	}
	bad := func(why string) (fileNode, error) {
		return fileNode{}, notFile(c, why)
	}
	node, err := merkledag.DecodeProtobuf(block)
	if err != nil {
		return bad("it can't be decoded")
	}
	u, err := unixfs.FSNodeFromBytes(node.Data())
	if err != nil {
		return bad("it can't be decoded")
	}
	switch u.Type() {
	case unixfs.TFile, unixfs.TRaw:
	case unixfs.TDirectory, unixfs.THAMTShard:
		return bad("it is a directory; add the path of a file in it")
	default:
		return bad("it is of another kind")
	}
	links := node.Links()
	if len(links) != u.NumChildren() {
		return bad("its links have no sizes")
	}
	n := fileNode{data: u.Data(), size: int64(len(u.Data())), children: make([]child, 0, len(links))}
	for i, l := range links {
		size := u.BlockSize(i)
		if size > fileSizeLimit || n.size > fileSizeLimit {
			return bad("it is too large")
		}
		n.children = append(n.children, child{cid: l.Cid, size: int64(size)})
		n.size += int64(size)
	}
	if uint64(n.size) != u.FileSize() {
		return bad("its parts do not have its size")
	}
	return n, nil
}

func notFile(c cid.Cid, why string) error {
	return weir.Errorf(weir.Invalid, "%s on IPFS is not a file: %s", c, why)
}

// block returns a verified block: a local one, or the next of the stream, or from any gateway.
func (f *remoteFile) block(ctx context.Context, c cid.Cid, stream *carStream) ([]byte, error) {
	_, inline, err := digestOf(c)
	if err != nil || c.Type() != cid.Raw && c.Type() != cid.DagProtobuf {
		return nil, weir.Errorf(weir.Invalid, "%s can't be read: only files and directories with SHA-256 hashes are", weir.Shorten(c.String(), 100))
	}
	if inline != nil {
		return inline, nil
	}
	s := f.source
	if data := s.kept(c); data != nil {
		return data, nil
	}
	if s.Blocks != nil {
		if data, err := s.Blocks.get(ctx, c, s.May); err == nil {
			return data, nil
		}
	}
	var data []byte
	if stream != nil {
		data = stream.find(ctx, c)
	}
	if data == nil {
		if data, err = f.ask(ctx, c); err != nil {
			return nil, err
		}
	}
	s.keep(c, data)
	return data, nil
}

func (s *Source) kept(c cid.Cid) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[c]
}

func (s *Source) keep(c cid.Cid, data []byte) {
	if c.Type() != cid.DagProtobuf || len(data) > keptNode {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil || len(s.nodes) >= keptNodes {
		s.nodes = map[cid.Cid][]byte{}
	}
	s.nodes[c] = data
}

// ask gets a block from the gateways in turn.
func (f *remoteFile) ask(ctx context.Context, c cid.Cid) ([]byte, error) {
	urls := f.source.Gateways.OnIPFS(c.String())
	if len(urls) == 0 {
		return nil, weir.Errorf(weir.Unavailable, "this server has no gateway to IPFS that can be used")
	}
	kind := weir.Invalid
	var failed []error
	var sentences []string
	for range urls {
		i := f.current.Load()
		data, err := f.raw(ctx, urls[i%int64(len(urls))], c)
		if err == nil {
			return data, nil
		}
		f.current.CompareAndSwap(i, i+1) // also when it did not answer, so that the next try begins with another
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if weir.Retriable(err) {
			kind = weir.Upstream
		}
		if e, ok := errors.AsType[*weir.Error](err); ok {
			sentences = append(sentences, e.Messages...)
		}
		failed = append(failed, err)
	}
	return nil, weir.Wrap(kind, errors.Join(failed...), "%s", strings.Join(sentences, "; "))
}

// raw gets a block from a gateway.
func (f *remoteFile) raw(ctx context.Context, at string, c cid.Cid) ([]byte, error) {
	resp, host, err := f.get(ctx, at, url.Values{"format": {"raw"}}, rawType)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBlock+1))
	if err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the connection to %s failed", host)
	}
	if hash, err := c.Prefix().Sum(data); err == nil && hash.Equals(c) {
		return data, nil
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), rawType) {
		return nil, weir.Errorf(weir.Invalid, "%s serves files, but not the blocks that are needed to verify them; use a trustless gateway", host)
	}
	return nil, weir.Errorf(weir.Invalid, "%s sent bytes that do not have the hash in %s", host, c)
}

// get sends a request to a gateway.
func (f *remoteFile) get(ctx context.Context, at string, query url.Values, accept string) (resp *http.Response, host string, err error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, "", weir.Errorf(weir.Unavailable, "the URL of a gateway to IPFS can't be read")
	}
	q := u.Query()
	for name, values := range query {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("User-Agent", "weir")
	r.Header.Set("Accept", accept)
	host = u.Hostname()
	resp, err = f.source.Guard.Client(0).Do(r)
	if blocked, ok := errors.AsType[*guard.BlockedError](err); ok {
		return nil, host, weir.Errorf(weir.Invalid, "%s", blocked.Error())
	}
	if err != nil {
		return nil, host, weir.Wrap(weir.Upstream, err, "the connection to %s failed", host)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		kind := weir.Invalid
		if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
			kind = weir.Upstream
		}
		return nil, host, weir.Errorf(kind, "%s answered %d %s", host, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return resp, host, nil
}

// carStream is a CAR with the blocks of a range of a file, in the order in which they are read. It
// saves a request for each block. Without it everything works too, so its errors do not matter.
type carStream struct {
	file     *remoteFile
	from, to int64
	begun    bool
	body     io.ReadCloser
	reader   *carReader
}

// find returns a block of the stream, or nil if it does not come soon.
func (s *carStream) find(ctx context.Context, c cid.Cid) []byte {
	if !s.begun {
		s.begun = true
		s.begin(ctx)
	}
	for range carSkip {
		if s.reader == nil {
			return nil
		}
		b, err := s.reader.next()
		if err != nil {
			_ = s.close()
			return nil
		}
		if b.Cid().Equals(c) {
			return b.RawData()
		}
	}
	_ = s.close()
	return nil
}

func (s *carStream) begin(ctx context.Context) {
	urls := s.file.source.Gateways.OnIPFS(s.file.root.String())
	if len(urls) == 0 || s.file.root.Type() == cid.Raw {
		return
	}
	// A file that has a block twice has it twice in the CAR.
	query := url.Values{
		"format": {"car"}, "dag-scope": {"entity"}, "entity-bytes": {fmt.Sprintf("%d:%d", s.from, s.to-1)}, "car-dups": {"y"}, "car-order": {"dfs"},
	}
	at := urls[s.file.current.Load()%int64(len(urls))]
	resp, _, err := s.file.get(ctx, at, query, carType+"; version=1; order=dfs; dups=y")
	if err != nil {
		return
	}
	s.body = resp.Body
	s.reader, err = newCARReader(resp.Body)
	if err != nil {
		_ = s.close()
	}
}

func (s *carStream) close() error {
	s.reader = nil
	if s.body == nil {
		return nil
	}
	body := s.body
	s.body = nil
	return body.Close()
}
