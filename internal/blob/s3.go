package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"weir/internal/weir"
)

const (
	// readerPart is the size of parts of a body that can be read only once, so it is held in
	// memory.
	readerPart = MinPart
	// filePart is the size of parts of a file.
	filePart = 16 << 20
	// maxPut is the largest object that is sent in one request.
	maxPut = 32 << 20
	// atOnce is how many parts of one file are sent at the same time.
	atOnce = 4
)

// s3 is a Store in a bucket.
//
// The client library makes and signs the requests. Retries are done here, because they need a body
// that can be read again. Every body is hashed before it is sent: its SHA-256 is in the signature
// and its MD5 in a header, which every server checks. Many servers do not support the newer forms
// (chunked signatures, checksums in trailers).
type s3 struct {
	bucket    bucket
	transport http.RoundTripper
	timing    timing
	close     func()
	copyPart  int64

	current atomic.Pointer[regional]
}

type regional struct {
	*minio.Core
	region string
}

func newS3(b bucket, o Options) (*s3, error) {
	if b.prefix != "" {
		if err := checkKey(b.prefix); err != nil {
			return nil, err
		}
	}
	return connect(b, o)
}

// connect is newS3 without a check of the prefix.
func connect(b bucket, o Options) (*s3, error) {
	if err := s3utils.CheckValidBucketName(b.name); err != nil {
		return nil, weir.Errorf(weir.Invalid, "%q can't be the name of a bucket: %s", cut(b.name, 100), err)
	}
	s := &s3{bucket: b, timing: o.timing.orDefault(), close: func() {}, copyPart: copyPart}
	if o.Guard != nil {
		s.transport = s3Transport{o.Guard.Client(0).Transport, o.Observe}
	} else {
		own := ownTransport()
		s.transport, s.close = s3Transport{own, o.Observe}, own.CloseIdleConnections
	}
	return s, s.useRegion(b.region)
}

// useRegion signs for that region from now on.
func (s *s3) useRegion(region string) error {
	core, err := minio.NewCore(s.bucket.host, &minio.Options{
		Creds:        credentials.NewStaticV4(s.bucket.key, s.bucket.secret, ""),
		Secure:       s.bucket.secure,
		Region:       region,
		BucketLookup: minio.BucketLookupPath,
		Transport:    s.transport,
		MaxRetries:   1,
	})
	if err != nil {
		return weir.Errorf(weir.Invalid, "%s is not the host of a storage: %s", s.bucket.host, s.bucket.hide(err.Error()))
	}
	core.SetS3EnableDualstack(false) // the host that was given, and no other
	s.current.Store(&regional{core, region})
	return nil
}

func (s *s3) client() *regional { return s.current.Load() }

// ownTransport is for the operator's storage, which may have any address, also behind a proxy.
func ownTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// s3Transport keeps a transport from decompressing objects, and uses Expect for large ones: a server
// that refuses one may close the connection without reading it, and then its reason would be lost.
type s3Transport struct {
	http.RoundTripper
	observe func(took time.Duration, failed bool) // see Options
}

func (p s3Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // these headers are not signed
	r.Header.Set("Accept-Encoding", "identity")
	if r.ContentLength >= expectSize {
		r.Header.Set("Expect", "100-continue")
	}
	if p.observe == nil {
		return p.RoundTripper.RoundTrip(r)
	}
	begin := time.Now()
	response, err := p.RoundTripper.RoundTrip(r)
	if err != nil && r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errStalled) {
		return response, err // the caller did not wait
	}
	p.observe(time.Since(begin), err != nil || failing(response.StatusCode))
	return response, err
}

// failing reports whether a bucket answers with a status that it should not have for weir.
func failing(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusUnauthorized || status == http.StatusForbidden
}

func (s *s3) Close() error { s.close(); return nil }

func (s *s3) Path(string) (string, bool) { return "", false }

func (s *s3) Free(context.Context) (free, total int64, ok bool) { return 0, 0, false }

// do makes a request, with retries. The context of the request ends when the server stalls longer
// than timeout.
func (s *s3) do(ctx context.Context, timeout time.Duration, key string, request func(ctx context.Context, moved func()) error) error {
	return s.timing.retry(ctx, func() error {
		watched, dog := watch(ctx, timeout)
		defer dog.stop()
		used := s.client()
		err := request(watched, dog.moved)
		if s.otherRegion(err, used) {
			err = request(watched, dog.moved)
		}
		return s.failure(watched, s.explain(watched, err, key), key)
	})
}

