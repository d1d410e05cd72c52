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

// copyPart is the size of parts when an object is copied in parts.
const copyPart = 1 << 30

type s3Upload struct {
	s3  *s3
	key string
	id  string
}

func (s *s3) Upload(ctx context.Context, key string, o PutOptions) (Upload, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return s.upload(ctx, key, o)
}

func (s *s3) upload(ctx context.Context, key string, o PutOptions) (*s3Upload, error) {
	u := &s3Upload{s3: s, key: key}
	err := s.do(ctx, s.timing.stall, key, func(ctx context.Context, _ func()) (err error) {
		u.id, err = s.client().NewMultipartUpload(ctx, s.bucket.name, s.bucket.object(key), putOptions(o))
		return err
	})
	if err == nil && u.id == "" {
		err = weir.Errorf(weir.Upstream, "the storage at %s returned no upload id for a multipart upload", s.bucket.host)
	}
	return u, err
}

func (s *s3) Resume(ctx context.Context, key, uploadID string) (Upload, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if uploadID == "" {
		return nil, weir.ErrNotFound()
	}
	err := s.do(ctx, s.timing.stall, key, func(ctx context.Context, _ func()) error {
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
		return PartInfo{}, fmt.Errorf("upload part %d of %s: the numbers are 1 to %d", n, u.key, maxParts)
	}
	s := u.s3
	var part minio.ObjectPart
	err := s.sendBody(ctx, u.key, r, size, func(ctx context.Context, body io.Reader, sums sums) (err error) {
		opts := minio.PutObjectPartOptions{Md5Base64: sums.md5, Sha256Hex: sums.sha256, DisableContentSha256: true}
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
	err := s.do(ctx, s.timing.finish, u.key, func(ctx context.Context, _ func()) error {
		tried++
		_, err := s.client().CompleteMultipartUpload(ctx, s.bucket.name, s.bucket.object(u.key), u.id, complete, minio.PutObjectOptions{})
		return err
	})
	if tried > 1 && weir.KindOf(err) == weir.NotFound {
		// An earlier try may have worked although its response was lost.
		return u.completed(ctx, parts, err)
	}
	return err
}

// completed returns nil if the object exists and has the size of all parts, else err.
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
	return u.s3.abort(ctx, u.s3.bucket.object(u.key), u.id)
}

func (s *s3) abort(ctx context.Context, object, id string) error {
	return ignoreNotFound(s.do(ctx, s.timing.stall, object, func(ctx context.Context, _ func()) error {
		return s.client().AbortMultipartUpload(ctx, s.bucket.name, object, id)
	}))
}

// abortTimeout bounds the clean-up after a failure.
const abortTimeout = 10 * time.Second

// inParts makes an object from the parts that send stores. After an error no part is left.
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
	// Parts of an incomplete upload cost their owner money.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if e := u.Abort(cleanup); e != nil {
		err = errors.Join(err, fmt.Errorf("abort upload: %w", e))
	}
	return err
}

// manyParts makes an object of size bytes from parts, several at a time. send stores part n.
func (s *s3) manyParts(ctx context.Context, key string, o PutOptions, size, part int64,
	send func(ctx context.Context, u *s3Upload, n int, p span) (PartInfo, error),
) error {
	part = max(part, partSize(size))
	return s.inParts(ctx, key, o, func(u *s3Upload) ([]PartInfo, error) {
		parts := make([]PartInfo, (size+part-1)/part)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i := range parts {
			g.Go(func() (err error) {
				from := int64(i) * part
				parts[i], err = send(ctx, u, i+1, span{from, min(from+part, size)})
				return err
			})
		}
		return parts, g.Wait()
	})
}

func (s *s3) putFile(ctx context.Context, key string, r io.ReaderAt, size int64, o PutOptions) error {
	return s.manyParts(ctx, key, o, size, filePart, func(ctx context.Context, u *s3Upload, n int, p span) (PartInfo, error) {
		return u.Part(ctx, n, io.NewSectionReader(r, p.from, p.to-p.from), p.to-p.from)
	})
}

func (s *s3) Copy(ctx context.Context, from, to string) error {
	if err := errors.Join(checkKey(from), checkKey(to)); err != nil {
		return err
	}
	if from == to {
		_, err := s.Stat(ctx, from)
		return err
	}
	err := s.do(ctx, s.timing.finish, from, func(ctx context.Context, _ func()) error {
		_, err := s.client().CopyObject(ctx, s.bucket.name, s.bucket.object(from), s.bucket.name, s.bucket.object(to),
			nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		return err
	})
	// More than 5 GB can't be copied in one request, and servers have different errors for that.
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
	// The parts must be those of one object, not of two that had the same name.
	header := map[string]string{"x-amz-copy-source-if-match": info.ETag}
	return s.manyParts(ctx, to, o, info.Size, s.copyPart, func(ctx context.Context, u *s3Upload, n int, p span) (PartInfo, error) {
		var part minio.CompletePart
		err := s.do(ctx, s.timing.finish, from, func(ctx context.Context, _ func()) (err error) {
			part, err = s.client().CopyObjectPart(ctx, s.bucket.name, s.bucket.object(from), s.bucket.name, s.bucket.object(to),
				u.id, n, p.from, p.to-p.from, header)
			return err
		})
		return PartInfo{Number: n, Size: p.to - p.from, ETag: part.ETag}, err
	})
}

// abortBelow aborts the uploads to a folder. It does nothing if the server can't list them.
func (s *s3) abortBelow(ctx context.Context, folder string) error {
	const pages = 100 // the bound for a server that aborts nothing
	for range pages {
		var found minio.ListMultipartUploadsResult
		err := s.do(ctx, s.timing.stall, folder, func(ctx context.Context, _ func()) (err error) {
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
			if err := s.abort(ctx, up.Key, up.UploadID); err != nil {
				return err
			}
		}
		if !found.IsTruncated {
			return nil
		}
	}
	return weir.Errorf(weir.Upstream, "the storage at %s still lists uploads after they were aborted", s.bucket.host)
}
