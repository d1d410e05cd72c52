package blob

import (
	"context"
	"hash"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// defaultWindow is how much is asked for at a time when a source is read in
	// several places.
	defaultWindow = 16 << 20
	// fewWindows are read faster by one connection than it takes to have more.
	fewWindows = 3
	// connections is in how many places at most.
	connections = 4
	// defaultFast is a rate in bytes per second at which more connections would bring
	// nothing but work.
	defaultFast = 50 << 20
)

func (f *Fetcher) windowSize() int64 {
	if f.window > 0 {
		return f.window
	}
	return defaultWindow
}

// isFast reports whether one connection is enough, as it brought n bytes in that time.
func (f *Fetcher) isFast(n int64, took time.Duration) bool {
	fast := f.fast
	if fast == 0 {
		fast = defaultFast
	}
	return float64(n) > float64(fast)*took.Seconds()
}

// piece is what is left to read of a window.
type piece struct {
	span
	window int
}

// windows are the parts of a source that is read in several places.
//
// One reader has timeout and stays until all is there. The others are there for
// speed: one that the server does not like gives back what it has not read, and leaves.
type windows struct {
	origin  origin
	version version
	spool   Spool

	spans []span
	queue chan piece      // what nobody reads at the moment
	done  []chan struct{} // closed when a window is there
	all   chan struct{}   // closed when all of them are

	mu       sync.Mutex
	left     int   // windows that are not there
	arrived  int64 // bytes
	progress func(done, total int64)
}

// inWindows reads what comes after the first window.
func (f *Fetcher) inWindows(ctx context.Context, o origin, v version, spool Spool, s *sink, h hash.Hash) error {
	w := newWindows(o, v, spool, span{s.done, v.size}, f.windowSize(), s.progress)
	t := f.tempo.orDefault()
	hurried := t
	hurried.tries = min(2, t.tries)

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.readAll(gctx, t, true) })
	for range connections - 1 {
		g.Go(func() error { return w.readAll(gctx, hurried, false) })
	}
	g.Go(func() error { return w.follow(gctx, h) })
	if err := g.Wait(); err != nil {
		return err
	}
	s.done = v.size
	return nil
}

// newWindows cuts what is left into windows.
func newWindows(o origin, v version, spool Spool, left span, window int64, progress func(done, total int64)) *windows {
	w := &windows{origin: o, version: v, spool: spool, progress: progress, arrived: left.from, all: make(chan struct{})}
	for from := left.from; from < left.to; from += window {
		w.spans = append(w.spans, span{from, min(from+window, left.to)})
		w.done = append(w.done, make(chan struct{}))
	}
	w.left = len(w.spans)
	w.queue = make(chan piece, len(w.spans)+connections)
	for i, s := range w.spans {
		w.queue <- piece{s, i}
	}
	return w
}

// readAll reads pieces until there are no more. If the server fails, one that does not
// stay gives its piece back and leaves.
func (w *windows) readAll(ctx context.Context, t tempo, stay bool) error {
	for {
		var p piece
		select {
		case p = <-w.queue:
		case <-w.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		at, err := w.readPiece(ctx, t, p)
		if err == nil {
			continue
		}
		if stay || !worthRetry(err) || ctx.Err() != nil {
			return err
		}
		p.from = at
		w.queue <- p
		return nil
	}
}

// readPiece returns how far it came.
func (w *windows) readPiece(ctx context.Context, t tempo, p piece) (int64, error) {
	r, _, err := openReader(ctx, w.origin, p.span, w.version, t)
	if err != nil {
		return p.from, err
	}
	return w.read(r, p)
}

// read writes a piece to its place.
func (w *windows) read(r *reader, p piece) (at int64, err error) {
	defer func() { _ = r.Close() }()
	buffer := make([]byte, copyBuffer)
	at = p.from
	for at < p.to {
		n, err := r.Read(buffer[:min(int64(len(buffer)), p.to-at)])
		if n > 0 {
			if _, err := w.spool.WriteAt(buffer[:n], at); err != nil {
				return at, diskError(err, "write source")
			}
			at += int64(n)
			w.arrive(int64(n))
		}
		if err != nil && at < p.to {
			return at, unexpected(err)
		}
	}
	close(w.done[p.window])
	w.finish()
	return at, nil
}

func (w *windows) arrive(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived += n
	w.progress(w.arrived, w.version.size)
}

func (w *windows) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.all)
	}
}

// follow hashes the windows in their order, each as soon as it is there. They were
// written just now, so the file system has them in memory.
func (w *windows) follow(ctx context.Context, h hash.Hash) error {
	for i, done := range w.done {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s := w.spans[i]
		if _, err := io.Copy(h, io.NewSectionReader(w.spool, s.from, s.to-s.from)); err != nil {
			return diskError(err, "read source again")
		}
	}
	return nil
}