// explain finds out why a store broke the connection off. It may close the connection before the
// reason of its refusal arrives; then it repeats the reason for a small request.
func (s *s3) explain(ctx context.Context, err error, key string) error {
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	body, _, _, asked := s.client().GetObject(ctx, s.bucket.name, key, minio.GetObjectOptions{})
	if asked == nil {
		_ = body.Close()
		return err
	}
	if kind := weir.KindOf(s.failure(ctx, asked, key)); kind == weir.Denied || kind == weir.Invalid {
		return asked
	}
	return err
}

// regionName matches names of regions; they may become part of a host.
var regionName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// otherRegion changes the region if an error says that the used one is wrong. It was only a guess
// (see regionOf), and servers without regions expect us-east-1.
func (s *s3) otherRegion(err error, used *regional) bool {
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return false
	}
	switch e.Code {
	case "AuthorizationHeaderMalformed", "InvalidRegion", "InvalidRegionName", "PermanentRedirect":
	default:
		return false
	}
	if s.client() != used {
		return true // another request changed it already
	}
	region := cmp.Or(e.Region, "us-east-1")
	return region != used.region && regionName.MatchString(region) && s.useRegion(region) == nil
}

func (s *s3) Put(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if at, ok := r.(readerAtSeeker); ok && size >= 0 {
		start, err := at.Seek(0, io.SeekCurrent)
		if err != nil {
			return fmt.Errorf("put %s: %w", key, err)
		}
		section := io.NewSectionReader(at, start, size)
		if err := endsAt(at, start+size); err != nil {
			return fmt.Errorf("put %s: %w", key, err)
		}
		if size <= maxPut {
			return s.putOne(ctx, key, section, size, o)
		}
		return s.putFile(ctx, key, section, size, o)
	}
	return s.putReader(ctx, key, r, size, o)
}

type readerAtSeeker interface {
	io.ReaderAt
	io.Seeker
}

// endsAt checks that there are not more bytes than promised.
func endsAt(r io.ReaderAt, end int64) error {
	var one [1]byte
	switch n, err := r.ReadAt(one[:], end); {
	case n > 0:
		return fmt.Errorf("more than the expected %d bytes were read", end)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// putOne sends an object in one request.
func (s *s3) putOne(ctx context.Context, key string, r io.ReadSeeker, size int64, o PutOptions) error {
	opts := putOptions(o)
	opts.DisableContentSha256 = true // it is in the signature already
	return s.sendBody(ctx, key, r, size, func(ctx context.Context, body io.Reader, sums sums) error {
		_, err := s.client().PutObject(ctx, s.bucket.name, s.bucket.object(key), body, size, sums.md5, sums.sha256, opts)
		return err
	})
}

// sendBody makes a request with a body of size bytes, with retries.
func (s *s3) sendBody(ctx context.Context, key string, r io.ReadSeeker, size int64, request func(context.Context, io.Reader, sums) error) error {
	sums, err := digest(r, size)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return s.do(ctx, s.timing.stall, key, func(ctx context.Context, moved func()) error {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		body := &sentBody{r: r, moved: moved}
		defer body.end()
		return request(ctx, body, sums)
	})
}

func putOptions(o PutOptions) minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: o.ContentType, CacheControl: o.CacheControl}
}

// sums are the hashes of a body, encoded for the headers.
type sums struct {
	md5, sha256 string
}

// digest hashes a body of size bytes, from its start.
func digest(r io.ReadSeeker, size int64) (sums, error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return sums{}, err
	}
	m, h := md5.New(), sha256.New()
	n, err := io.Copy(io.MultiWriter(m, h), r)
	if err != nil {
		return sums{}, err
	}
	if n != size {
		return sums{}, errSize(n, size)
	}
	return sums{base64.StdEncoding.EncodeToString(m.Sum(nil)), hex.EncodeToString(h.Sum(nil))}, nil
}

