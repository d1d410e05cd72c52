package blob

import (
	"cmp"
	"context"
	"hash"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// defaultWindow is the size of a request when a source is read over several connections.
	defaultWindow = 16 << 20
	// fewWindows is the number of windows up to which one connection is used.
	fewWindows  = 3
	connections = 4
	// defaultFast is the rate in bytes a second from which on one connection is enough.
	defaultFast = 50 << 20
)

func (f *Fetcher) windowSize() int64 { return cmp.Or(f.window, defaultWindow) }

// isFast reports whether one connection is enough, if it transferred n bytes in that time.
func (f *Fetcher) isFast(n int64, took time.Duration) bool {
	return float64(n) > float64(cmp.Or(f.fast, defaultFast))*took.Seconds()
}

// windowRest is the unread rest of a window.
type windowRest struct {
	span
	window int
}

// windows are the ranges of a source that is read over several connections.
//
// One reader retries as often as usual and stays until everything was read. The others are only for
// speed: after an error they put their rest back into the queue, and end.
type windows struct {
	origin  origin
	version version
	spool   spool

	spans []span
	queue chan windowRest // not being read at the moment
	done  []chan struct{} // closed when the window was read
	all   chan struct{}   // closed when all of them were read

	mu       sync.Mutex
	left     int   // windows that are not read yet
	arrived  int64 // bytes
	progress func(done, total int64)
}

// inWindows reads everything after the first window.
func (f *Fetcher) inWindows(ctx context.Context, o origin, v version, file spool, s *sink, h hash.Hash) error {
	w := newWindows(o, v, file, span{s.done, v.size}, f.windowSize(), s.progress)
	t := f.timing.orDefault()
	fewTries := t
	fewTries.tries = min(2, t.tries)

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.readAll(gctx, t, true) })
	for range connections - 1 {
		g.Go(func() error { return w.readAll(gctx, fewTries, false) })
	}
	g.Go(func() error { return w.follow(gctx, h) })
	if err := g.Wait(); err != nil {
		return err
	}
	s.done = v.size
	return nil
}

func newWindows(o origin, v version, file spool, left span, window int64, progress func(done, total int64)) *windows {
	w := &windows{origin: o, version: v, spool: file, progress: progress, arrived: left.from, all: make(chan struct{})}
	for from := left.from; from < left.to; from += window {
		w.spans = append(w.spans, span{from, min(from+window, left.to)})
		w.done = append(w.done, make(chan struct{}))
	}
	w.left = len(w.spans)
	w.queue = make(chan windowRest, len(w.spans)+connections)
	for i, s := range w.spans {
		w.queue <- windowRest{s, i}
	}
	return w
}

// readAll reads windows until there are no more. Without stay, it puts its rest back and ends when the
// server fails.
func (w *windows) readAll(ctx context.Context, t timing, stay bool) error {
	for {
		var p windowRest
		select {
		case p = <-w.queue:
		case <-w.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		at, err := w.readRest(ctx, t, p)
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

// readRest writes a rest to the file and returns the offset after the last byte.
func (w *windows) readRest(ctx context.Context, t timing, p windowRest) (int64, error) {
	r, _, err := openReader(ctx, w.origin, p.span, w.version, t)
	if err != nil {
		return p.from, err
	}
	defer func() { _ = r.Close() }()
	buffer := make([]byte, copyBuffer)
	at := p.from
	for at < p.to {
		n, err := r.Read(buffer[:min(int64(len(buffer)), p.to-at)])
		if n > 0 {
			if _, err := w.spool.WriteAt(buffer[:n], at); err != nil {
				return at, diskError(err, "write source")
			}
			at += int64(n)
			w.mu.Lock()
			w.arrived += int64(n)
			w.progress(w.arrived, w.version.size)
			w.mu.Unlock()
		}
		if err != nil && at < p.to {
			return at, unexpected(err)
		}
	}
	close(w.done[p.window])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.all)
	}
	return at, nil
}

// follow hashes the windows in their order, as soon as they were read. They were just written, so the
// file system has them in memory.
func (w *windows) follow(ctx context.Context, h hash.Hash) error {
	for i, done := range w.done {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s := w.spans[i]
		if _, err := io.Copy(h, io.NewSectionReader(w.spool, s.from, s.to-s.from)); err != nil {
			return diskError(err, "hash source")
		}
	}
	return nil
}
