package rtc

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/pion/logging"
)

// loggers lets pion speak through slog. What it has to say is about single connections
// of strangers, so it is only for who looks closely.
type loggers struct{ log *slog.Logger }

// NewLogger returns the logger of a part of pion.
func (l loggers) NewLogger(scope string) logging.LeveledLogger {
	return logger{l.log.With("scope", scope)}
}

type logger struct{ log *slog.Logger }

func (l logger) say(format string, args []any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pion", "says", fmt.Sprintf(format, args...))
	}
}

func (l logger) Trace(string)                  {}
func (l logger) Tracef(string, ...any)         {}
func (l logger) Debug(string)                  {}
func (l logger) Debugf(string, ...any)         {}
func (l logger) Info(msg string)               { l.say("%s", []any{msg}) }
func (l logger) Infof(format string, a ...any) { l.say(format, a) }
func (l logger) Warn(msg string)               { l.say("%s", []any{msg}) }
func (l logger) Warnf(format string, a ...any) { l.say(format, a) }
func (l logger) Error(msg string)              { l.say("%s", []any{msg}) }
func (l logger) Errorf(format string, a ...any) {
	l.say(format, a)
}
