package playback

import (
	"context"
	"errors"
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

// from returns the bytes that are there from an offset on, at least one of them unless it is the end.
func (a *arriving) from(ctx context.Context, at int64) ([]byte, error) {
	for {
		a.mu.Lock()
		data, changed, err := a.data, a.changed, a.err
		a.mu.Unlock()
		switch {
		case at >= a.size:
			return nil, io.EOF
		case at < int64(len(data)):
			return data[at:], nil
		case err != nil:
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reader returns a reader of the file, which waits until ctx ends.
func (a *arriving) reader(ctx context.Context) io.ReadSeeker {
	return &arrivingReader{size: a.size, from: func(at int64) ([]byte, error) { return a.from(ctx, at) }}
}

type arrivingReader struct {
	size, at int64
	from     func(at int64) ([]byte, error)
}

func (r *arrivingReader) Read(b []byte) (int, error) {
	data, err := r.from(r.at)
	n := copy(b, data)
	r.at += int64(n)
	return n, err
}

func (r *arrivingReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("seek to before the start of a file")
	}
	r.at = offset
	return offset, nil
}
