package server

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
)

// newLogger returns a logger that writes text to a terminal and JSON to everything else. flush writes the
// buffered lines; call it before the process ends.
func newLogger(f *os.File, level slog.Level) (log *slog.Logger, flush func()) {
	options := &slog.HandlerOptions{Level: level}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(f, options)), func() {}
	}
	w := &lineBuffer{out: bufio.NewWriterSize(f, 32<<10)}
	return slog.New(promptHandler{slog.NewJSONHandler(w, options), w}), w.flush
}

// lineDelay is how long a line may wait for the next ones.
const lineDelay = 100 * time.Millisecond

// lineBuffer writes several lines at once: a system call for each request would take a tenth of the time
// of a small response.
type lineBuffer struct {
	mu      sync.Mutex
	out     *bufio.Writer
	pending bool // a flush is due
}

func (b *lineBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.pending {
		b.pending = true
		time.AfterFunc(lineDelay, b.flush)
	}
	return b.out.Write(line)
}

func (b *lineBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = false
	_ = b.out.Flush() // there is nowhere to report it to
}

// promptHandler writes warnings and errors at once: they may be the last lines of the process.
type promptHandler struct {
	slog.Handler
	buffer *lineBuffer
}

func (h promptHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.buffer.flush()
	}
	return err
}

func (h promptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return promptHandler{h.Handler.WithAttrs(attrs), h.buffer}
}

func (h promptHandler) WithGroup(name string) slog.Handler {
	return promptHandler{h.Handler.WithGroup(name), h.buffer}
}
