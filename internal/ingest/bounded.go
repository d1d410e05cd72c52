package ingest

import (
	"context"
	"log/slog"

	"golang.org/x/time/rate"
)

// What is told of the media of one connection: so many lines a second, and at once.
const (
	mediaLines       = 0.1
	mediaLinesAtOnce = 10
)

// bounded returns a log for what the media of a connection makes weir say, which its
// sender could make it say all the time. What is beyond the bound is left out.
func bounded(log *slog.Logger) *slog.Logger {
	return slog.New(boundedHandler{log.Handler(), rate.NewLimiter(mediaLines, mediaLinesAtOnce)})
}

type boundedHandler struct {
	slog.Handler
	lines *rate.Limiter
}

// Handle writes a line, if there may be one.
func (h boundedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.lines.AllowN(r.Time, 1) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler with the same bound.
func (h boundedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return boundedHandler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup returns a handler with the same bound.
func (h boundedHandler) WithGroup(name string) slog.Handler {
	return boundedHandler{h.Handler.WithGroup(name), h.lines}
}
