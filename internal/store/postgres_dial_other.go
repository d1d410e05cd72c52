//go:build !linux

package store

import (
	"syscall"
	"time"
)

// limitUnacked does nothing: only Linux has the option.
func limitUnacked(syscall.RawConn, time.Duration) error { return nil }
