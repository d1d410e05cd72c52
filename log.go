package main

import (
	"log/slog"
	"os"
)

// newLogger returns a logger that writes for people when f is a terminal, and
// JSON for programs otherwise.
func newLogger(f *os.File, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(f, options))
	}
	return slog.New(slog.NewJSONHandler(f, options))
}
