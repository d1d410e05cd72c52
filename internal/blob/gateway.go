package blob

import (
	"context"
	"encoding/base32"
	"errors"
	"io"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"weir/internal/weir"
)

// Gateways to IPFS and Arweave. An entry is a host, like ipfs.io; or the start of a URL, like
// https://gateway.example.com/ipfs; or a URL with {id} and {path} in it, like
// https://{id}.ipfs.dweb.link/{path}. The zero value stands for weir.DefaultGateways.
type Gateways struct {
	IPFS    []string
	Arweave []string
}

func (g Gateways) orDefault() Gateways {
	known := weir.DefaultGateways()
	if len(g.IPFS) == 0 {
		g.IPFS = known.IPFS
	}
	if len(g.Arweave) == 0 {
		g.Arweave = known.Arweave
	}
	return g
}

// resolve returns the ipfs:// or ar:// name for the URL of a gateway, which is one in the lists or a
// default one.
func (g Gateways) resolve(source string) (string, bool) {
	g, known := g.orDefault(), weir.DefaultGateways()
	return weir.Gateways{
		IPFS:    slices.Concat(known.IPFS, hostsOf(g.IPFS, ".ipfs.")),
		Arweave: slices.Concat(known.Arweave, hostsOf(g.Arweave, ".")),
	}.Resolve(source)
}

// OnIPFS returns the URLs of a CID at all gateways to IPFS that support it.
func (g Gateways) OnIPFS(cid string) []string {
	var urls []string
	for _, entry := range g.orDefault().IPFS {
		if u := gatewayURL(entry, ipfsFolder, cid, ""); u != "" {
			urls = append(urls, u)
		}
	}
	return urls
}

// ipfsFolder is the folder with all CIDs on a gateway.
const ipfsFolder = "/ipfs"

// hostsOf returns the hosts of gateways, without an id in the host name and its separator.
func hostsOf(gateways []string, after string) []string {
	var hosts []string
	for _, entry := range gateways {
		_, rest, ok := strings.Cut(entry, "://")
		if !ok {
			rest = entry
		}
		rest = strings.TrimPrefix(rest, "{id}"+after)
		host, _, _ := strings.Cut(rest, "/")
		host, _, _ = strings.Cut(host, ":")
		if !strings.Contains(host, "{") {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	return hosts
}

// named returns the gateways for a name, ipfs://cid/path or ar://transaction/path. given, if it is not
// empty, is the URL to try first.
func (f *Fetcher) named(name, given string) (origin, error) {
	scheme, rest, _ := strings.Cut(name, "://")
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	id, path, _ := strings.Cut(rest, "/")
	list := f.Gateways.orDefault()
	entries, folder, valid := list.IPFS, ipfsFolder, weir.IsContentID
	if strings.EqualFold(scheme, "ar") {
		entries, folder, valid = list.Arweave, "", weir.IsArweaveID
	} else if id == "ipfs" {
		id, path, _ = strings.Cut(path, "/") // ipfs://ipfs/cid is usual, too
	}
	if !valid(id) {
		return nil, weir.Errorf(weir.Invalid, "%q is not an address on %s; write it as %s://ID/path", cut(id, 100), networkOf(folder), scheme)
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if folder == ipfsFolder && given == "" && f.IPFS != nil {
		plain, _ := url.PathUnescape(path) // as checkPath did
		return &verified{find: f.IPFS, id: id, path: plain}, nil
	}
	g := &gateways{}
	if given != "" {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return gatewayURL(e, folder, id, path) == given })
		if err := g.add(f, given); err != nil {
			return nil, err
		}
	}
	for _, entry := range entries {
		u := gatewayURL(entry, folder, id, path)
		if u == "" {
			continue
		}
		if err := g.add(f, u); err != nil {
			return nil, err
		}
	}
	if len(g.origins) == 0 {
		return nil, weir.Errorf(weir.Unavailable, "this server has no usable gateway to %s", networkOf(folder))
	}
	return g, nil
}

func networkOf(folder string) string {
	if folder == "" {
		return "Arweave"
	}
	return "IPFS"
}

// checkPath refuses a path that leads out of the folder with the id.
func checkPath(path string) error {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return weir.Errorf(weir.Invalid, "the path of the source is not percent-encoded correctly")
	}
	for element := range strings.SplitSeq(plain, "/") {
		if element == "." || element == ".." {
			return weir.Errorf(weir.Invalid, "the path of the source has . or .. in it")
		}
	}
	return nil
}

// gatewayURL returns the URL of an id at a gateway; "" if the gateway does not support it.
func gatewayURL(entry, folder, id, path string) string {
	if !strings.Contains(entry, "://") {
		entry = "https://" + entry
		if !strings.Contains(entry, "{id}") {
			entry += folder
		}
	}
	if !strings.Contains(entry, "{id}") {
		entry = strings.TrimSuffix(entry, "/") + "/{id}/{path}"
	}
	if !strings.Contains(entry, "{path}") {
		entry = strings.TrimSuffix(entry, "/") + "/{path}"
	}
	scheme, rest, _ := strings.Cut(entry, "://")
	host, rest, _ := strings.Cut(rest, "/")
	if strings.Contains(host, "{id}") {
		label := hostLabel(id)
		if label == "" {
			return ""
		}
		host = strings.ReplaceAll(host, "{id}", label)
	}
	rest = strings.NewReplacer("{id}", id, "{path}", path).Replace(rest)
	if path == "" {
		rest = strings.TrimSuffix(rest, "/")
	}
	return strings.TrimSuffix(scheme+"://"+host+"/"+rest, "/")
}

