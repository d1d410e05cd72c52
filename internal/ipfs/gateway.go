package ipfs

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/gateway"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/boxo/namesys"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	logging "github.com/ipfs/go-log/v2"
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/weir"
)

// Bounds of a request to the gateway. Whoever can store bytes can store any graph, by making them look
// like nodes: a node may link the same block many thousand times, and such nodes may be nested, so that
// a few bytes make endless work. That may send nothing, because in a CAR each block is sent once.
const (
	// maxDepth is how deep a graph may be for a CAR, which needs memory for each level. Files have a
	// depth of at most 4, and directories that of their path.
	maxDepth = 32
	// maxNode is the size of a node, and maxDocument that of a block in another codec. The largest node
	// that weir makes is a directory of 360 kB. Decoded they need ten to fifty times as much.
	maxNode     = 512 << 10
	maxDocument = 64 << 10
	// maxLevels and maxLinks bound the nodes of one file. Its reader keeps something for each link of each
	// level: a file of 30 levels with 7,000 links each needs 100 MB. Files have at most nodeLinks links
	// in a node, and a depth of 4.
	maxLevels = 8
	maxLinks  = nodeLinks
	// maxIdleReads is how many blocks are read without sending a byte, and maxIdleNodes the size of the
	// nodes among them. Before it sends something, a listing reads all nodes of a directory: 10,000 for 43,000
	// names.
	maxIdleReads = 1 << 14
	maxIdleNodes = 8 << 20
	// recentNodes is how many nodes are kept for a request, because the library reads those of the path
	// again and again.
	recentNodes = 16
	// maxDuration is how long a response may take.
	maxDuration = 24 * time.Hour
)

// NewGateway returns a handler of /ipfs/<cid>/<path> for local uploads: a path gateway and a trustless
// gateway as specified by specs.ipfs.tech. It has no network: neither IPNS nor DNSLink, and no blocks
// of other nodes.
//
// may returns nil if the request of the context may read the upload, else the error to answer with. It
// is asked once for each upload and request, and calls Private for uploads that are not for everybody.
//
// Memory is bounded: responses are made block by block as the client reads, and a request holds one
// node for each level of the graph, the recent nodes and about ten leaves that are read ahead. It ends
// with the client's connection.
func NewGateway(b *Blocks, may func(ctx context.Context, upload string) error) http.Handler {
	// The libraries write to standard error, with one configuration for the whole process.
	logging.SetupLogging(logging.Config{Level: logging.LevelFatal})

	backend, err := gateway.NewBlocksBackend(
		blockservice.New(readBlocks(b), nil),
		gateway.WithMaxTraversalDepth(maxDepth),
		// Without a name system the library makes one that asks the DNS. Nothing calls it: paths
		// other than /ipfs/ are refused.
		gateway.WithNameSystem(struct{ namesys.NameSystem }{}),
	)
	if err != nil {
		panic(err) // it depends on the options above only
	}
	inner := gateway.NewHandler(gateway.Config{
		DeserializedResponses: true,
		NoDNSLink:             true,
		DisableHTMLErrors:     true,
		MaxRequestDuration:    maxDuration,
		MetricsRegistry:       prometheus.NewRegistry(), // else the one of the process
	}, backend)
	return gateway.NewHeaders(nil).ApplyCors().Wrap(&server{b, may, inner})
}

type server struct {
	blocks *Blocks
	may    func(ctx context.Context, upload string) error
	next   http.Handler
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox") // an HTML file in an upload has no rights here
	rest, ok := strings.CutPrefix(r.URL.Path, "/ipfs/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	v := &visit{ask: s.may, known: map[string]error{}, recent: map[cid.Cid][]byte{}, depths: map[cid.Cid]int{}}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	a := &answer{ResponseWriter: w, visit: v, path: r.URL.Path}
	// Some answers need no block, like that to If-None-Match: without this, they would need no right.
	// The library refuses what is not a CID.
	name, _, _ := strings.Cut(rest, "/")
	if root, err := cid.Decode(name); err == nil && r.Method != http.MethodOptions {
		if err := s.blocks.check(r.Context(), root, v.may); err != nil {
			e := statusError(err)
			if weir.IsNotFound(err) && r.Header.Get("Cache-Control") == "only-if-cached" {
				e.StatusCode = http.StatusPreconditionFailed // what the specification wants
			}
			http.Error(a, e.Error(), e.StatusCode)
			return
		}
	}
	s.next.ServeHTTP(a, r)
}

// statusError returns an error for the library, which answers with its status and text.
func statusError(err error) *gateway.ErrorStatusCode {
	text := "internal error"
	if e, ok := errors.AsType[*weir.Error](err); ok {
		text = strings.Join(e.Messages, "; ")
	}
	return gateway.NewErrorStatusCode(errors.New(text), weir.KindOf(err).Status())
}

// Private marks the response to the request of a context as not for everybody: caches that several
// people use don't keep it.
func Private(ctx context.Context) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.private.Store(true)
	}
}

type visitKey struct{}

// visit is what the gateway knows of a request.
type visit struct {
	ask     func(ctx context.Context, upload string) error
	private atomic.Bool

	mu     sync.Mutex
	known  map[string]error   // results of ask
	recent map[cid.Cid][]byte // nodes
	reads  int                // blocks since the last byte was sent
	nodes  int                // bytes of nodes since then
	depths map[cid.Cid]int    // how far below the root of a file nodes are
}

