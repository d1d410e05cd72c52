package blob

import (
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

// defaultMaxSize is the largest source that is read unless the operator says otherwise.
const defaultMaxSize = 30 << 30

// maxRestarts is how often a source is read again from its start, because its server
// can't continue a transfer that broke.
const maxRestarts = 2

// notAccessible begins the error of every source that could not be read; clients
// compare it.
const notAccessible = "file could not be imported from URL because it was not accessible"

// Fetcher reads the sources that callers name. It is safe for concurrent use.
type Fetcher struct {
	Guard     *guard.Guard           // must be there
	Gateways  Gateways               // where content of IPFS and Arweave is looked for
	MaxSize   int64                  // of a source, in bytes; 0 = 30 GiB
	FreeSpace func(need int64) error // asked before that many bytes are written; may be nil

	tempo  tempo // for tests
	window int64 // for tests: the size of the parts that are read at the same time
	fast   int64 // for tests: the bytes in a second that one connection is enough for
}

// Fetched is what is known of a source when all of it was read.
type Fetched struct {
	Size        int64
	SHA256      string // in hex
	ContentType string // as the server says, which may be anything
}

// Spool is a file to fetch to. What has been written is read again to hash it when it
// did not come in order.
type Spool interface {
	io.Writer
	io.WriterAt
	io.ReaderAt
}

// Fetch reads a source from its first byte to its last and writes it to w. If w is a
// Spool, like an *os.File that is empty, large sources are read in several places at
// the same time; else they come in order. Either way each byte is read once from the
// source, unless its server can't continue a transfer that broke: then a Spool is
// filled again from its start, and for another writer it is an error.
//
// The URL may be http, https, s3+http, s3+https, ipfs or ar. A path that ends in .m3u8
// is an HLS playlist: its segments are written one after the other. progress, if it is
// not nil, is told often how many bytes of how many are there; -1 = nobody knows.
//
// An error of kind weir.Upstream may go away when it is fetched again, after minutes
// rather than seconds.
func (f *Fetcher) Fetch(ctx context.Context, source string, w io.Writer, progress func(done, total int64)) (Fetched, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	got, err := f.fetch(ctx, source, &sink{w: w, progress: progress, max: f.maxSize(), room: f.FreeSpace})
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
	for restarts := 0; ; restarts++ {
		got, err := f.once(ctx, o, s)
		if err == nil || ctx.Err() != nil || restarts >= maxRestarts || !errors.Is(err, errRestart) {
			return got, err
		}
		if !s.back(0) {
			return got, err
		}
		s.inOrder = true
		if e := f.tempo.orDefault().wait(ctx, restarts+1, err); e != nil {
			return got, e
		}
	}
}

func (f *Fetcher) maxSize() int64 {
	if f.MaxSize > 0 {
		return f.MaxSize
	}
	return defaultMaxSize
}

// inaccessible puts the sentence that clients know in front of an error about a
// source. What is about our own disk stays as it is.
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

// Check refuses a source that could never be fetched, by its URL alone: nothing is
// connected to.
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

// origin returns where a source is read from.
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
		s, err := connect(b, Options{Guard: f.Guard, tempo: f.tempo})
		if err != nil {
			return nil, err
		}
		return object{s, key}, nil
	}
	return nil, weir.Errorf(weir.Invalid, "the URL of the source must begin with http://, https://, ipfs:// or ar://")
}

// webOrigin returns a web server, and if it is a gateway that is known, the others
// behind it.
func (f *Fetcher) webOrigin(source string) (origin, error) {
	if name, ok := f.Gateways.resolve(source); ok {
		return f.named(name, source)
	}
	return newWeb(f.client(), source)
}

func (f *Fetcher) client() *http.Client { return f.Guard.Client(0) }

// isPlaylist reports whether a source is an HLS playlist by its name.
func isPlaylist(source string) bool {
	u, err := url.Parse(source)
	return err == nil && strings.EqualFold(path.Ext(u.Path), ".m3u8")
}