// maxLabel is the longest part of a host name.
const maxLabel = 63

// hostLabel returns an id as part of a host name, which has no case; "" if it can't be one. CIDs of
// version 0 have case, so they are converted to version 1.
func hostLabel(id string) string {
	if strings.HasPrefix(id, "Qm") {
		id = toVersion1(id)
	}
	if len(id) > maxLabel || strings.ToLower(id) != id {
		return ""
	}
	return id
}

// toVersion1 converts a CID of version 0, a SHA-256 in base 58, to version 1 in base 32.
func toVersion1(id string) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	n := new(big.Int)
	for _, c := range id {
		digit := strings.IndexRune(alphabet, c)
		if digit < 0 {
			return ""
		}
		n.Add(n.Mul(n, big.NewInt(58)), big.NewInt(int64(digit)))
	}
	hash := n.Bytes()
	if len(hash) != 34 || hash[0] != 0x12 || hash[1] != 0x20 {
		return ""
	}
	const version1, dagPB = 0x01, 0x70
	binary := append([]byte{version1, dagPB}, hash...)
	return "b" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(binary))
}

// Content is a file that can be read from any offset.
type Content interface {
	Size() int64

	// Open returns length bytes from offset on, which are in the file.
	Open(ctx context.Context, offset, length int64) (io.ReadCloser, error)
}

// verified is an origin whose bytes are verified against its name.
type verified struct {
	find     func(ctx context.Context, cid, path string) (Content, error)
	id, path string

	mu      sync.Mutex
	content Content // nil until it is found
}

func (v *verified) String() string { return "ipfs://" + v.id }

func (v *verified) open(ctx context.Context, s span, _ version) (response, error) {
	content, err := v.found(ctx)
	if err != nil {
		return response{}, err
	}
	size := content.Size()
	if s.to < 0 || s.to > size {
		s.to = size
	}
	if s.from > s.to {
		return response{}, weir.Errorf(weir.Invalid, "%s has only %d bytes", v, size)
	}
	body, err := content.Open(ctx, s.from, s.to-s.from)
	if err != nil {
		return response{}, err
	}
	return response{body: body, from: s.from, version: version{etag: immutable, size: size}, whole: s == span{0, size}}, nil
}

func (v *verified) found(ctx context.Context) (Content, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.content == nil {
		content, err := v.find(ctx, v.id, v.path)
		if err != nil {
			return nil, err
		}
		v.content = content
	}
	return v.content, nil
}

// gateways is an origin with several servers. An id stands for the same bytes everywhere, so another
// gateway can resume a transfer.
type gateways struct {
	origins []*web
	current atomic.Int64 // the one to ask first
}

func (g *gateways) add(f *Fetcher, u string) error {
	w, err := newWeb(f.client(), u)
	if err != nil {
		return err
	}
	w.fixed = true
	g.origins = append(g.origins, w)
	return nil
}

func (g *gateways) String() string { return g.origins[g.at(0)].String() }

// at returns the number of the gateway that comes n after the current one.
func (g *gateways) at(n int64) int64 { return (g.current.Load() + n) % int64(len(g.origins)) }

func (g *gateways) open(ctx context.Context, s span, v version) (response, error) {
	var failed []error
	for range g.origins {
		i := g.at(0)
		res, err := g.origins[i].open(ctx, s, v)
		if err == nil && (v == version{} || v.same(res.version)) {
			res.body = &gatewayBody{res.body, func() { g.current.CompareAndSwap(i, g.at(1)) }}
			return res, nil
		}
		if err == nil {
			err = errors.Join(weir.Errorf(weir.Upstream, "%s has a different file at this address", g.origins[i]), res.body.Close())
		}
		g.current.CompareAndSwap(i, g.at(1))
		if ctx.Err() != nil {
			return response{}, err // if this one did not answer, the next try begins with another
		}
		failed = append(failed, err)
	}
	return response{}, allFailed(failed)
}

// allFailed returns the error for the case that no gateway worked: worth a retry if one of them is.
func allFailed(failed []error) error {
	kind := weir.Invalid
	var sentences []string
	for _, err := range failed {
		if worthRetry(err) {
			kind = weir.Upstream
		}
		if e, ok := errors.AsType[*weir.Error](err); ok {
			sentences = append(sentences, e.Messages...)
		}
	}
	return weir.Wrap(kind, errors.Join(failed...), "%s", strings.Join(sentences, "; "))
}

// gatewayBody calls next when a gateway breaks off.
type gatewayBody struct {
	io.ReadCloser
	next func()
}

func (b *gatewayBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.next()
	}
	return n, err
}