// sent notes that a byte was sent.
func (v *visit) sent() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads, v.nodes = 0, 0
}

// begin returns a node that was read already, or nil. It returns an error if the request may read no
// more.
func (v *visit) begin(c cid.Cid) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reads++; v.reads > maxIdleReads || v.nodes > maxIdleNodes {
		return nil, weir.Errorf(weir.Refused, "this content needs too many blocks; request them one by one with ?format=raw")
	}
	data := v.recent[c]
	if data == nil {
		return nil, nil
	}
	return data, v.file(c, data)
}

// end notes that a block was read.
func (v *visit) end(c cid.Cid, data []byte) error {
	limit := maxDocument
	switch c.Type() {
	case cid.Raw:
		return nil
	case cid.DagProtobuf:
		limit = maxNode
	}
	if len(data) > limit {
		return weir.Errorf(weir.Refused, "%s is too large for a node: it has %d bytes, and at most %d are read", c, len(data), limit)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.file(c, data); err != nil {
		return err
	}
	v.nodes += len(data)
	if len(v.recent) >= recentNodes {
		clear(v.recent)
	}
	v.recent[c] = data
	return nil
}

// file returns an error if a node belongs to a file that is too deep, or has too many links.
func (v *visit) file(c cid.Cid, data []byte) error {
	if c.Type() != cid.DagProtobuf {
		return nil
	}
	node, err := merkledag.DecodeProtobuf(data)
	if err != nil {
		return nil // the library says so
	}
	if f, err := unixfs.FSNodeFromBytes(node.Data()); err != nil || f.Type() != unixfs.TFile {
		return nil
	}
	depth := v.depths[c] + 1
	if len(node.Links()) > maxLinks || depth > maxLevels || len(v.depths) > maxIdleReads {
		return weir.Errorf(weir.Refused, "%s is not a file that can be read here: its nodes may have %d links and %d levels; request them one by one with ?format=raw",
			c, maxLinks, maxLevels)
	}
	for _, l := range node.Links() {
		if l.Cid.Type() != cid.Raw {
			v.depths[l.Cid] = max(v.depths[l.Cid], depth)
		}
	}
	return nil
}

func (v *visit) may(ctx context.Context, upload string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err, known := v.known[upload]
	if !known {
		err = v.ask(ctx, upload)
		v.known[upload] = err
	}
	return err
}

// contentTypes are those of media, which must not depend on the files of the operating system.
var contentTypes = map[string]string{
	".m3u8": "application/vnd.apple.mpegurl",
	".mpd":  "application/dash+xml",
	".ts":   "video/mp2t",
	".mp4":  "video/mp4",
	".m4s":  "video/iso.segment",
	".m4a":  "audio/mp4",
	".aac":  "audio/aac",
	".vtt":  "text/vtt; charset=utf-8",
	".jpg":  "image/jpeg",
	".png":  "image/png",
}

// answer corrects the headers of the library.
type answer struct {
	http.ResponseWriter
	visit  *visit
	path   string
	status int
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
		h := a.Header()
		switch {
		case status >= http.StatusBadRequest:
			h.Set("Cache-Control", "no-store") // the library leaves that of a success
			h.Del("Etag")
		case a.visit.private.Load():
			h.Set("Cache-Control", "private, no-cache")
		}
		known := contentTypes[strings.ToLower(path.Ext(a.path))]
		success := status == http.StatusOK || status == http.StatusPartialContent
		if known != "" && success && !strings.HasPrefix(h.Get("Content-Type"), "application/vnd.ipld.") {
			h.Set("Content-Type", known)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	n, err := a.ResponseWriter.Write(p)
	if n > 0 {
		a.visit.sent()
	}
	return n, err
}

// readBlocks is Blocks for the library. Blocks are read with the rights of the request in the context.
func readBlocks(b *Blocks) readStore {
	return readStore{func(ctx context.Context, c cid.Cid) ([]byte, error) {
		v, ok := ctx.Value(visitKey{}).(*visit)
		if !ok {
			return nil, errors.New("a block was asked for without a request")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		data, err := v.begin(c)
		if err == nil && data == nil {
			if data, err = b.get(ctx, c, v.may); err == nil {
				err = v.end(c, data)
			}
		}
		if err != nil && !weir.IsNotFound(err) && ctx.Err() == nil {
			return nil, statusError(err)
		}
		return data, err
	}}
}

// readStore is a function as a block store of the library.
type readStore struct {
	get func(ctx context.Context, c cid.Cid) ([]byte, error)
}

func (s readStore) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	data, err := s.get(ctx, c)
	if weir.IsNotFound(err) {
		return nil, format.ErrNotFound{Cid: c}
	}
	if err != nil {
		return nil, err
	}
	return blocks.NewBlockWithCid(data, c)
}

func (s readStore) Has(ctx context.Context, c cid.Cid) (bool, error) {
	_, err := s.Get(ctx, c)
	if format.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (s readStore) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	b, err := s.Get(ctx, c)
	if err != nil {
		return 0, err
	}
	return len(b.RawData()), nil
}

var errReadOnly = errors.New("this store can only be read")

func (readStore) Put(context.Context, blocks.Block) error       { return errReadOnly }
func (readStore) PutMany(context.Context, []blocks.Block) error { return errReadOnly }
func (readStore) DeleteBlock(context.Context, cid.Cid) error    { return errReadOnly }

func (readStore) AllKeysChan(context.Context) (<-chan cid.Cid, error) { return nil, errReadOnly }
