package blob

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"weir/internal/guard"
	"weir/internal/weir"
)

// The defaults of the bounds of a Fetcher.
const (
	defaultMaxSize     = 30 << 30
	defaultMaxDuration = 24 * time.Hour
)

// maxRestarts is how often a source is read again from its start, because its server can't resume a
// broken transfer, or sends ranges that don't fit together.
const maxRestarts = 2

// notAccessible begins the error of every source that could not be read; clients match it.
const notAccessible = "file could not be imported from URL because it was not accessible"

// Fetcher reads sources from callers. It is safe for concurrent use.
type Fetcher struct {
	Guard       *guard.Guard           // required
	Gateways    Gateways               // to IPFS and Arweave
	MaxSize     int64                  // of a source, in bytes; 0 = 30 GiB
	MaxDuration time.Duration          // of an HLS playlist; 0 = a day
	FreeSpace   func(need int64) error // checks for the space before it is written; may be nil

	// IPFS finds the file at ipfs://cid/path and verifies what it reads against the CID; nil = what
	// gateways send is not verified. The path is not percent-encoded.
	IPFS func(ctx context.Context, cid, path string) (Content, error)

	timing timing // for tests
	window int64  // for tests: see defaultWindow
	fast   int64  // for tests: see defaultFast
}

// Fetched describes a source that was read completely.
type Fetched struct {
	Size   int64
	SHA256 string // in hex
}

// spool is a file to fetch to. Bytes that did not arrive in order are read again for the hash.
type spool interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
}

// Fetch reads a whole source and writes it to w. If w is an empty *os.File, large sources are read
// over several connections; else in order. Each byte is read once from the source, unless its server
// can't resume a broken transfer, or its ranges don't fit together: then a file is filled again from
// its start, by one request for all of it, and for another writer it is an error.
//
// The URL may be http, https, s3+http, s3+https, ipfs or ar. A path that ends in .m3u8 is an HLS
// playlist: its segments are written one after the other. progress may be nil; a total of -1 is
// unknown.
//
// An error of kind weir.Upstream may go away after minutes rather than seconds.
func (f *Fetcher) Fetch(ctx context.Context, source string, w io.Writer, progress func(done, total int64)) (Fetched, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	got, err := f.fetch(ctx, source, &sink{w: w, progress: progress, max: cmp.Or(f.MaxSize, defaultMaxSize), freeSpace: f.FreeSpace})
	if err != nil && ctx.Err() == nil {
		err = inaccessible(err)
	}
	return got, err
}

func (f *Fetcher) fetch(ctx context.Context, source string, s *sink) (Fetched, error) {
	o, err := f.origin(source)
	if err != nil {
		return Fetched{}, err
	}
	if isPlaylist(source) {
		return f.playlist(ctx, o, source, s)
	}
	var got Fetched
	err = f.withRestarts(ctx, func() (err error) {
		got, err = f.fetchOnce(ctx, o, s)
		return err
	}, func(trusted bool) bool {
		if !trusted {
			o = plain{o}
		}
		s.inOrder = true
		return s.truncate(0)
	})
	return got, err
}

// withRestarts calls read again when it broke off and the server can't resume it, or when ranges of the
// source don't fit together: then the server is not trusted with ranges. reset removes what was read, if
// it can.
func (f *Fetcher) withRestarts(ctx context.Context, read func() error, reset func(trusted bool) bool) error {
	for restarts := 0; ; restarts++ {
		err := read()
		if err == nil || ctx.Err() != nil || restarts >= maxRestarts {
			return err
		}
		unfit := errors.Is(err, errWrongRange) || errors.Is(err, errChanged)
		if !unfit && !errors.Is(err, errRestart) || !reset(!unfit) {
			return err
		}
		if e := f.timing.orDefault().wait(ctx, restarts+1, err); e != nil {
			return e
		}
	}
}

// inaccessible adds the sentence that clients match to an error about a source. Errors about our own
// disk stay as they are.
func inaccessible(err error) error {
	kind := weir.KindOf(err)
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || kind == weir.Full || kind == weir.Internal {
		return err
	}
	if kind == weir.NotFound || kind == weir.Denied {
		kind = weir.Invalid
	}
	return weir.Wrap(kind, e.Err, "%s: %s", notAccessible, strings.Join(e.Messages, "; "))
}

// Check refuses a source that could never be fetched. It looks only at the URL.
func (f *Fetcher) Check(source string) error {
	if _, err := f.origin(source); err != nil {
		return err
	}
	u, err := url.Parse(source)
	if err != nil {
		return weir.Errorf(weir.Invalid, "the URL of the source can't be read")
	}
	return f.Guard.CheckHost(u.Hostname())
}

func (f *Fetcher) origin(source string) (origin, error) {
	scheme, _, _ := strings.Cut(source, "://")
	switch strings.ToLower(scheme) {
	case "http", "https":
		return f.webOrigin(source)
	case "ipfs", "ar":
		return f.named(source, "")
	case "s3+http", "s3+https", "s3":
		b, err := parseBucket(source)
		if err != nil {
			return nil, err
		}
		key := b.prefix
		if key == "" {
			return nil, weir.Errorf(weir.Invalid, "the URL of the source names a bucket, but no file in it")
		}
		b.prefix = ""
		s, err := connect(b, Options{Guard: f.Guard, timing: f.timing})
		if err != nil {
			return nil, err
		}
		return object{s, key}, nil
	}
	return nil, weir.Errorf(weir.Invalid, "the URL of the source must begin with http://, https://, ipfs:// or ar://")
}