// putReader sends a body that can be read only once, in parts if it is large.
func (s *s3) putReader(ctx context.Context, key string, r io.Reader, size int64, o PutOptions) error {
	part := readerPart
	if size >= 0 {
		part = int(max(readerPart, partSize(size)))
	}
	buffer, err := readPart(ctx, r, nil, part, size)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	if len(buffer) < part {
		if size >= 0 && int64(len(buffer)) != size {
			return fmt.Errorf("put %s: %w", key, errSize(int64(len(buffer)), size))
		}
		return s.putOne(ctx, key, bytes.NewReader(buffer), int64(len(buffer)), o)
	}
	return s.inParts(ctx, key, o, func(u *s3Upload) ([]PartInfo, error) {
		var parts []PartInfo
		total := int64(0)
		for len(buffer) > 0 || len(parts) == 0 {
			p, err := u.Part(ctx, len(parts)+1, bytes.NewReader(buffer), int64(len(buffer)))
			if err != nil {
				return nil, err
			}
			parts, total = append(parts, p), total+p.Size
			if buffer, err = readPart(ctx, r, buffer[:0], part, size); err != nil {
				return nil, err
			}
		}
		if size >= 0 && total != size {
			return nil, errSize(total, size)
		}
		return parts, nil
	})
}

// readPart reads the next upload part of a reader; only the last is shorter. The buffer of a small object
// is no larger than the object.
func readPart(ctx context.Context, r io.Reader, buffer []byte, part int, size int64) ([]byte, error) {
	if cap(buffer) == 0 && size >= 0 && size < int64(part) {
		buffer = make([]byte, 0, size+1)
	}
	b := bytes.NewBuffer(buffer)
	_, err := io.Copy(b, io.LimitReader(withContext(ctx, r), int64(part)))
	return b.Bytes(), err
}

// partSize returns the smallest size of the parts of an object for which they are not too many.
func partSize(size int64) int64 {
	const round = 1 << 20
	least := (size + maxParts - 1) / maxParts
	return (least + round - 1) / round * round
}

func (s *s3) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	if err := checkKey(key); err != nil {
		return nil, Info{}, err
	}
	if offset < 0 {
		return nil, Info{}, errRange(key, offset, 0)
	}
	if length == 0 {
		return s.emptyRange(ctx, key, offset)
	}
	want := span{offset, -1}
	if length > 0 {
		want.to = offset + length
	}
	r, res, err := openReader(ctx, object{s, s.bucket.object(key)}, want, version{}, s.timing)
	if weir.KindOf(err) == weir.Invalid && offset > 0 {
		// Maybe the offset is too large.
		if r, info, e := s.emptyRange(ctx, key, offset); e == nil && offset == info.Size {
			return r, info, nil
		} else if e == nil && offset > info.Size {
			return nil, Info{}, errRange(key, offset, info.Size)
		}
	}
	if err != nil {
		return nil, Info{}, err
	}
	return r, Info{Key: key, Size: res.version.size, ETag: res.version.etag}, nil
}

// emptyRange returns an empty range of an object.
func (s *s3) emptyRange(ctx context.Context, key string, offset int64) (io.ReadCloser, Info, error) {
	info, err := s.Stat(ctx, key)
	if err == nil && offset > info.Size {
		err = errRange(key, offset, info.Size)
	}
	return http.NoBody, info, err
}

// object is an object of a bucket as an origin.
type object struct {
	s3  *s3
	key string // in the bucket, the prefix included
}

func (o object) String() string { return o.s3.bucket.host }

func (o object) open(ctx context.Context, s span, v version) (response, error) {
	opts := minio.GetObjectOptions{}
	if h := s.header(); h != "" {
		opts.Set("Range", h)
	}
	if v.etag != "" {
		if err := opts.SetMatchETag(v.etag); err != nil {
			return response{}, err
		}
	}
	used := o.s3.client()
	body, info, header, err := used.GetObject(ctx, o.s3.bucket.name, o.key, opts)
	if o.s3.otherRegion(err, used) {
		body, info, header, err = o.s3.client().GetObject(ctx, o.s3.bucket.name, o.key, opts)
	}
	if err != nil {
		return response{}, o.s3.failure(ctx, err, o.key)
	}
	res := response{body: body, whole: true}
	res.version = version{etag: info.ETag, modified: header.Get("Last-Modified"), size: info.Size}
	if r := header.Get("Content-Range"); r != "" {
		got, total, err := parseContentRange(r)
		if err != nil || got.from != s.from {
			return response{}, errors.Join(weir.Errorf(weir.Upstream, "%s sent another byte range than requested (%q)", o, cut(r, 60)), body.Close())
		}
		res.from, res.version.size, res.whole = got.from, total, false
	}
	return res, nil
}