// sink is where the bytes of a source go.
type sink struct {
	w        io.Writer
	progress func(done, total int64)
	max      int64
	room     func(need int64) error

	done    int64 // that came in order
	inOrder bool  // parts did not work
	checked int64 // bytes that there is room for
}

// spool returns the file to write to, if it is one.
func (s *sink) spool() (Spool, bool) {
	spool, ok := s.w.(Spool)
	return spool, ok
}

// begin checks that a source of that size may come; -1 = unknown.
func (s *sink) begin(size int64) error {
	if size > s.max {
		return weir.Errorf(weir.Invalid, "the file has %s, and at most %s are allowed", bytesFor(size), bytesFor(s.max))
	}
	if size > s.checked && s.room != nil {
		if err := s.room(size - s.checked); err != nil {
			return err
		}
		s.checked = size
	}
	return nil
}

// back forgets what came after the first bytes, if the writer is one that can.
func (s *sink) back(to int64) bool {
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

// once reads a source from its start.
func (f *Fetcher) once(ctx context.Context, o origin, s *sink) (Fetched, error) {
	t := f.tempo.orDefault()
	spool, inParts := s.spool()
	r, st, err := f.begin(ctx, o, inParts && !s.inOrder, t)
	if err != nil {
		return Fetched{}, err
	}
	size, h, start := st.version.size, sha256.New(), time.Now()
	err = s.take(r, h, size)
	_ = r.Close()
	if err != nil {
		return Fetched{}, err
	}
	switch rest := size - s.done; {
	case size < 0 || rest == 0:
	case rest < fewWindows*f.windowSize() || f.isFast(s.done, time.Since(start)):
		err = f.rest(ctx, o, st.version, s, h)
	default:
		err = f.inWindows(ctx, o, st.version, spool, s, h)
	}
	if err != nil {
		return Fetched{}, err
	}
	return fetched(h, s.done, st), nil
}

// rest reads what comes after the first window, in order.
func (f *Fetcher) rest(ctx context.Context, o origin, v version, s *sink, h hash.Hash) error {
	r, _, err := openReader(ctx, o, span{s.done, v.size}, v, f.tempo.orDefault())
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return s.take(r, h, v.size)
}

// begin opens a source: all of it, or a first window if the server gives parts that
// can be put together.
func (f *Fetcher) begin(ctx context.Context, o origin, inParts bool, t tempo) (*reader, stream, error) {
	if inParts {
		r, st, err := openReader(ctx, o, span{0, f.windowSize()}, version{}, t)
		if err != nil && !errors.Is(err, errNoSpan) {
			return nil, stream{}, err
		}
		if err == nil && st.whole {
			r.to = st.version.size
			return r, st, nil
		}
		// A rest of which nobody knows what it belongs to is of no use.
		if err == nil && st.version.size >= 0 && (st.version.size <= r.to || st.version.known()) {
			return r, st, nil
		}
		if err == nil {
			_ = r.Close()
		}
	}
	return openReader(ctx, o, span{0, -1}, version{}, t)
}

func fetched(h hash.Hash, size int64, st stream) Fetched {
	return Fetched{Size: size, SHA256: hex.EncodeToString(h.Sum(nil)), ContentType: st.contentType}
}

// copyBuffer is how much is read at a time.
const copyBuffer = 256 << 10

// roomStep is how often there is a look at the disk when nobody knows what will come.
const roomStep = 64 << 20

// take writes all of r, in order. total is -1 if nobody knows.
func (s *sink) take(r io.Reader, h hash.Hash, total int64) error {
	if err := s.begin(total); err != nil {
		return err
	}
	buffer := make([]byte, copyBuffer)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if s.done+int64(n) > s.checked && total < 0 {
				if err := s.begin(s.done + roomStep); err != nil && s.done+roomStep <= s.max {
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
