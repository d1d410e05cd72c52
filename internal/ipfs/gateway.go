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
	"github.com/ipfs/boxo/namesys"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	logging "github.com/ipfs/go-log/v2"
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/endpoint"
	"weir/internal/weir"
)

const (
	// maxDuration is how long a response may take.
	maxDuration = 24 * time.Hour
	// recentNodes is how many nodes are kept for a request, because the library reads those of the path
	// again and again.
	recentNodes = 16
)

// NewGateway returns a handler of /ipfs/<cid>/<path> for local uploads: a path gateway and a trustless
// gateway as specified by specs.ipfs.tech. It has no network: neither IPNS nor DNSLink, and no blocks
// of other nodes.
//
// may returns nil if the request of the context may read the upload, else the error to answer with. It
// is asked once for each upload and request, and calls Private for uploads that are not for everybody.
//
// Memory is bounded: responses are made block by block as the client reads, and a request holds one
// node for each level of the graph, the recent nodes and about ten leaves that are read ahead. Graphs
// are those that weir packed, so they have few levels; see Blocks. A request ends with the client's
// connection, also if it does not send anything.
func NewGateway(b *Blocks, may func(ctx context.Context, upload string) error) http.Handler {
	// The libraries write to standard error, with one configuration for the whole process.
	logging.SetupLogging(logging.Config{Level: logging.LevelFatal})

	backend, err := gateway.NewBlocksBackend(
		blockservice.New(readBlocks(b), nil),
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
	v := &visit{ask: s.may, known: map[string]error{}, recent: map[cid.Cid][]byte{}}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	out := &endpoint.Response{ResponseWriter: w}
	out.Edit = func(status int, first []byte) []byte {
		correct(out.Header(), status, v, r.URL.Path)
		return first
	}
	// Some answers need no block, like that to If-None-Match: without this, they would need no right.
	// The library refuses what is not a CID.
	name, _, _ := strings.Cut(rest, "/")
	if root, err := cid.Decode(name); err == nil && r.Method != http.MethodOptions {
		if err := s.check(r.Context(), v, root); err != nil {
			e := statusError(err)
			if weir.IsNotFound(err) && r.Header.Get("Cache-Control") == "only-if-cached" {
				e.StatusCode = http.StatusPreconditionFailed // what the specification wants
			}
			http.Error(out, e.Error(), e.StatusCode) // it has a body, so it has begun
			return
		}
	}
	s.next.ServeHTTP(out, r)
	out.End()
}

// check returns nil if the root of a path is here and may be read.
func (s *server) check(ctx context.Context, v *visit, root cid.Cid) error {
	if root.Type() == cid.Raw {
		return s.blocks.check(ctx, root, v.may)
	}
	// With its bytes it is known whether it is a node. They are needed anyway.
	data, err := s.blocks.get(ctx, root, v.may)
	if err == nil {
		v.keep(root, data)
	}
	return err
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
}

// node returns a node that was read already, or nil.
func (v *visit) node(c cid.Cid) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.recent[c]
}

// keep keeps a block if it is a node.
func (v *visit) keep(c cid.Cid, data []byte) {
	if c.Type() == cid.Raw {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.recent) >= recentNodes {
		clear(v.recent)
	}
	v.recent[c] = data
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

// correct corrects the headers of the library.
func correct(h http.Header, status int, v *visit, requested string) {
	switch {
	case status >= http.StatusBadRequest:
		endpoint.Never.Set(h) // the library leaves that of a success
		h.Del("Etag")
	case v.private.Load():
		endpoint.PrivateRevalidate.Set(h)
	}
	known := contentTypes[strings.ToLower(path.Ext(requested))]
	success := status == http.StatusOK || status == http.StatusPartialContent
	if known != "" && success && !strings.HasPrefix(h.Get("Content-Type"), "application/vnd.ipld.") {
		h.Set("Content-Type", known)
	}
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
		if data := v.node(c); data != nil {
			return data, nil
		}
		data, err := b.get(ctx, c, v.may)
		if err == nil {
			v.keep(c, data)
		} else if !weir.IsNotFound(err) && ctx.Err() == nil {
			err = statusError(err)
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
