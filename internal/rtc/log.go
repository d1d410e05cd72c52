package rtc

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/pion/logging"
)

// loggers writes what pion logs to slog, at level debug: it concerns single connections of
// unauthenticated clients.
type loggers struct{ log *slog.Logger }

func (l loggers) NewLogger(scope string) logging.LeveledLogger {
	return logger{l.log.With("scope", scope)}
}

type logger struct{ log *slog.Logger }

func (l logger) write(format string, args []any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pion", "says", fmt.Sprintf(format, args...))
	}
}

func (l logger) Trace(string)                   {}
func (l logger) Tracef(string, ...any)          {}
func (l logger) Debug(string)                   {}
func (l logger) Debugf(string, ...any)          {}
func (l logger) Info(msg string)                { l.Infof("%s", msg) }
func (l logger) Infof(format string, a ...any)  { l.write(format, a) }
func (l logger) Warn(msg string)                { l.Infof("%s", msg) }
func (l logger) Warnf(format string, a ...any)  { l.write(format, a) }
func (l logger) Error(msg string)               { l.Infof("%s", msg) }
func (l logger) Errorf(format string, a ...any) { l.write(format, a) }
