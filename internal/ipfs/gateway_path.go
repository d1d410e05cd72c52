package ipfs

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"weir/internal/endpoint"
	"weir/internal/ipld"
	"weir/internal/weir"
)

// A pathRequest is a request for a path, in one format.
type pathRequest struct {
	w      http.ResponseWriter
	r      *http.Request
	get    getBlock
	alone  bool   // this host serves nothing but the gateway
	path   string // cleaned; a slash at its end stays
	names  []string
	root   ipld.CID
	format string            // media type; "" = files and pages as they are
	params map[string]string // of the media type in the header
}

// Formats of responses.
const (
	formatTAR     = "application/x-tar"
	formatJSON    = "application/json"
	formatCBOR    = "application/cbor"
	formatDagJSON = "application/vnd.ipld.dag-json"
	formatDagCBOR = "application/vnd.ipld.dag-cbor"
	formatIPNS    = "application/vnd.ipfs.ipns-record"
)

// formats are the names of formats in ?format=.
var formats = map[string]string{
	"raw": rawType, "car": carType, "tar": formatTAR, "json": formatJSON, "cbor": formatCBOR,
	"dag-json": formatDagJSON, "dag-cbor": formatDagCBOR, "ipns-record": formatIPNS,
}

// documentFormats are the formats of documents, by codec.
var documentFormats = map[uint64]string{
	ipld.JSON: formatJSON, ipld.CBOR: formatCBOR, ipld.DagJSON: formatDagJSON, ipld.DagCBOR: formatDagCBOR,
}

// codecNames are those of the blocks that are stored.
var codecNames = map[uint64]string{
	ipld.Raw: "raw", ipld.DagPB: "dag-pb", ipld.JSON: "json", ipld.CBOR: "cbor", ipld.DagJSON: "dag-json", ipld.DagCBOR: "dag-cbor",
}

// cacheForever is for what has its hash in its address; the specification names the time.
var cacheForever = endpoint.ImmutableFor(29_030_400 * time.Second)

// maxIpfsURI is the length of the longest Ipfs-Uri, because proxies bound the size of headers.
const maxIpfsURI = 8192

func badRequest(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// serve answers a request.
func (s *server) serve(w http.ResponseWriter, r *http.Request, q *requestState) error {
	if redirected, err := redirect(w, r); redirected || err != nil {
		return err
	}
	p := &pathRequest{w: w, r: r, get: s.get(q), alone: q.alone}
	if err := p.readPath(); err != nil {
		return err
	}
	cached := r.Header.Get("Cache-Control") == "only-if-cached"
	// Some responses need no block, like that to If-None-Match: without this, they would need no right.
	err := s.check(r.Context(), q, p.root)
	if weir.IsNotFound(err) && cached {
		err = &statusError{http.StatusPreconditionFailed, statusOf(err).text} // what the specification wants
	}
	if err != nil {
		return err
	}
	if uri := p.uri(); len(uri) <= maxIpfsURI {
		w.Header().Set("Ipfs-Uri", uri)
	}
	if cached {
		if _, err := resolve(r.Context(), p.get, p.root, p.names); err != nil {
			return &statusError{http.StatusPreconditionFailed, fmt.Sprintf("%q is not stored here", p.path)}
		}
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusOK)
			return nil
		}
	}
	if err := p.readFormat(); err != nil {
		return err
	}
	switch p.format {
	case formatIPNS:
		return badRequest("%s is not an IPNS link", p.path)
	case carType:
		return p.serveCAR()
	}
	at, err := resolve(r.Context(), p.get, p.root, p.names)
	if err != nil {
		return p.failed(err)
	}
	if p.notModified(at.last()) {
		return nil
	}
	switch p.format {
	case "", formatJSON, formatCBOR:
		return p.serveDefault(at)
	case rawType:
		return p.serveRaw(at)
	case formatTAR:
		return p.serveTAR(at)
	case formatDagJSON, formatDagCBOR:
		p.setRoots(at)
		return p.serveDocument(at)
	}
	return badRequest("unsupported response format requested")
}

