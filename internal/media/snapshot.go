package media

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Snapshot is what a recording has at one moment, so that another process can copy it while it
// grows. The copy is in a state in which a crash could have left the recording: [Recover] opens it.
//
// The recorder writes a segment's note in the journal before the segment's file, and its entry in
// the index after it. So the index is read first, then the names of the files, then the journal:
// the files have all that the index lists, and the journal has a note for every file.
type Snapshot struct {
	dir            string
	index, journal []byte
	files          []string // segments and init segments
	size           int64
}

// TakeSnapshot returns the snapshot of the recording in a folder. An error of kind weir.NotFound
// means that there is none.
func TakeSnapshot(dir string) (Snapshot, error) {
	s := Snapshot{dir: dir}
	err := s.read()
	if err != nil {
		return s, openError(err, "copy a recording")
	}
	return s, nil
}

func (s *Snapshot) read() (err error) {
	if s.index, err = readFile(filepath.Join(s.dir, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".m4s") && !strings.HasSuffix(entry.Name(), ".mp4") {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		s.files, s.size = append(s.files, entry.Name()), s.size+info.Size()
	}
	s.journal, err = readFile(filepath.Join(s.dir, journalName))
	return err
}

// Size returns the number of bytes to copy, about.
func (s Snapshot) Size() int64 { return s.size + int64(len(s.index)+len(s.journal)) }

// Copy copies the recording to a folder that does not exist. The last segment may have grown since,
// and a file may have been removed. copied is called with the number of bytes of each file.
func (s Snapshot) Copy(ctx context.Context, to string, copied func(int64)) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range s.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := copyPrefix(filepath.Join(to, name), filepath.Join(s.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		copied(n)
	}
	for name, data := range map[string][]byte{journalName: s.journal, indexName: s.index} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
		copied(int64(len(data)))
	}
	return nil
}

// copyPrefix copies the bytes that a file has when it is opened. It is never a link to the file: that
// would change with it. A file that was trimmed meanwhile counts as missing, because the recorder may
// have used it again for another segment.
func copyPrefix(to, from string) (n int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, io.LimitReader(in, info.Size()))
	if err := errors.Join(err, out.Close()); err != nil {
		return n, err
	}
	if now, err := os.Stat(from); err != nil || !os.SameFile(info, now) {
		return n, errors.Join(fs.ErrNotExist, os.Remove(to))
	}
	return n, nil
}