// header returns the Range header for a span; "" for all.
func (s span) header() string {
	switch {
	case s.to >= 0:
		return "bytes=" + strconv.FormatInt(s.from, 10) + "-" + strconv.FormatInt(s.to-1, 10)
	case s.from > 0:
		return "bytes=" + strconv.FormatInt(s.from, 10) + "-"
	}
	return ""
}

func (s *s3) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	info, err := s.stat(ctx, s.bucket.object(key))
	return Info{Key: key, Size: info.Size, ETag: info.ETag}, err
}

func (s *s3) stat(ctx context.Context, object string) (info minio.ObjectInfo, err error) {
	err = s.do(ctx, s.timing.stall, object, func(ctx context.Context, _ func()) (err error) {
		info, err = s.client().StatObject(ctx, s.bucket.name, object, minio.StatObjectOptions{})
		return err
	})
	return info, err
}

func (s *s3) List(ctx context.Context, folder string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		folder, err := folderKey(folder)
		if err != nil {
			yield(Info{}, err)
			return
		}
		for o, err := range s.list(ctx, folder) {
			if err == nil && strings.HasSuffix(o.Key, "/") {
				continue // some programs mark folders with such objects
			}
			info := Info{Key: strings.TrimPrefix(o.Key, s.folder("")), Size: o.Size, ETag: o.ETag}
			if !yield(info, err) {
				return
			}
		}
	}
}

// list returns the objects of a folder, as in the bucket. After a failure it continues after the
// last object.
func (s *s3) list(ctx context.Context, folder string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		last, stopped := "", false
		// The time in yield counts, too, so the timeout is the long one.
		err := s.do(ctx, s.timing.finish, folder, func(ctx context.Context, moved func()) error {
			opts := minio.ListObjectsOptions{Prefix: s.folder(folder), Recursive: true, StartAfter: last, FetchOwner: new(false)}
			for o := range s.client().ListObjectsIter(ctx, s.bucket.name, opts) {
				if o.Err != nil {
					return o.Err
				}
				last = o.Key
				if stopped = !yield(o, nil); stopped {
					return nil
				}
				moved()
			}
			return ctx.Err()
		})
		if err != nil && !stopped {
			yield(minio.ObjectInfo{}, err)
		}
	}
}

// folder returns the prefix in the bucket of all keys of a folder.
func (s *s3) folder(folder string) string {
	object := strings.TrimSuffix(s.bucket.object(folder), "/")
	if object == "" {
		return ""
	}
	return object + "/"
}

func (s *s3) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return ignoreNotFound(s.do(ctx, s.timing.stall, key, func(ctx context.Context, _ func()) error {
		return s.client().RemoveObject(ctx, s.bucket.name, s.bucket.object(key), minio.RemoveObjectOptions{})
	}))
}

func ignoreNotFound(err error) error {
	if weir.KindOf(err) == weir.NotFound {
		return nil
	}
	return err
}

func (s *s3) DeletePrefix(ctx context.Context, folder string) error {
	folder, err := oneFolder(folder)
	if err != nil {
		return err
	}
	var batch []minio.ObjectInfo
	for info, err := range s.list(ctx, folder) {
		if err != nil {
			return err
		}
		if batch = append(batch, info); len(batch) == deleteAtOnce {
			if err := s.deleteObjects(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := s.deleteObjects(ctx, batch); err != nil {
		return err
	}
	return s.abortBelow(ctx, folder)
}

// deleteAtOnce is how many objects one request can delete.
const deleteAtOnce = 1000

func (s *s3) deleteObjects(ctx context.Context, objects []minio.ObjectInfo) error {
	if len(objects) == 0 {
		return nil
	}
	return s.do(ctx, s.timing.finish, objects[0].Key, func(ctx context.Context, moved func()) error {
		results, err := s.client().RemoveObjectsWithIter(ctx, s.bucket.name, slices.Values(objects), minio.RemoveObjectsOptions{})
		if err != nil {
			return err
		}
		for r := range results {
			moved()
			if r.Err != nil && err == nil {
				err = r.Err
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	})
}
