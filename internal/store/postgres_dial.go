package store

import (
	"net"
	"strings"
	"syscall"
	"time"
)

// unackedLimit is how long data may stay unacknowledged before the system gives a connection up.
// Its default is about 15 minutes, in which a server that has lost its network looks busy.
const unackedLimit = 10 * time.Second

// dialer returns the dialer of connections to PostgreSQL.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		// The connection that listens sends nothing by itself.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control: func(network, _ string, conn syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") { // a Unix socket
				return nil
			}
			return limitUnacked(conn, unackedLimit)
		},
	}
}
