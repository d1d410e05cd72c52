package media

import (
	"context"
	"io"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

func (t *Track) openShifted(ctx context.Context, n int, offset, length int64) (io.ReadCloser, error) {
	b := &shiftedBody{ticks: t.index.ZeroShift(), parts: t.index.Segments[n].Parts}
	at := int64(0) // start of the part that contains offset
	for len(b.parts) > 0 && offset-at >= b.parts[0].Size() {
		at += b.parts[0].Size()
		b.parts = b.parts[1:]
	}
	from := at
	if len(b.parts) > 0 && offset-at >= int64(b.parts[0].Head) {
		from, b.data = offset, b.parts[0].Size()-(offset-at)
		b.parts = b.parts[1:]
	}
	body, err := t.openStored(ctx, n, from, -1)
	if err != nil {
		return nil, err
	}
	b.ReadCloser = body
	if _, err := io.CopyN(io.Discard, b, offset-from); err != nil {
		body.Close()
		return nil, weir.Wrap(weir.Upstream, err, "could not read a segment from storage")
	}
	if length < 0 {
		return b, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(b, length), b}, nil
}

// shiftedBody reads a stored segment and adds ticks to the decode times of its parts.
type shiftedBody struct {
	io.ReadCloser
	ticks int64
	parts []cmaf.Part // after the current part
	head  []byte      // rest of the head of the current part
	data  int64       // unread bytes of samples of the current part
}

func (b *shiftedBody) Read(p []byte) (n int, err error) {
	if len(b.head) == 0 && b.data == 0 {
		if len(b.parts) == 0 {
			return 0, io.EOF
		}
		part := b.parts[0]
		head := make([]byte, part.Head)
		if _, err := io.ReadFull(b.ReadCloser, head); err != nil {
			return 0, err
		}
		if err := cmaf.ShiftPart(head, b.ticks); err != nil {
			return 0, err
		}
		b.head, b.data, b.parts = head, part.Size()-int64(part.Head), b.parts[1:]
	}
	if len(b.head) > 0 {
		n = copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	n, err = b.ReadCloser.Read(p[:min(int64(len(p)), b.data)])
	b.data -= int64(n)
	return n, err
}
