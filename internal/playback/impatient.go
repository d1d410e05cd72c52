package playback

import (
	"context"
	"io"
	"time"

	"weir/internal/blob"
	"weir/internal/weir"
)

// storageWait is how long a viewer waits for the storage to begin to answer. A bucket that hangs would
// hold a request for minutes, in which it is tried again, and players give up after ten seconds.
const storageWait = 5 * time.Second

// storageRetry is when a viewer should try again after a failure of the storage.
const storageRetry = time.Second

var errStorageLate = weir.Errorf(weir.Upstream, "the storage did not answer in time")

// impatient is a storage for viewers.
type impatient struct {
	blob.Store
	wait time.Duration
}

func (s impatient) Stat(ctx context.Context, key string) (blob.Info, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.wait, errStorageLate)
	defer cancel()
	return s.Store.Stat(ctx, key)
}

// Get waits for the beginning of the content. How long the rest takes depends on the viewer.
func (s impatient) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.wait, func() { cancel(errStorageLate) })
	body, info, err := s.Store.Get(ctx, key, offset, length)
	if late.Stop(); err != nil {
		cancel(nil)
		return nil, info, err
	}
	return awaited{body, cancel}, info, nil
}

// awaited is the content of an object, whose context ends with it.
type awaited struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (a awaited) Close() error {
	err := a.ReadCloser.Close()
	a.cancel(nil)
	return err
}
