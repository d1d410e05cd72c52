package ipfs

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// carParams say which blocks a CAR has.
type carParams struct {
	scope  string // what of the end of the path: scopeBlock, scopeEntity or scopeAll
	order  string
	dups   bool       // a block that is there twice is sent twice
	ranged *byteRange // of a file; nil = all of it
}

const (
	scopeBlock  = "block"  // one block
	scopeEntity = "entity" // a file, or the names in a directory
	scopeAll    = "all"    // all that is below

	orderDFS     = "dfs" // as a reader needs them
	orderUnknown = "unk"
)

// emptyCID is that of no bytes: the root of a CAR that shows that a path leads nowhere.
var emptyCID = ipld.CID([]byte{1, ipld.Raw, ipld.Identity, 0})

// carTruncated is what follows the last block that could be read: no reader takes the file for complete.
const carTruncated = "\n\n[Gateway Error: CAR stream truncated, response is incomplete]"

// readCARParams reads parameters of the query, and those of the header that the query does not have.
func (p *pathRequest) readCARParams() (c carParams, err error) {
	query := p.r.URL.Query()
	param := func(name string) string {
		if value := query.Get("car-" + name); value != "" {
			return value
		}
		return p.params[name]
	}
	if c.ranged, err = entityBytes(query); err != nil {
		return c, badRequest("invalid application/vnd.ipld.car entity-bytes URL parameter: %v", err)
	}
	c.scope = scopeAll
	if query.Has("dag-scope") {
		c.scope = query.Get("dag-scope")
	}
	if c.scope != scopeAll && c.scope != scopeEntity && c.scope != scopeBlock {
		return c, badRequest("unsupported application/vnd.ipld.car scope parameter")
	}
	if version := param("version"); version != "" && version != "1" {
		return c, badRequest("unsupported application/vnd.ipld.car version: only version=1 is supported")
	}
	switch c.order = param("order"); c.order {
	case "":
		c.order = orderDFS
	case orderDFS, orderUnknown:
	default:
		return c, badRequest("unsupported application/vnd.ipld.car order parameter")
	}
	switch dups := param("dups"); dups {
	case "", "n":
	case "y":
		c.dups = true
	default:
		return c, badRequest("unsupported application/vnd.ipld.car dups parameter")
	}
	return c, nil
}

// entityBytes reads a range such as 0:99, -100:* or -100:-1.
func entityBytes(query url.Values) (*byteRange, error) {
	if !query.Has("entity-bytes") {
		return nil, nil
	}
	start, end, ok := strings.Cut(query.Get("entity-bytes"), ":")
	if !ok {
		return nil, errors.New("range must have two numbers separated with ':'")
	}
	from, err := strconv.ParseInt(start, 10, 64)
	if err != nil || end == "*" {
		return &byteRange{from, noEnd}, err
	}
	to, err := strconv.ParseInt(end, 10, 64)
	if err == nil && (from < 0) == (to < 0) && from > to {
		err = errors.New("cannot have an entity-bytes range where 'from' is after 'to'")
	}
	return &byteRange{from, to}, err
}

// noEnd is the last byte of a range that ends with the file.
const noEnd = 1<<63 - 1

// within returns the first byte of a range in a file, and the one after the last.
func (r *byteRange) within(size int64) (from, to int64) {
	if r == nil {
		return 0, size
	}
	from, to = r.from, r.to
	if from < 0 {
		from = max(size+from, 0)
	}
	if to < 0 {
		to += size
	}
	from = min(from, size)
	return from, max(min(to, size-1)+1, from)
}

// etag returns the validator of a CAR.
func (c carParams) etag(path string, root ipld.CID) string {
	h := xxhash.New()
	_, _ = h.WriteString(path)
	if c.scope != scopeAll {
		_, _ = h.WriteString("\x00scope=" + c.scope)
	}
	if c.order != orderDFS {
		_, _ = h.WriteString("\x00order=" + c.order)
	}
	if c.dups {
		_, _ = h.WriteString("\x00dups=y")
	}
	if r := c.ranged; r != nil && (r.from != 0 || r.to != noEnd) {
		_, _ = h.WriteString("\x00range=")
		b := binary.LittleEndian.AppendUint64(nil, uint64(r.from))
		if r.to != noEnd {
			b = binary.LittleEndian.AppendUint64(b, uint64(r.to))
		}
		_, _ = h.Write(b)
	}
	return `W/"` + root.String() + ".car." + strconv.FormatUint(h.Sum64(), 32) + `"`
}

