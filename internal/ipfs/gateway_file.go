package ipfs

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gabriel-vasile/mimetype"

	"weir/internal/endpoint"
	"weir/internal/ipld"
	"weir/internal/weir"
)

// readAhead is how many blocks of a file are read before the client has read those before them.
const readAhead = 10

// sniffed is how many bytes of a file tell its type.
const sniffed = 3072

// serveDefault sends a file, a page of a directory or a document.
func (p *pathRequest) serveDefault(at place) error {
	ranges, err := p.firstRange()
	if err != nil {
		return err
	}
	if documentFormats[at.last().Codec()] != "" {
		p.setRoots(at)
		return p.serveDocument(at)
	}
	ctx, c := p.r.Context(), at.last()
	block, err := p.get(ctx, c)
	if err != nil {
		return p.failed(err)
	}
	if c.Codec() == ipld.Raw {
		p.setRoots(at)
		return p.serveFile(c, fileNode{data: block, size: int64(len(block))}, p.name(), ranges)
	}
	n, err := decodeNode(block)
	if err != nil {
		return p.failed(notFile(c, err.Error()))
	}
	if n.kind == kindDirectory || n.kind == kindShard {
		p.setRoots(at)
		return p.serveDirectory(c, n, ranges)
	}
	f, err := n.file(c)
	if err != nil {
		return p.failed(err)
	}
	p.setRoots(at)
	return p.serveFile(c, f, p.name(), ranges)
}

// name returns the last name of the path; a root has none.
func (p *pathRequest) name() string {
	if len(p.names) == 0 {
		return ""
	}
	return p.names[len(p.names)-1]
}

// A byteRange is the range that a client wants. to is -1 at the end, and from is negative if it counts
// from the end.
type byteRange struct{ from, to int64 }

// firstRange reads the header Range, of which only the first range is served.
func (p *pathRequest) firstRange() (*byteRange, error) {
	header := p.r.Header.Get("Range")
	if header == "" {
		return nil, nil
	}
	bad := badRequest("invalid range request: invalid range")
	if p.r.Method == http.MethodHead { // for which ranges have no meaning
		bad = nil
	}
	list, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return nil, bad
	}
	var first *byteRange
	for text := range strings.SplitSeq(list, ",") {
		if text = textproto.TrimString(text); text == "" {
			continue
		}
		r, ok := parseRange(text)
		if !ok {
			return nil, bad
		}
		if first == nil {
			first = &r
			p.r.Header.Set("Range", "bytes="+text)
		}
	}
	return first, nil
}

func parseRange(text string) (byteRange, bool) {
	start, end, ok := strings.Cut(text, "-")
	start, end = textproto.TrimString(start), textproto.TrimString(end)
	if start == "" {
		n, err := strconv.ParseUint(end, 10, 63)
		return byteRange{-int64(n), -1}, ok && err == nil
	}
	from, err := strconv.ParseUint(start, 10, 63)
	if end == "" {
		return byteRange{int64(from), -1}, ok && err == nil
	}
	to, err2 := strconv.ParseUint(end, 10, 63)
	return byteRange{int64(from), int64(to)}, ok && err == nil && err2 == nil && from <= to
}

// serveFile sends a file. It has the type that its name, or else its first bytes say.
func (p *pathRequest) serveFile(c ipld.CID, f fileNode, name string, wanted *byteRange) error {
	h := p.w.Header()
	h.Set("Etag", etag(c, ""))
	cacheForever.Set(h)
	if given := p.r.URL.Query().Get("filename"); given != "" {
		name = given
		disposition := "inline"
		if p.download() {
			disposition = "attachment"
		}
		p.setDisposition(disposition, name)
	}
	aheadTo := f.size
	if wanted != nil && wanted.to >= 0 {
		aheadTo = wanted.to + 1
	}
	content := &seekable{size: f.size, open: func(from int64) *fileReader {
		r := f.open(p.r.Context(), p.get, from, f.size)
		if p.r.Method == http.MethodGet {
			r.ahead, r.aheadTo = readAhead, aheadTo
		}
		return r
	}}
	defer func() { _ = content.Close() }()
	kind := cmp.Or(contentTypes[strings.ToLower(path.Ext(p.name()))], mediaType(name))
	if kind == "" && (wanted == nil || wanted.from == 0 || p.r.Method == http.MethodHead) {
		head, err := content.readHead(sniffed)
		if err != nil {
			return p.failed(err)
		}
		kind = mimetype.Detect(head).String()
	}
	if strings.HasPrefix(kind, "text/html;") {
		kind = "text/html" // the browser finds out the character set
	}
	if !p.alone && !passive(kind) {
		// Also without its type: a page that names the address of a script runs it, download or not.
		kind = "application/octet-stream"
		p.setDisposition("attachment", cmp.Or(name, c.String()))
	}
	h["Content-Type"] = nil // nobody shall guess it from the middle of the file
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	if f.size == 0 {
		p.r.Header.Del("Range") // no byte is in it
	}
	http.ServeContent(p.w, p.r, "", time.Time{}, content)
	return nil
}

