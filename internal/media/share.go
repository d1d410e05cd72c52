package media

import (
	"context"

	"weir/internal/blob"
)

// Share puts segment n, as it is stored, under another key. It is not read if the storage can copy it.
func (t *Track) Share(ctx context.Context, n int, to blob.Store, key string) error {
	if err := t.check(n); err != nil {
		return err
	}
	if to == t.store {
		return to.Copy(ctx, t.SegmentKey(n), key)
	}
	body, size, err := t.Segment(ctx, n)
	if err != nil {
		return err
	}
	defer body.Close()
	return to.Put(ctx, key, body, size, segmentOptions)
}
