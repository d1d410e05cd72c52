package media

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxPieces bounds the pieces of one system call.
const maxPieces = 1024

// writeAt writes pieces to an offset of a file, without joining them first.
func writeAt(f *os.File, pieces [][]byte, at int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	left := append([][]byte(nil), pieces...)
	for len(left) > 0 {
		var n int
		var failed error
		err := conn.Write(func(fd uintptr) bool {
			n, failed = unix.Pwritev(int(fd), left[:min(len(left), maxPieces)], at)
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
		left = behind(left, n)
	}
	return nil
}

// behind returns pieces without their first n bytes. It may change pieces.
func behind(pieces [][]byte, n int) [][]byte {
	for len(pieces) > 0 && n >= len(pieces[0]) {
		n -= len(pieces[0])
		pieces = pieces[1:]
	}
	if len(pieces) > 0 {
		pieces[0] = pieces[0][n:]
	}
	return pieces
}
