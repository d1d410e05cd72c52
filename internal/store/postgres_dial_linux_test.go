package store

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUnackedLimit checks what the system was told of a connection.
func TestUnackedLimit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialer(time.Minute).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var limit, alive int
	if err := raw.Control(func(fd uintptr) {
		limit, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		alive, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
	}); err != nil {
		t.Fatal(err)
	}
	if limit != 10_000 || alive != 1 {
		t.Errorf("data may be unacknowledged for %d ms, keep-alive is %d; want 10000 and 1", limit, alive)
	}
}

// TestUnixSocket checks that a database on a Unix socket can be dialed.
func TestUnixSocket(t *testing.T) {
	listener, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialer(time.Minute).DialContext(t.Context(), "unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
