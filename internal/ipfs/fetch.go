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

	"weir/internal/blob"
	"weir/internal/guard"
	"weir/internal/ipld"
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
	nodes map[ipld.CID][]byte // that were read, so that the files of a directory don't need them again
}

const (
	keptNodes = 64        // in memory
	keptNode  = 512 << 10 // size of the largest of them
	carSkip   = 16        // blocks of a CAR in a row that are not needed

	carSectionLimit = maxBlock + 256 // a block with its CID
)

// rawType is the media type of blocks.
const rawType = "application/vnd.ipld.raw"

// Open finds a file by the CID of a directory or a file, and a path. It is the IPFS function of
// blob.Fetcher.
func (s *Source) Open(ctx context.Context, id, path string) (blob.Content, error) {
	root, err := ipld.ParseCID(id)
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
	if f.node, err = parseNode(f.root, data); err != nil {
		return nil, err
	}
	return f, nil
}

// resolve returns the CID of a path below a directory.
func (s *Source) resolve(ctx context.Context, f *remoteFile, root ipld.CID, path string) (ipld.CID, error) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	get := func(ctx context.Context, c ipld.CID) ([]byte, error) { return f.block(ctx, c, nil) }
	p, err := resolve(ctx, get, root, names)
	if _, missing := errors.AsType[*missingError](err); missing || errors.Is(err, errNode) {
		return "", weir.Wrap(weir.Invalid, err, "there is no file %q in the directory %s on IPFS", weir.Shorten(path, 200), root)
	}
	return p.last(), err
}

// remoteFile is a file on IPFS.
type remoteFile struct {
	source  *Source
	name    string // for people
	root    ipld.CID
	node    fileNode     // of the root
	current atomic.Int64 // number of the gateway to ask first
}

func (f *remoteFile) String() string { return f.name }

func (f *remoteFile) Size() int64 { return f.node.size }

// Open returns length bytes from offset on.
func (f *remoteFile) Open(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || length < 0 || offset > f.Size() || length > f.Size()-offset {
		return nil, weir.Errorf(weir.Invalid, "%s has %d bytes", f.name, f.Size())
	}
	car := &carReader{file: f, from: offset, to: offset + length}
	get := func(ctx context.Context, c ipld.CID) ([]byte, error) { return f.block(ctx, c, car) }
	return &remoteReader{f.node.open(ctx, get, offset, offset+length), car}, nil
}

// remoteReader reads a range of a file.
type remoteReader struct {
	*fileReader
	car *carReader
}

func (r *remoteReader) Close() error { return errors.Join(r.fileReader.Close(), r.car.close()) }

// block returns a verified block: a local one, or the next of the CAR, or from any gateway.
func (f *remoteFile) block(ctx context.Context, c ipld.CID, car *carReader) ([]byte, error) {
	_, inline, err := digestOf(c)
	if err != nil || c.Codec() != ipld.Raw && c.Codec() != ipld.DagPB {
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
	if car != nil {
		data = car.find(ctx, c)
	}
	if data == nil {
		if data, err = f.ask(ctx, c); err != nil {
			return nil, err
		}
	}
	s.keep(c, data)
	return data, nil
}

func (s *Source) kept(c ipld.CID) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[c]
}

func (s *Source) keep(c ipld.CID, data []byte) {
	if c.Codec() != ipld.DagPB || len(data) > keptNode {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil || len(s.nodes) >= keptNodes {
		s.nodes = map[ipld.CID][]byte{}
	}
	s.nodes[c] = data
}

// ask gets a block from the gateways in turn.
func (f *remoteFile) ask(ctx context.Context, c ipld.CID) ([]byte, error) {
	urls := f.source.Gateways.OnIPFS(c.String())
	if len(urls) == 0 {
		return nil, weir.Errorf(weir.Unavailable, "this server has no usable gateway to IPFS")
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
func (f *remoteFile) raw(ctx context.Context, at string, c ipld.CID) ([]byte, error) {
	resp, host, err := f.get(ctx, at, url.Values{"format": {"raw"}}, rawType)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBlock+1))
	if err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the connection to %s failed", host)
	}
	if c.Verify(data) {
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

// carReader is a CAR with the blocks of a range of a file, in the order in which they are read. It
// saves a request for each block. Without it everything works too, so its errors do not matter.
type carReader struct {
	file     *remoteFile
	from, to int64
	begun    bool
	body     io.ReadCloser
	reader   *ipld.CARReader
}

// find returns a block of the CAR, or nil if it does not come soon.
func (s *carReader) find(ctx context.Context, c ipld.CID) []byte {
	if !s.begun {
		s.begun = true
		s.request(ctx)
	}
	for range carSkip {
		if s.reader == nil {
			return nil
		}
		id, data, err := s.reader.Next()
		if err != nil || !id.Verify(data) {
			_ = s.close()
			return nil
		}
		if id == c {
			return data
		}
	}
	_ = s.close()
	return nil
}

func (s *carReader) request(ctx context.Context) {
	urls := s.file.source.Gateways.OnIPFS(s.file.root.String())
	if len(urls) == 0 || s.file.root.Codec() == ipld.Raw {
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
	s.reader, err = ipld.NewCARReader(resp.Body, carSectionLimit)
	if err != nil {
		_ = s.close()
	}
}

func (s *carReader) close() error {
	s.reader = nil
	if s.body == nil {
		return nil
	}
	body := s.body
	s.body = nil
	return body.Close()
}
