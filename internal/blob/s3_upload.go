package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"weir/internal/weir"
)

// copyPart is the size of the parts of an object that is copied in parts.
const copyPart = 1 << 30

// s3Upload is a multipart upload.
type s3Upload struct {
	s3  *s3
	key string
	id  string
}

func (s *s3) Upload(ctx context.Context, key string, o PutOptions) (Upload, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return s.upload(ctx, key, o)
}

func (s *s3) upload(ctx context.Context, key string, o PutOptions) (*s3Upload, error) {
	u := &s3Upload{s3: s, key: key}
	err := s.do(ctx, s.tempo.stall, key, func(ctx context.Context, _ func()) (err error) {
		u.id, err = s.client().NewMultipartUpload(ctx, s.bucket.name, s.bucket.object(key), putOptions(o))
		return err
	})
	if err == nil && u.id == "" {
		err = weir.Errorf(weir.Upstream, "the storage at %s began an upload without a name", s.bucket.host)
	}
	return u, err
}

func (s *s3) Resume(ctx context.Context, key, uploadID string) (Upload, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if uploadID == "" {
		return nil, weir.ErrNotFound()
	}
	err := s.do(ctx, s.tempo.stall, key, func(ctx context.Context, _ func()) error {
		_, err := s.client().ListObjectParts(ctx, s.bucket.name, s.bucket.object(key), uploadID, 0, 1)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &s3Upload{s, key, uploadID}, nil
}

func (u *s3Upload) ID() string { return u.id }

func (u *s3Upload) Part(ctx context.Context, n int, r io.ReadSeeker, size int64) (PartInfo, error) {
	if n < 1 || n > maxParts {
		return PartInfo{}, fmt.Errorf("part %d of %s: parts have numbers from 1 to %d", n, u.key, maxParts)
	}
	sums, err := digest(r, size)
	if err != nil {
		return PartInfo{}, fmt.Errorf("part %d of %s: %w", n, u.key, err)
	}
	opts := minio.PutObjectPartOptions{Md5Base64: sums.md5, Sha256Hex: sums.sha256, DisableContentSha256: true}
	s := u.s3
	var part minio.ObjectPart
	err = s.do(ctx, s.tempo.stall, u.key, func(ctx context.Context, moved func()) error {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		body := &sentBody{r: r, moved: moved}
		defer body.end()
		var err error
		part, err = s.client().PutObjectPart(ctx, s.bucket.name, s.bucket.object(u.key), u.id, n, body, size, opts)
		return err
	})
	return PartInfo{Number: n, Size: size, ETag: part.ETag}, err
}

func (u *s3Upload) Complete(ctx context.Context, parts []PartInfo) error {
	if err := checkParts(parts); err != nil {
		return err
	}
	complete := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		complete[i] = minio.CompletePart{PartNumber: p.Number, ETag: p.ETag}
	}
	s := u.s3
	tried := 0
	err := s.do(ctx, s.tempo.finish, u.key, func(ctx context.Context, _ func()) error {
		tried++
		_, err := s.client().CompleteMultipartUpload(ctx, s.bucket.name, s.bucket.object(u.key), u.id, complete, minio.PutObjectOptions{})
		return err
	})
	if tried > 1 && weir.KindOf(err) == weir.NotFound {
		// An earlier try may have worked although its answer was lost.
		return u.completed(ctx, parts, err)
	}
	return err
}

// completed returns nil if the object is there as the parts make it, else err.
func (u *s3Upload) completed(ctx context.Context, parts []PartInfo, err error) error {
	total := int64(0)
	for _, p := range parts {
		total += p.Size
	}
	if info, e := u.s3.Stat(ctx, u.key); e == nil && info.Size == total {
		return nil
	}
	return err
}

func (u *s3Upload) Abort(ctx context.Context) error {
	s := u.s3
	err := s.do(ctx, s.tempo.stall, u.key, func(ctx context.Context, _ func()) error {
		return s.client().AbortMultipartUpload(ctx, s.bucket.name, s.bucket.object(u.key), u.id)
	})
	if weir.KindOf(err) == weir.NotFound {
		return nil
	}
	return err
}

// abortTimeout is how long the clean-up after a failure may take.
const abortTimeout = 10 * time.Second

// inParts makes an object of the parts that send stores, or nothing at all.
func (s *s3) inParts(ctx context.Context, key string, o PutOptions, send func(*s3Upload) ([]PartInfo, error)) error {
	u, err := s.upload(ctx, key, o)
	if err != nil {
		return err
	}
	parts, err := send(u)
	if err == nil {
		err = u.Complete(ctx, parts)
	}
	if err == nil {
		return nil
	}
	// Parts that nobody completes cost their owner money.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if e := u.Abort(cleanup); e != nil {
		err = errors.Join(err, fmt.Errorf("abort upload: %w", e))
	}
	return err
}

