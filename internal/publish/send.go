package publish

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
)

const (
	typeMP4      = "video/mp4"
	typeTS       = "video/mp2t"
	typePlaylist = "application/x-mpegurl"
	typeDASH     = "application/dash+xml"
)

// maxParts is the maximum number of parts of an upload in S3.
const maxParts = 10_000

// outgoing is an object for the destination.
type outgoing struct {
	key, contentType string
	size             int64
	open             func(context.Context) io.ReadSeekCloser

	// For an object that is uploaded in parts, maybe while it grows:
	parts    *fileState // progress of the upload; nil = it is put with one request
	head     int64      // bytes at its start that are known only when it is complete
	ready    int64      // bytes from its start that will not change, except for the head
	complete bool       // nothing will be added to it
}

// send sends an object to the destination: all of it, or the parts that are ready.
//
// It sends every object of every output, except for files that are signed: see sendSigned.
func (r *run) send(ctx context.Context, o outgoing) error {
	if o.parts != nil {
		return r.sendParts(ctx, o)
	}
	body := o.open(ctx)
	defer body.Close()
	return r.Dest.Put(ctx, o.key, body, o.size, blob.PutOptions{ContentType: o.contentType})
}

func (r *run) sendBytes(ctx context.Context, key, contentType string, data []byte) error {
	open := func(context.Context) io.ReadSeekCloser { return memory{bytes.NewReader(data)} }
	o := outgoing{key: key, contentType: contentType, size: int64(len(data)), open: open}
	return r.send(ctx, o)
}

// memory is a body that needs no closing.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// sendParts uploads the parts that are ready and were not uploaded yet. When the object is complete, it
// uploads the last part too, then the first, and completes the upload.
func (r *run) sendParts(ctx context.Context, o outgoing) error {
	upload, err := r.upload(ctx, o)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for n := 2; n <= o.partCount(); n++ {
		r.mu.Lock()
		_, done := o.parts.Parts[n]
		r.mu.Unlock()
		if !done && groupCtx.Err() == nil {
			group.Go(func() error { return r.sendPart(groupCtx, upload, o, n) })
		}
	}
	if err := group.Wait(); err != nil || !o.complete {
		return err
	}
	if err := r.sendPart(ctx, upload, o, 1); err != nil {
		return err
	}
	return r.complete(ctx, upload, o)
}

// partCount returns how many parts of an object are ready.
func (o outgoing) partCount() int {
	if o.complete {
		return int((o.ready + o.parts.PartSize - 1) / o.parts.PartSize)
	}
	return int(o.ready / o.parts.PartSize)
}

// sendPart uploads part n of an object.
func (r *run) sendPart(ctx context.Context, upload blob.Upload, o outgoing, n int) error {
	start := int64(n-1) * o.parts.PartSize
	size := min(o.parts.PartSize, o.ready-start)
	return r.inSlot(ctx, func() error {
		body := o.open(ctx)
		defer body.Close()
		info, err := upload.Part(ctx, n, io.NewSectionReader(readerAt{body}, start, size), size)
		if err == nil {
			r.change(func() { o.parts.put(info) })
		}
		return err
	})
}

// complete completes the upload of an object, all parts of which were uploaded.
func (r *run) complete(ctx context.Context, upload blob.Upload, o outgoing) error {
	count := o.partCount()
	parts := make([]blob.PartInfo, 0, count)
	for _, n := range slices.Sorted(maps.Keys(o.parts.Parts)) {
		parts = append(parts, o.parts.Parts[n])
	}
	if len(parts) != count {
		return fmt.Errorf("%s: %d of %d parts were uploaded", o.key, len(parts), count)
	}
	if err := upload.Complete(ctx, parts); err != nil {
		return err
	}
	r.change(func() { *o.parts = fileState{Done: true, Size: o.size} })
	return nil
}

// upload resumes the upload of an object, or begins it.
func (r *run) upload(ctx context.Context, o outgoing) (blob.Upload, error) {
	if o.parts.Upload != "" {
		return r.Dest.Resume(ctx, o.key, o.parts.Upload)
	}
	size := max(o.parts.PartSize, r.Dest.PartSize())
	// The number of parts is limited, and the object may become much larger.
	for size*maxParts/8 < o.size || size < o.head {
		size *= 2
	}
	upload, err := r.Dest.Upload(ctx, o.key, blob.PutOptions{ContentType: o.contentType})
	if err != nil {
		return nil, err
	}
	r.change(func() { *o.parts = fileState{Upload: upload.ID(), Head: o.head, PartSize: size} })
	return upload, r.save(ctx)
}

func (s *fileState) put(part blob.PartInfo) {
	if s.Parts == nil { // empty maps don't survive JSON
		s.Parts = map[int]blob.PartInfo{}
	}
	s.Parts[part.Number] = part
}

// readerAt reads a body at any offset, one call at a time.
type readerAt struct{ io.ReadSeeker }

func (r readerAt) ReadAt(p []byte, offset int64) (int, error) {
	if _, err := r.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	return io.ReadFull(r, p)
}
