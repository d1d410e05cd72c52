package store

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacked sets how long data of a connection may stay unacknowledged.
func limitUnacked(conn syscall.RawConn, limit time.Duration) error {
	var err error
	ctl := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	return errors.Join(ctl, err)
}