// putFile sends parts of a file, several at a time.
func (s *s3) putFile(ctx context.Context, key string, r io.ReaderAt, size int64, o PutOptions) error {
	part := max(filePart, partSize(size))
	return s.inParts(ctx, key, o, func(u *s3Upload) ([]PartInfo, error) {
		parts := make([]PartInfo, (size+part-1)/part)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i := range parts {
			g.Go(func() (err error) {
				from := int64(i) * part
				length := min(part, size-from)
				parts[i], err = u.Part(ctx, i+1, io.NewSectionReader(r, from, length), length)
				return err
			})
		}
		return parts, g.Wait()
	})
}

func (s *s3) Copy(ctx context.Context, from, to string) error {
	if err := errors.Join(CheckKey(from), CheckKey(to)); err != nil {
		return err
	}
	if from == to {
		_, err := s.Stat(ctx, from)
		return err
	}
	err := s.do(ctx, s.tempo.finish, from, func(ctx context.Context, _ func()) error {
		_, err := s.client().CopyObject(ctx, s.bucket.name, s.bucket.object(from), s.bucket.name, s.bucket.object(to),
			nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		return err
	})
	// More than 5 GB can't be copied in one request, and servers differ in what they
	// say then.
	if weir.KindOf(err) == weir.Invalid {
		info, e := s.stat(ctx, s.bucket.object(from))
		if e == nil && info.Size > MinPart {
			return s.copyInParts(ctx, from, to, info)
		}
	}
	return err
}

// copyInParts lets the server copy a large object.
func (s *s3) copyInParts(ctx context.Context, from, to string, info minio.ObjectInfo) error {
	o := PutOptions{ContentType: info.ContentType, CacheControl: info.Metadata.Get("Cache-Control")}
	part := max(s.copyPart, partSize(info.Size))
	return s.inParts(ctx, to, o, func(u *s3Upload) ([]PartInfo, error) {
		parts := make([]PartInfo, (info.Size+part-1)/part)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i := range parts {
			g.Go(func() error {
				start := int64(i) * part
				length := min(part, info.Size-start)
				etag, err := s.copyOnePart(ctx, u, from, i+1, span{start, start + length}, info.ETag)
				parts[i] = PartInfo{Number: i + 1, Size: length, ETag: etag}
				return err
			})
		}
		return parts, g.Wait()
	})
}

func (s *s3) copyOnePart(ctx context.Context, u *s3Upload, from string, n int, p span, etag string) (string, error) {
	// What is copied must be one object, not parts of two that had the same name.
	header := map[string]string{"x-amz-copy-source-if-match": etag}
	var part minio.CompletePart
	err := s.do(ctx, s.tempo.finish, from, func(ctx context.Context, _ func()) (err error) {
		part, err = s.client().CopyObjectPart(ctx, s.bucket.name, s.bucket.object(from), s.bucket.name, s.bucket.object(u.key),
			u.id, n, p.from, p.to-p.from, header)
		return err
	})
	return part.ETag, err
}

// abortBelow aborts the uploads to a folder. A server that can't list them has none
// that could be found.
func (s *s3) abortBelow(ctx context.Context, folder string) error {
	const pages = 100 // or a server that aborts nothing would be asked for ever
	for range pages {
		var found minio.ListMultipartUploadsResult
		err := s.do(ctx, s.tempo.stall, folder, func(ctx context.Context, _ func()) (err error) {
			found, err = s.client().ListMultipartUploads(ctx, s.bucket.name, s.folder(folder), "", "", "", 1000)
			return err
		})
		if worthRetry(err) || ctx.Err() != nil {
			return err
		}
		if err != nil || len(found.Uploads) == 0 {
			return nil
		}
		for _, up := range found.Uploads {
			err := s.do(ctx, s.tempo.stall, up.Key, func(ctx context.Context, _ func()) error {
				return s.client().AbortMultipartUpload(ctx, s.bucket.name, up.Key, up.UploadID)
			})
			if err != nil && weir.KindOf(err) != weir.NotFound {
				return err
			}
		}
		if !found.IsTruncated {
			return nil
		}
	}
	return weir.Errorf(weir.Upstream, "the storage at %s keeps uploads that were aborted", s.bucket.host)
}