// serveCAR sends the blocks of the path, and those of what it leads to.
func (p *pathRequest) serveCAR() error {
	params, err := p.readCARParams()
	if err != nil {
		return err
	}
	h := p.w.Header()
	name := p.root.String()
	if len(p.names) > 0 {
		name += "_" + p.name()
	}
	p.setDisposition("attachment", name+".car")
	cacheForever.Set(h)
	tag := params.etag(p.path, p.root)
	h.Set("Etag", tag)
	if matches(p.r.Header.Get("If-None-Match"), tag) {
		p.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	ctx := p.r.Context()
	at, err := resolve(ctx, p.get, p.root, p.names)
	_, missing := errors.AsType[*missingError](err)
	if err != nil && !missing {
		return p.failed(err)
	}
	root := at.last()
	if missing {
		root, at.blocks = emptyCID, at.blocks[:1]
	}
	p.setRoots(at)
	h.Set("Accept-Ranges", "none")
	dups := "n"
	if params.dups {
		dups = "y"
	}
	h.Set("Content-Type", carType+"; version=1; order="+params.order+"; dups="+dups)
	if p.r.Method == http.MethodHead {
		return nil
	}
	w := &carWriter{w: p.w, get: p.get, dups: params.dups, sent: map[ipld.CID]struct{}{}}
	if _, err := p.w.Write(ipld.AppendCARHeader(nil, root)); err != nil {
		return nil // the client went
	}
	// The blocks of the path are read again, now to send them.
	if at, err = resolve(ctx, w.block, p.root, p.names); err == nil {
		err = w.send(ctx, at, params)
	}
	if err != nil && !missing {
		h.Set("X-Stream-Error", statusOf(err).text)
		_, _ = io.WriteString(p.w, carTruncated)
	}
	return nil
}

// carWriter sends the blocks that are read.
type carWriter struct {
	w    io.Writer
	get  getBlock
	dups bool
	sent map[ipld.CID]struct{}
}

// block returns a block that is sent, too.
func (w *carWriter) block(ctx context.Context, c ipld.CID) ([]byte, error) {
	block, err := w.get(ctx, c)
	if err != nil {
		return nil, err
	}
	if function, _ := c.Digest(); function == ipld.Identity {
		return block, nil // the client has it
	}
	if !w.dups {
		if _, sent := w.sent[c]; sent {
			return block, nil
		}
		w.sent[c] = struct{}{}
	}
	if _, err := w.w.Write(ipld.AppendCARSection(nil, c, len(block))); err != nil {
		return nil, err
	}
	_, err = w.w.Write(block)
	return block, err
}

// send sends what a path leads to.
func (w *carWriter) send(ctx context.Context, at place, params carParams) error {
	c := at.last()
	block, err := w.block(ctx, c)
	if err != nil || params.scope == scopeBlock {
		return err
	}
	if params.scope == scopeAll {
		return w.sendBelow(ctx, c, block, 0)
	}
	if c.Codec() != ipld.DagPB {
		return nil
	}
	n, err := decodeNode(block)
	if err != nil {
		return nil // of another kind
	}
	switch n.kind {
	case kindShard:
		return eachEntry(ctx, w.block, n, func(unixLink) error { return nil })
	case kindFile:
		f, err := n.file(c)
		if err != nil {
			return err
		}
		from, to := params.ranged.within(f.size)
		r := f.open(ctx, w.block, from, to)
		defer func() { _ = r.Close() }()
		_, err = io.Copy(io.Discard, r)
		return err
	}
	return nil
}

// maxGraphDepth is how many levels a graph may have. Names are bounded, so those of files have less.
const maxGraphDepth = 2048

// sendBelow sends all blocks below one.
func (w *carWriter) sendBelow(ctx context.Context, c ipld.CID, block []byte, depth int) error {
	below, err := links(c, block)
	if err != nil {
		return err
	}
	if depth == maxGraphDepth {
		return weir.Errorf(weir.Refused, "%s is nested too deeply", c)
	}
	for _, c := range below {
		if _, sent := w.sent[c]; sent && !w.dups {
			continue
		}
		block, err := w.block(ctx, c)
		if err == nil {
			err = w.sendBelow(ctx, c, block, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
