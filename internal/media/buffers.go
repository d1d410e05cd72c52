package media

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxBuffers bounds the buffers of one system call.
const maxBuffers = 1024

// writeAt writes buffers to an offset of a file, without joining them first.
func writeAt(f *os.File, buffers [][]byte, at int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	left := append([][]byte(nil), buffers...)
	for len(left) > 0 {
		var n int
		var failed error
		err := conn.Write(func(fd uintptr) bool {
			n, failed = unix.Pwritev(int(fd), left[:min(len(left), maxBuffers)], at)
			return true
		})
		switch {
		case err != nil:
			return err
		case errors.Is(failed, unix.EINTR):
			continue
		case failed != nil:
			return &os.PathError{Op: "write", Path: f.Name(), Err: failed}
		case n == 0:
			return io.ErrShortWrite
		}
		at += int64(n)
		left = without(left, n)
	}
	return nil
}

// without returns buffers without their first n bytes. It may change buffers.
func without(buffers [][]byte, n int) [][]byte {
	for len(buffers) > 0 && n >= len(buffers[0]) {
		n -= len(buffers[0])
		buffers = buffers[1:]
	}
	if len(buffers) > 0 {
		buffers[0] = buffers[0][n:]
	}
	return buffers
}