// redirect corrects addresses that browsers and people make.
func redirect(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	if link := r.URL.Query().Get("uri"); link != "" { // of a browser that opens ipfs:// here
		u, err := url.Parse(link)
		if err != nil || u.Scheme != "ipfs" {
			return false, badRequest("the parameter uri must be an ipfs:// address")
		}
		to := url.URL{Path: path.Join("/ipfs", u.Host, u.Path), RawQuery: u.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		return true, nil
	}
	// A script must not get the requests for other uploads.
	if rootOnly.MatchString(r.URL.Path) && r.Header.Get("Service-Worker") == "script" {
		return false, badRequest("navigator.serviceWorker: registration is not allowed for this scope")
	}
	if twice, ok := strings.CutPrefix(r.URL.Path, "/ipfs/ipfs/"); ok {
		to := url.URL{Path: cleanPath("/ipfs/" + twice), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		return true, nil
	}
	return false, nil
}

var rootOnly = regexp.MustCompile("^/ipfs/[^/]+$")

// cleanPath is path.Clean, but leaves a slash at the end.
func cleanPath(p string) string {
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

func (p *pathRequest) readPath() (err error) {
	p.path = cleanPath(p.r.URL.Path)
	names := strings.Split(strings.Trim(p.path, "/"), "/")
	if len(names) < 2 || names[0] != "ipfs" {
		return badRequest("invalid path %q: path does not have enough components", p.r.URL.Path)
	}
	if p.root, err = ipld.ParseCID(names[1]); err != nil {
		return badRequest("invalid path %q: %v", p.r.URL.Path, err)
	}
	// A caller could choose content that this site would then send.
	if function, _ := p.root.Digest(); function == ipld.Identity && p.root != emptyCID {
		return weir.Errorf(weir.NotFound, "%s has its content in itself: decode it", p.root)
	}
	p.names = names[2:]
	return nil
}

// uri returns the address that does not depend on this server.
func (p *pathRequest) uri() string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(p.path, "/ipfs/"), "/")
	var b strings.Builder
	b.WriteString("ipfs://" + p.root.Version1().String())
	if rest == "" && !strings.HasSuffix(p.path, "/") {
		return b.String()
	}
	for name := range strings.SplitSeq(rest, "/") {
		b.WriteByte('/')
		for _, c := range []byte(name) {
			if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}

// readFormat finds out the format that is asked for: that of the query, or the first one of the header
// that is known.
func (p *pathRequest) readFormat() error {
	query := p.r.URL.Query()
	p.format = formats[query.Get("format")]
	accepted, params, err := acceptedFormat(p.r.Header.Values("Accept"))
	if err != nil {
		return badRequest("error while processing the Accept header: %v", err)
	}
	if p.format == "" {
		p.format = accepted
	}
	if p.format == accepted {
		p.params = params
	}
	if p.format == "" {
		return nil
	}
	// The address of this format, for caches.
	name := ""
	for short, format := range formats {
		if format == p.format {
			name = short
		}
	}
	if query.Get("format") == name && name != "" {
		return nil
	}
	query.Set("format", name)
	for key, value := range p.params {
		if key = name + "-" + key; !query.Has(key) {
			query.Set(key, value)
		}
	}
	p.w.Header().Set("Content-Location", p.r.URL.Path+"?"+query.Encode())
	return nil
}

func acceptedFormat(headers []string) (format string, params map[string]string, err error) {
	for _, header := range headers {
		for value := range strings.SplitSeq(header, ",") {
			value = strings.TrimSpace(value)
			for _, start := range []string{"application/vnd.ipld", "application/vnd.ipfs", formatTAR, formatJSON, formatCBOR} {
				if strings.HasPrefix(value, start) {
					return mime.ParseMediaType(value)
				}
			}
		}
	}
	return "", nil, nil
}

// failed returns the error for a path that leads nowhere, or whose blocks can't be read.
func (p *pathRequest) failed(err error) error {
	e := statusOf(err)
	if missing, ok := errors.AsType[*missingError](err); ok {
		e = &statusError{http.StatusNotFound, missing.Error()}
	}
	quoted := strconv.QuoteToASCII(p.path)
	return &statusError{e.status, "failed to resolve " + quoted[1:len(quoted)-1] + ": " + e.text}
}

// etag returns the validator of a block in a format.
func etag(c ipld.CID, format string) string {
	if format == "" {
		format = documentFormats[c.Codec()]
	}
	if format == "" {
		return `"` + c.String() + `"`
	}
	tag := `"` + c.String() + "." + format[strings.LastIndexAny(format, "/.")+1:] + `"`
	if format == formatTAR { // it has the time in it
		return "W/" + tag
	}
	return tag
}

// notModified answers if the client has the response already.
func (p *pathRequest) notModified(c ipld.CID) bool {
	header := p.r.Header.Get("If-None-Match")
	for _, v := range []struct {
		etag  string
		cache endpoint.Caching
	}{{etag(c, p.format), cacheForever}, {pageTag(c), endpoint.WeekThenStale}} {
		if matches(header, v.etag) {
			p.w.Header().Set("Etag", v.etag)
			v.cache.Set(p.w.Header())
			p.w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

// matches says whether an entity tag is in the header If-None-Match, which compares weakly.
func matches(header, etag string) bool {
	for value := range strings.SplitSeq(header, ",") { // no tag of this gateway has a comma
		value = strings.TrimSpace(value)
		if value == "*" || value != "" && strings.TrimPrefix(value, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

// setRoots names the blocks of the path, for caches.
func (p *pathRequest) setRoots(at place) {
	var all []string
	for _, c := range at.blocks {
		all = append(all, c.String())
	}
	p.w.Header().Set("X-Ipfs-Roots", strings.Join(all, ","))
}

var notASCII = regexp.MustCompile("[[:^ascii:]]")

// setDisposition names the file that a browser saves: that of the query, or name.
func (p *pathRequest) setDisposition(disposition, name string) {
	if given := p.r.URL.Query().Get("filename"); given != "" {
		name = given
	}
	ascii := url.PathEscape(notASCII.ReplaceAllLiteralString(name, "_"))
	p.w.Header().Set("Content-Disposition", fmt.Sprintf(`%s; filename="%s"; filename*=UTF-8''%s`, disposition, ascii, url.PathEscape(name)))
}

// download says whether a browser shall save the file and not show it.
func (p *pathRequest) download() bool { return p.r.URL.Query().Get("download") == "true" }
