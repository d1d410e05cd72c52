package playback

import (
	"context"
	"io"
	"sync"
)

// arriving is a file of another node that may still arrive. Any number of viewers read it meanwhile.
type arriving struct {
	size int64

	mu      sync.Mutex
	data    []byte        // so far
	changed chan struct{} // closed when there is more
	err     error         // why the rest does not come
}

func newArriving(size int64) *arriving {
	return &arriving{size: size, changed: make(chan struct{})}
}

// receive reads the file from its node. An error is one for those who read it too.
func (a *arriving) receive(from io.Reader) error {
	all := make([]byte, a.size)
	for n := 0; n < len(all); {
		more, err := from.Read(all[n:])
		n += more
		a.mu.Lock()
		a.data = all[:n]
		a.wake()
		a.mu.Unlock()
		if err != nil && n < len(all) {
			return a.fail(err)
		}
	}
	return nil
}

// fail ends the file early, and returns why.
func (a *arriving) fail(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = errNoResponse
	a.wake()
	return err
}

// wake wakes those who wait for more. The caller holds the lock.
func (a *arriving) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// reader returns a reader of the file, which waits until ctx ends.
func (a *arriving) reader(ctx context.Context) io.ReadSeeker {
	return io.NewSectionReader(readerAt(func(p []byte, at int64) (int, error) { return a.readAt(ctx, p, at) }), 0, a.size)
}

// readAt is io.ReaderAt, until ctx ends.
func (a *arriving) readAt(ctx context.Context, p []byte, at int64) (n int, err error) {
	for n < len(p) {
		a.mu.Lock()
		data, changed, err := a.data, a.changed, a.err
		a.mu.Unlock()
		n += copy(p[n:], data[min(at+int64(n), int64(len(data))):])
		switch {
		case n == len(p):
			return n, nil
		case at+int64(n) >= a.size:
			return n, io.EOF
		case err != nil:
			return n, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
	return n, nil
}

type readerAt func(p []byte, at int64) (int, error)

func (r readerAt) ReadAt(p []byte, at int64) (int, error) { return r(p, at) }