// webOrigin returns a web server, and if it is a known gateway, also the others.
func (f *Fetcher) webOrigin(source string) (origin, error) {
	if name, ok := f.Gateways.resolve(source); ok {
		return f.named(name, source)
	}
	return newWeb(f.client(), source)
}

func (f *Fetcher) client() *http.Client { return f.Guard.Client(0) }

func isPlaylist(source string) bool {
	u, err := url.Parse(source)
	return err == nil && strings.EqualFold(path.Ext(u.Path), ".m3u8")
}

// sink writes the bytes of a source.
type sink struct {
	w         io.Writer
	progress  func(done, total int64)
	max       int64
	freeSpace func(need int64) error

	done    int64 // bytes from the start without a gap
	inOrder bool  // use one connection
	checked int64 // bytes for which there is space
}

// checkSize checks that a source of that size may be written; -1 = unknown.
func (s *sink) checkSize(size int64) error {
	if size > s.max {
		return weir.Errorf(weir.Invalid, "the file has %s; at most %s are allowed", bytesFor(size), bytesFor(s.max))
	}
	if size > s.checked && s.freeSpace != nil {
		if err := s.freeSpace(size - s.checked); err != nil {
			return err
		}
		s.checked = size
	}
	return nil
}

// truncate removes all but the first bytes, if the writer can do that.
func (s *sink) truncate(to int64) bool {
	f, ok := s.w.(interface {
		io.Seeker
		Truncate(size int64) error
	})
	if !ok {
		return s.done == to
	}
	if f.Truncate(to) != nil {
		return false
	}
	if _, err := f.Seek(to, io.SeekStart); err != nil {
		return false
	}
	s.done = to
	return true
}

// fetchOnce reads a source from its start.
func (f *Fetcher) fetchOnce(ctx context.Context, o origin, s *sink) (Fetched, error) {
	t := f.timing.orDefault()
	file, isFile := s.w.(spool)
	r, res, err := f.openFirst(ctx, o, isFile && !s.inOrder, t)
	if err != nil {
		return Fetched{}, err
	}
	size, h, start := res.version.size, sha256.New(), time.Now()
	err = s.readFrom(r, h, size)
	_ = r.Close()
	if err != nil {
		return Fetched{}, err
	}
	switch rest := size - s.done; {
	case size < 0 || rest == 0:
	case rest < fewWindows*f.windowSize() || f.isFast(s.done, time.Since(start)):
		err = f.rest(ctx, o, res.version, s, h)
	default:
		err = f.inWindows(ctx, o, res.version, file, s, h)
	}
	if err != nil {
		return Fetched{}, err
	}
	return fetched(h, s.done), nil
}

// rest reads everything after the first window, in order.
func (f *Fetcher) rest(ctx context.Context, o origin, v version, s *sink, h hash.Hash) error {
	r, _, err := openReader(ctx, o, span{s.done, v.size}, v, f.timing.orDefault())
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return s.readFrom(r, h, v.size)
}

// openFirst opens a source: all of it, or the first window if the server supports ranges of a known
// version.
func (f *Fetcher) openFirst(ctx context.Context, o origin, ranges bool, t timing) (*reader, response, error) {
	if ranges {
		r, res, err := openReader(ctx, o, span{0, f.windowSize()}, version{}, t)
		if err != nil && !errors.Is(err, errNoRange) {
			return nil, response{}, err
		}
		if err == nil && res.whole {
			r.to = res.version.size
			return r, res, nil
		}
		// Without a version, the other windows could belong to another file.
		if err == nil && res.version.size >= 0 && (res.version.size <= r.to || res.version.known()) {
			return r, res, nil
		}
		if err == nil {
			_ = r.Close()
		}
	}
	return openReader(ctx, o, span{0, -1}, version{}, t)
}

func fetched(h hash.Hash, size int64) Fetched {
	return Fetched{Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}
}

const (
	copyBuffer = 256 << 10
	// spaceStep is after how many bytes the free space is checked again if the total is unknown.
	spaceStep = 64 << 20
)

// readFrom writes all of r, in order. A total of -1 is unknown.
func (s *sink) readFrom(r io.Reader, h hash.Hash, total int64) error {
	if err := s.checkSize(total); err != nil {
		return err
	}
	buffer := make([]byte, copyBuffer)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if s.done+int64(n) > s.checked && total < 0 {
				if err := s.checkSize(s.done + spaceStep); err != nil && s.done+spaceStep <= s.max {
					return err
				}
			}
			if s.done+int64(n) > s.max {
				return weir.Errorf(weir.Invalid, "the file has more than the %s that are allowed", bytesFor(s.max))
			}
			if _, err := s.w.Write(buffer[:n]); err != nil {
				return diskError(err, "write source")
			}
			h.Write(buffer[:n])
			s.done += int64(n)
			s.progress(s.done, total)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
