package ipfs

import (
	"cmp"
	"context"
	"errors"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/endpoint"
	"weir/internal/ipld"
	"weir/internal/weir"
)

const (
	// maxDuration is how long a response may take.
	maxDuration = 24 * time.Hour
	// recentNodes is how many nodes are kept for a request, because the root is read to find out
	// whether it may be read, and those of the path again for a CAR.
	recentNodes = 16
)

// NewGateway returns a handler of /ipfs/<cid>/<path> for local uploads: a path gateway and a trustless
// gateway as specified by specs.ipfs.tech. It has no network: neither IPNS nor DNSLink, and no blocks
// of other nodes.
//
// may returns nil if the request of the context may read the upload, else the error to answer with. It
// is asked once for each upload and request, and calls Private for uploads that are not for everybody.
//
// alone reports whether a request came to a host that serves nothing but the gateway. Elsewhere the
// content of an upload must not act as a part of the site: what could is sent as a download, without
// its type. See passive.
//
// Memory is bounded: responses are made block by block as the client reads, and a request holds one
// node for each level of the graph, the recent nodes and ten leaves that are read ahead. Graphs
// are those that weir packed, so they have few levels; see Blocks. A request ends with the client's
// connection, also if it does not send anything.
func NewGateway(b *Blocks, may func(ctx context.Context, upload string) error, alone func(*http.Request) bool) http.Handler {
	return &server{b, may, alone}
}

type server struct {
	blocks *Blocks
	may    func(ctx context.Context, upload string) error
	alone  func(*http.Request) bool
}

// methods are those that a gateway has.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), maxDuration)
	defer cancel()
	h := w.Header()
	h["Access-Control-Allow-Origin"] = []string{"*"}
	h["Access-Control-Allow-Methods"] = methods
	h["Access-Control-Allow-Headers"] = []string{"Content-Type", "Range", "User-Agent", "X-Requested-With"}
	h["Access-Control-Expose-Headers"] = []string{"Content-Length", "Content-Range", "Ipfs-Uri", "X-Chunked-Output", "X-Ipfs-Roots", "X-Stream-Output"}
	h.Set("X-Content-Type-Options", "nosniff")
	// An upload has no rights here, not even those of another upload.
	policy, alone := "sandbox", s.alone(r)
	if alone {
		policy = "sandbox allow-scripts"
	}
	h.Set("Content-Security-Policy", policy)
	if !strings.HasPrefix(r.URL.Path, "/ipfs/") {
		http.NotFound(w, r)
		return
	}
	q := &requestState{alone: alone, ask: s.may, known: map[string]error{}, recent: map[ipld.CID][]byte{}}
	r = r.WithContext(context.WithValue(ctx, requestKey{}, q))
	out := &endpoint.Response{ResponseWriter: w}
	out.Edit = func(status int, first []byte) []byte {
		correct(h, status, q)
		return first
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if err := s.serve(out, r, q); err != nil {
			e := statusOf(err)
			http.Error(out, e.text, e.status)
		}
	case http.MethodOptions:
		h["Allow"] = methods
	default:
		h["Allow"] = methods
		http.Error(out, "Method "+r.Method+" not allowed: read only access", http.StatusMethodNotAllowed)
	}
	out.End()
}

// check returns nil if the root of a path is here and may be read.
func (s *server) check(ctx context.Context, q *requestState, root ipld.CID) error {
	if root.Codec() == ipld.Raw {
		return s.blocks.check(ctx, root, q.may)
	}
	// With its bytes it is known whether it is a node. They are needed anyway.
	data, err := s.blocks.get(ctx, root, q.may)
	if err == nil {
		q.keep(root, data)
	}
	return err
}

// get returns a block with the rights of a request.
func (s *server) get(q *requestState) getBlock {
	return func(ctx context.Context, c ipld.CID) ([]byte, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if data := q.node(c); data != nil {
			return data, nil
		}
		data, err := s.blocks.get(ctx, c, q.may)
		if err == nil {
			q.keep(c, data)
		}
		return data, err
	}
}

// statusError is an error with a status that no kind of error has.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// statusOf returns status and text of an error.
func statusOf(err error) *statusError {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e
	}
	text := "internal error"
	if e, ok := errors.AsType[*weir.Error](err); ok {
		text = strings.Join(e.Messages, "; ")
	}
	return &statusError{weir.KindOf(err).Status(), text}
}

// Private marks the response to the request of a context as not for everybody: caches that several
// people use don't keep it.
func Private(ctx context.Context) {
	if q, ok := ctx.Value(requestKey{}).(*requestState); ok {
		q.private.Store(true)
	}
}

type requestKey struct{}

// requestState is what the gateway knows of a request.
type requestState struct {
	alone   bool // this host serves nothing else
	ask     func(ctx context.Context, upload string) error
	private atomic.Bool

	mu     sync.Mutex
	known  map[string]error    // results of ask
	recent map[ipld.CID][]byte // nodes
}

// node returns a node that was read already, or nil.
func (q *requestState) node(c ipld.CID) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.recent[c]
}

// keep keeps a block if it is a node.
func (q *requestState) keep(c ipld.CID, data []byte) {
	if c.Codec() == ipld.Raw {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.recent) >= recentNodes {
		clear(q.recent)
	}
	q.recent[c] = data
}

func (q *requestState) may(ctx context.Context, upload string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err, known := q.known[upload]
	if !known {
		err = q.ask(ctx, upload)
		q.known[upload] = err
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

// mediaType returns the type that the name of a file says; "" = none.
func mediaType(name string) string {
	extension := strings.ToLower(path.Ext(name))
	return cmp.Or(contentTypes[extension], mime.TypeByExtension(extension))
}

// passive reports whether a browser only shows, plays or saves content of a type. Anything else may be
// active, like scripts, HTML, SVG, XML, WASM and style sheets.
func passive(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	group, name, _ := strings.Cut(strings.TrimSpace(strings.ToLower(kind)), "/")
	switch group {
	case "": // with nosniff, browsers don't run what has no type
		return true
	case "video", "audio", "image":
		return !strings.HasSuffix(name, "xml")
	case "text":
		return name == "plain" || name == "vtt"
	case "application":
		return slices.Contains([]string{"vnd.apple.mpegurl", "dash+xml", "json", "octet-stream"}, name)
	}
	return false
}

// correct sets the headers that depend on what becomes of a request.
func correct(h http.Header, status int, q *requestState) {
	switch {
	case status >= http.StatusBadRequest:
		endpoint.Never.Set(h) // not that of a success
		h.Del("Etag")
	case q.private.Load():
		endpoint.PrivateRevalidate.Set(h)
	}
}