// serveRaw sends a block.
func (p *pathRequest) serveRaw(at place) error {
	if _, err := p.firstRange(); err != nil {
		return err
	}
	c := at.last()
	block, err := p.get(p.r.Context(), c)
	if err != nil {
		return p.failed(err)
	}
	p.setRoots(at)
	p.setDisposition("attachment", c.String()+".bin")
	p.serveBlock(c, block, rawType)
	return nil
}

// serveBlock sends a block in the format that it has.
func (p *pathRequest) serveBlock(c ipld.CID, block []byte, format string) {
	h := p.w.Header()
	h.Set("Etag", etag(c, format))
	cacheForever.Set(h)
	h.Set("Content-Type", format)
	http.ServeContent(p.w, p.r, "", time.Time{}, bytes.NewReader(block))
}

// serveDocument sends a document as it was stored.
func (p *pathRequest) serveDocument(at place) error {
	if _, err := p.firstRange(); err != nil {
		return err
	}
	c := at.last()
	if len(at.rest) > 0 {
		document := strings.TrimSuffix("/ipfs/"+c.String()+"/"+strings.Join(at.rest, "/"), "/")
		return &statusError{http.StatusNotImplemented, fmt.Sprintf("%q of %q could not be returned: "+
			"reading IPLD Kinds other than Links (CBOR Tag 42) is not implemented: try reading %q instead",
			"/"+strings.Join(at.rest, "/"), document, "/ipfs/"+c.String())}
	}
	block, err := p.get(p.r.Context(), c)
	if err != nil {
		return p.failed(err)
	}
	stored := documentFormats[c.Codec()]
	format := p.format
	if format == "" {
		format = stored
	}
	extension, disposition := ".cbor", "attachment"
	if strings.HasSuffix(format, "json") {
		extension, disposition = ".json", "inline"
	}
	if p.download() {
		disposition = "attachment"
	}
	p.setDisposition(disposition, c.String()+extension)
	// Its own format may be asked for by the general name, too.
	general := format == formatJSON && stored == formatDagJSON || format == formatCBOR && stored == formatDagCBOR
	if format != stored && !general {
		return &statusError{http.StatusNotAcceptable, fmt.Sprintf("format %q requested but block has codec %q: "+
			"codec conversion is not supported, fetch raw block with ?format=raw and convert client-side", format, codecNames[c.Codec()])}
	}
	p.serveBlock(c, block, format)
	return nil
}

//go:embed directory.html
var pageSource string

var page = template.Must(template.New("").Parse(pageSource))

// pageTag is the validator of the page of a directory.
func pageTag(c ipld.CID) string {
	return `"DirIndex-` + strconv.FormatUint(xxhash.Sum64String(pageSource), 32) + "_CID-" + c.String() + `"`
}

