package ingest

import (
	"context"
	"log/slog"

	"golang.org/x/time/rate"
)

// The maximum number of log lines about the media of one connection: per second, and at once.
const (
	mediaLines       = 0.1
	mediaLinesAtOnce = 10
)

// bounded returns a logger for messages that a client can cause as often as it wants. It drops
// those beyond the limit.
func bounded(log *slog.Logger) *slog.Logger {
	return slog.New(boundedHandler{log.Handler(), rate.NewLimiter(mediaLines, mediaLinesAtOnce)})
}

type boundedHandler struct {
	slog.Handler
	lines *rate.Limiter
}

func (h boundedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.lines.AllowN(r.Time, 1) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h boundedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return boundedHandler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h boundedHandler) WithGroup(name string) slog.Handler {
	return boundedHandler{h.Handler.WithGroup(name), h.lines}
}
