package media

import (
	"context"

	"weir/internal/blob"
)

// Share puts segment n, as it is stored, under another key. It is not read if the storage can copy it, or
// link the file of a recording on the same disk.
func (t *Track) Share(ctx context.Context, n int, to blob.Store, key string) error {
	if err := t.check(n); err != nil {
		return err
	}
	switch {
	case t.zero: // its bytes are not stored
	case t.growing == nil && t.store == to:
		return to.Copy(ctx, t.SegmentKey(n), key)
	case t.growing != nil && t.growing.immutable(n, t.index.Segments[n].Size()):
		if err := t.growing.recorder.Sync(); err != nil {
			return err
		}
		return blob.Share(ctx, to, key, t.growing.recorder.path(t.growing.numbers[n]), segmentOptions)
	}
	body, size, err := t.Segment(ctx, n)
	if err != nil {
		return err
	}
	defer body.Close()
	return to.Put(ctx, key, body, size, segmentOptions)
}