// serveDirectory sends index.html of a directory, or a page with its entries.
func (p *pathRequest) serveDirectory(c ipld.CID, n *unixNode, ranges *byteRange) error {
	ctx := p.r.Context()
	if !strings.HasSuffix(p.r.URL.Path, "/") && p.r.URL.Query().Get("go-get") != "1" {
		to := p.r.URL.EscapedPath() + "/"
		if p.r.URL.RawQuery != "" {
			to += "?" + p.r.URL.RawQuery
		}
		http.Redirect(p.w, p.r, to, http.StatusMovedPermanently)
		return nil
	}
	index, err := findEntry(ctx, p.get, n, "index.html")
	switch {
	case err == nil:
		block, err := p.get(ctx, index)
		if err != nil {
			return p.failed(err)
		}
		f, err := parseNode(index, block)
		if err != nil {
			return &statusError{http.StatusUnprocessableEntity, "index.html could not be read: not a file"}
		}
		return p.serveFile(c, f, "index.html", ranges)
	case !weir.IsNotFound(err):
		return p.failed(err)
	}
	h := p.w.Header()
	h.Set("Content-Type", "text/html")
	h.Set("Etag", pageTag(c))
	endpoint.WeekThenStale.Set(h)
	if p.r.Method == http.MethodHead {
		return nil
	}
	var body bytes.Buffer
	content, err := p.list(ctx, c, n)
	if err == nil {
		err = page.Execute(&body, content)
	}
	if err != nil {
		return p.failed(err)
	}
	_, _ = p.w.Write(body.Bytes())
	return nil
}

// A listing is what the page of a directory shows.
type listing struct {
	Path    string
	CID     string
	Parents []pageLink // the directories of the path
	Up      bool
	Entries []pageLink
}

type pageLink struct {
	Name string
	Path string
	CID  string
	Size string
}

func (p *pathRequest) list(ctx context.Context, c ipld.CID, n *unixNode) (listing, error) {
	l := listing{Path: p.path, CID: c.String(), Up: len(p.names) > 0}
	parent := "/ipfs"
	for _, name := range append([]string{strings.Split(p.path, "/")[2]}, p.names...) {
		parent = path.Join(parent, name)
		l.Parents = append(l.Parents, pageLink{Name: name, Path: parent})
	}
	err := eachEntry(ctx, p.get, n, func(e unixLink) error {
		l.Entries = append(l.Entries, pageLink{e.name, path.Join(p.path, e.name), e.cid.String(), sizeText(e.stored)})
		return nil
	})
	return l, err
}

// sizeText returns a size for people.
func sizeText(size uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	value := float64(size)
	for value >= 1000 && len(units) > 1 {
		value, units = value/1000, units[1:]
	}
	if value < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// serveTAR sends a file, or a directory with all that is in it.
func (p *pathRequest) serveTAR(at place) error {
	c := at.last()
	block, err := p.get(p.r.Context(), c)
	if err != nil {
		return p.failed(err)
	}
	if documentFormats[c.Codec()] != "" {
		return p.failed(notFile(c, "it is a document"))
	}
	p.setRoots(at)
	h := p.w.Header()
	h.Set("Etag", etag(c, formatTAR))
	cacheForever.Set(h)
	h.Set("Content-Type", formatTAR)
	p.setDisposition("attachment", c.String()+".tar")
	t := tarWriter{tar.NewWriter(p.w), p}
	err = t.add(c, block, c.String(), 0)
	if err == nil {
		err = t.Close()
	}
	if err != nil { // the client sees that the archive is not complete
		_, _ = fmt.Fprint(p.w, statusOf(err).text)
	}
	return nil
}

type tarWriter struct {
	*tar.Writer
	*pathRequest
}

// add adds a file or a directory.
func (t tarWriter) add(c ipld.CID, block []byte, name string, depth int) error {
	ctx := t.r.Context()
	if c.Codec() == ipld.DagPB {
		n, err := decodeNode(block)
		if err != nil {
			return notFile(c, err.Error())
		}
		if n.kind == kindDirectory || n.kind == kindShard {
			if depth == maxGraphDepth {
				return notFile(c, "it is nested too deeply")
			}
			header := &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: time.Now()}
			if err := t.WriteHeader(header); err != nil {
				return err
			}
			return eachEntry(ctx, t.get, n, func(e unixLink) error {
				if e.name == "" || e.name == "." || e.name == ".." || strings.Contains(e.name, "/") {
					return notFile(c, "a name in it is not that of a file")
				}
				block, err := t.get(ctx, e.cid)
				if err != nil {
					return err
				}
				return t.add(e.cid, block, name+"/"+e.name, depth+1)
			})
		}
	}
	f, err := parseNode(c, block)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: f.size, Mode: 0o644, ModTime: time.Now()}); err != nil {
		return err
	}
	r := f.open(ctx, t.get, 0, f.size)
	defer func() { _ = r.Close() }()
	r.ahead, r.aheadTo = readAhead, f.size
	if _, err := io.Copy(t.Writer, r); err != nil {
		return err
	}
	return t.Flush()
}
