package media

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// section is a range of bytes of a file. Unlike with an io.SectionReader, the kernel can send the
// bytes: package net asks a reader for its SyscallConn, and sends from the offset of the file.
type section struct {
	file        *os.File // its offset, between start and start+size, is that of the reader
	start, size int64
	closed      func() // called when the file is closed
}

var (
	_ syscall.Conn = (*section)(nil)
	_ io.WriterTo  = (*section)(nil)
)

// left returns the number of unread bytes. It asks the file, because the kernel moves its offset
// too.
func (s *section) left() (int64, error) {
	at, err := s.file.Seek(0, io.SeekCurrent)
	return max(0, s.start+s.size-at), err
}

func (s *section) Read(p []byte) (int, error) {
	left, err := s.left()
	if err != nil {
		return 0, err
	}
	if left == 0 {
		return 0, io.EOF
	}
	return s.file.Read(p[:min(int64(len(p)), left)])
}

// WriteTo writes the rest to w. Without it, io.Copy would let the kernel send the whole file.
func (s *section) WriteTo(w io.Writer) (int64, error) {
	left, err := s.left()
	if err != nil {
		return 0, err
	}
	return io.Copy(w, io.LimitReader(s, left))
}

func (s *section) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		offset += s.start
	case io.SeekCurrent:
		at, err := s.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		offset += at
	case io.SeekEnd:
		offset += s.start + s.size
	default:
		return 0, errors.New("seek with an invalid whence")
	}
	if offset < s.start {
		return 0, errors.New("seek to before the start of the file")
	}
	at, err := s.file.Seek(offset, io.SeekStart)
	return at - s.start, err
}

func (s *section) SyscallConn() (syscall.RawConn, error) { return s.file.SyscallConn() }

func (s *section) Close() error {
	err := s.file.Close()
	if !errors.Is(err, os.ErrClosed) {
		s.closed()
	}
	return err
}
