package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/weir"
)

// The age at which files of a killed process are removed.
const (
	oldTemp   = 24 * time.Hour
	oldUpload = 7 * 24 * time.Hour
)

var (
	tempFolder   = path.Join(hidden, "tmp")
	uploadFolder = path.Join(hidden, "upload")
)

// disk is a Store in a folder. The file of an object has its key as name.
//
// An object is written to a file in the hidden folder, synced, and renamed; then its new folder is
// synced too. So after a power failure, an object that Put reported exists, and one that it did not
// report exists completely or not at all. The two syncs take a few milliseconds, which is little
// compared to encoding.
type disk struct {
	dir  string
	root *os.Root    // keys can't reach anything outside of it
	mode os.FileMode // of folders; files have it without the right to execute

	freeSpace func(need int64) error // see Options
}

const (
	// smallObject is the size up to which objects are written without a check: indexes and playlists,
	// with which something is finished that has taken its space already.
	smallObject = 1 << 20
	// checkStep is after how many bytes of an object the free space is checked again.
	checkStep = 4 << 20
)

// NewDisk returns the store in a folder, which it creates if necessary. It removes temporary files
// that are older than a day.
func NewDisk(dir string) (Store, error) { return newDisk(dir, 0o700, nil) }

// NewUserDisk is NewDisk for a folder of the user of a command: the umask decides who may read the
// files.
func NewUserDisk(dir string) (Store, error) { return newDisk(dir, 0o777, nil) }

func newDisk(dir string, mode os.FileMode, freeSpace func(need int64) error) (Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open media folder: %w", err)
	}
	for _, sub := range []string{tempFolder, uploadFolder} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make media folder: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open media folder: %w", err)
	}
	if freeSpace == nil {
		freeSpace = func(int64) error { return nil }
	}
	d := &disk{dir, root, mode, freeSpace}
	now := time.Now()
	if err := errors.Join(d.clean(tempFolder, now.Add(-oldTemp)), d.clean(uploadFolder, now.Add(-oldUpload))); err != nil {
		return nil, errors.Join(fmt.Errorf("clean media folder: %w", err), root.Close())
	}
	return d, nil
}

// clean removes the entries of a folder that were not changed since then.
func (d *disk) clean(folder string, since time.Time) error {
	entries, err := fs.ReadDir(d.root.FS(), folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(since) {
			continue
		}
		if err := errors.Join(err, d.root.RemoveAll(path.Join(folder, entry.Name()))); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) Close() error { return d.root.Close() }

func (d *disk) Put(ctx context.Context, key string, r io.Reader, size int64, _ PutOptions) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return d.write(key, func(f *os.File) error { return d.fill(ctx, f, r, size) })
}

// fill writes all of a reader to a file, which must be size bytes if that is not -1.
func (d *disk) fill(ctx context.Context, f *os.File, r io.Reader, size int64) error {
	if size < 0 || size > smallObject {
		if err := d.freeSpace(max(size, 0)); err != nil {
			return err
		}
	}
	src, ok := r.(*os.File)
	if !ok || size < 0 {
		n, err := io.Copy(f, d.checked(withContext(ctx, r)))
		if err == nil && size >= 0 && n != size {
			err = errSize(n, size)
		}
		return err
	}
	n, err := d.copyFile(ctx, f, src, size)
	if err == nil || errors.Is(err, io.EOF) {
		var one [1]byte
		more, _ := src.Read(one[:])
		if n += int64(more); n == size {
			return nil
		}
		err = errSize(n, size)
	}
	return err
}

func errSize(got, promised int64) error {
	return fmt.Errorf("%d bytes were read, %d were expected", got, promised)
}

// write makes the file of a key; fill writes its content.
func (d *disk) write(key string, fill func(*os.File) error) error {
	temp := path.Join(tempFolder, weir.NewID())
	if err := d.create(temp, fill); err != nil {
		return writeError(err, key)
	}
	return d.rename(temp, key)
}

// create makes a file in the hidden folder and syncs it. After an error there is none.
func (d *disk) create(temp string, fill func(*os.File) error) error {
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, d.mode&^0o111)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = d.root.Remove(temp) // if that fails, clean removes it later
	}
	return err
}

// rename moves a file from the hidden folder to its key, durably. After an error the file is
// removed.
func (d *disk) rename(temp, key string) error {
	folder := path.Dir(key)
	var err error
	for range 10 {
		if err = d.root.MkdirAll(folder, d.mode); err == nil {
			err = d.root.Rename(temp, key)
		}
		// Delete may remove the empty folder between the two steps.
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		_ = d.root.Remove(temp)
		return writeError(err, key)
	}
	return writeError(d.sync(folder), key)
}

// sync makes the names in a folder survive a power failure. The folder may have been deleted.
func (d *disk) sync(folder string) error {
	f, err := d.root.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *disk) Get(_ context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	f, info, err := d.open(key)
	if err != nil {
		return nil, Info{}, err
	}
	if offset < 0 || offset > info.Size {
		return nil, Info{}, errors.Join(errRange(key, offset, info.Size), f.Close())
	}
	if offset == 0 && length < 0 {
		return f, info, nil // an *os.File, so that the kernel can copy it to a connection
	}
	if length < 0 {
		length = info.Size - offset
	}
	section := io.NewSectionReader(f, offset, min(length, info.Size-offset))
	return struct {
		*io.SectionReader
		io.Closer
	}{section, f}, info, nil
}

func errRange(key string, offset, size int64) error {
	return weir.Errorf(weir.Invalid, "%s has no byte %d: it has %d bytes", key, offset, size)
}

func (d *disk) open(key string) (*os.File, Info, error) {
	if err := checkKey(key); err != nil {
		return nil, Info{}, err
	}
	f, err := d.root.Open(key)
	if err != nil {
		return nil, Info{}, diskError(err, "read "+key)
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, Info{}, diskError(errors.Join(err, f.Close()), "read "+key)
	}
	return f, fileInfo(key, stat), nil
}

func fileInfo(key string, stat fs.FileInfo) Info {
	etag := fmt.Sprintf("%x-%x", stat.ModTime().UnixNano(), stat.Size())
	return Info{Key: key, Size: stat.Size(), ETag: etag}
}

func (d *disk) Stat(_ context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	stat, err := d.root.Stat(key)
	if err == nil && !stat.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Info{}, diskError(err, "stat "+key)
	}
	return fileInfo(key, stat), nil
}

func (d *disk) List(ctx context.Context, folder string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		folder, err := folderKey(folder)
		if err != nil {
			yield(Info{}, err)
			return
		}
		err = fs.WalkDir(d.root.FS(), path.Clean(folder), func(key string, entry fs.DirEntry, err error) error {
			switch {
			case isMissing(err):
				return nil
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case key == hidden:
				return fs.SkipDir
			case !entry.Type().IsRegular() || key == folder: // the object with the name of the folder is not in it
				return nil
			}
			stat, err := entry.Info()
			if isMissing(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(fileInfo(key, stat), nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Info{}, diskError(err, "list "+folder))
		}
	}
}

// isMissing reports whether an error means that a file does not exist, maybe because its folder is
// a file.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func (d *disk) Delete(_ context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return d.remove(key, false)
}

func (d *disk) DeletePrefix(_ context.Context, folder string) error {
	folder, err := oneFolder(folder)
	if err != nil {
		return err
	}
	if err := d.remove(folder, true); err != nil {
		return err
	}
	return d.abortBelow(folder)
}

// remove removes a file, or a folder with everything in it, and then the empty folders above it. If
// rename needs one of those at the same moment, it makes it again.
func (d *disk) remove(name string, folder bool) error {
	stat, err := d.root.Stat(name)
	if err == nil && stat.IsDir() != folder {
		return nil
	}
	if err == nil {
		err = d.root.RemoveAll(name)
	}
	if err != nil && !isMissing(err) {
		return diskError(err, "delete "+name)
	}
	for above := path.Dir(name); above != "." && d.root.Remove(above) == nil; {
		above = path.Dir(above)
	}
	return nil
}

func (d *disk) Copy(ctx context.Context, from, to string) error {
	if err := errors.Join(checkKey(from), checkKey(to)); err != nil {
		return err
	}
	if from == to {
		_, err := d.Stat(ctx, from)
		return err
	}
	temp := path.Join(tempFolder, weir.NewID())
	err := d.root.Link(from, temp)
	if err != nil {
		if isMissing(err) {
			return diskError(err, "copy "+from)
		}
		return d.copyBytes(ctx, from, to) // the file system has no links, or the file has too many
	}
	err = d.rename(temp, to)
	_ = d.root.Remove(temp) // when to was a link to the same file, a rename does nothing
	return err
}

// copyBytes lets the kernel copy, which shares blocks where the file system can.
func (d *disk) copyBytes(ctx context.Context, from, to string) error {
	src, info, err := d.open(from)
	if err != nil {
		return err
	}
	err = d.write(to, func(f *os.File) error {
		_, err := d.copyFile(ctx, f, src, info.Size)
		return err
	})
	return errors.Join(err, src.Close())
}

// copyFile appends size bytes of a file to another. Between steps it checks the context and the free
// space.
func (d *disk) copyFile(ctx context.Context, to, from *os.File, size int64) (done int64, err error) {
	const step = 64 << 20
	for done < size && err == nil {
		if err = ctx.Err(); err == nil && size > smallObject {
			err = d.freeSpace(min(size-done, step))
		}
		if err == nil {
			var n int64
			n, err = io.CopyN(to, from, min(size-done, step))
			done += n
		}
	}
	return done, err
}

// Adopt makes a file of this machine an object and returns its new path: on disk it becomes the
// object, without a copy if it is on the same file system; a bucket gets a copy, and the file
// stays. It must not be written to any more.
func Adopt(ctx context.Context, s Store, key, file string, o PutOptions) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	d, ok := s.(*disk)
	if !ok {
		return file, putFile(ctx, s, key, file, o)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", diskError(err, "open file")
	}
	defer func() { _ = f.Close() }()
	return d.adopt(ctx, key, f)
}

func putFile(ctx context.Context, s Store, key, file string, o PutOptions) error {
	f, err := os.Open(file)
	if err != nil {
		return diskError(err, "open file")
	}
	defer func() { _ = f.Close() }()
	stat, err := f.Stat()
	if err != nil {
		return diskError(err, "open file")
	}
	return s.Put(ctx, key, f, stat.Size(), o)
}

func (d *disk) adopt(ctx context.Context, key string, f *os.File) (string, error) {
	at, _ := d.Path(key)
	if err := errors.Join(f.Sync(), ctx.Err()); err != nil {
		return "", writeError(err, key)
	}
	temp := path.Join(tempFolder, weir.NewID())
	err := os.Rename(f.Name(), filepath.Join(d.dir, temp))
	if errors.Is(err, syscall.EXDEV) {
		if err := d.Put(ctx, key, f, -1, PutOptions{}); err != nil {
			return "", err
		}
		if err := os.Remove(f.Name()); err != nil {
			return "", fmt.Errorf("remove the file after it was stored: %w", err)
		}
		return at, nil
	}
	if err != nil {
		return "", writeError(err, key)
	}
	return at, d.rename(temp, key)
}

// Share makes a file of this machine also an object: on disk both are one file if they are on the
// same file system, otherwise there is a copy. It must not be written to any more. Unlike an object
// that was put, a shared one is only sure to survive a power failure after another was put to its
// folder.
func Share(ctx context.Context, s Store, key, file string, o PutOptions) error {
	if err := errors.Join(checkKey(key), ctx.Err()); err != nil {
		return err
	}
	if d, ok := s.(*disk); ok && d.link(key, file) == nil {
		return nil
	}
	return putFile(ctx, s, key, file, o)
}

func (d *disk) link(key, file string) error {
	at, _ := d.Path(key)
	if err := d.root.MkdirAll(path.Dir(key), d.mode); err != nil {
		return err
	}
	err := os.Link(file, at)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	one, err := os.Stat(file)
	if err != nil {
		return err
	}
	other, err := os.Stat(at)
	if err == nil && !os.SameFile(one, other) {
		err = fs.ErrExist // another object, which is replaced by a copy
	}
	return err
}

func (d *disk) Path(key string) (string, bool) {
	if checkKey(key) != nil {
		return "", false
	}
	return filepath.Join(d.dir, filepath.FromSlash(key)), true
}

func (d *disk) Free(context.Context) (free, total int64, ok bool) {
	free, total, err := statfs(d.dir)
	return free, total, err == nil
}

func statfs(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// diskError returns an error of the file system with its kind.
func diskError(err error, doing string) error {
	if _, ok := errors.AsType[*weir.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return weir.Wrap(weir.Full, err, "the disk of this server is full")
	case isMissing(err):
		return weir.Wrap(weir.NotFound, err, "not found")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// writeError is diskError for writing, where nothing is NotFound.
func writeError(err error, key string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
		return weir.Wrap(weir.Conflict, err, "%s can't be written: a folder has this name, or a file has the name of its folder", key)
	case isMissing(err):
		return fmt.Errorf("write %s: %w", key, err)
	}
	return diskError(err, "write "+key)
}

// checked returns a reader that checks the free space.
func (d *disk) checked(r io.Reader) io.Reader {
	var unchecked int64
	return readerFunc(func(p []byte) (int, error) {
		if unchecked >= checkStep {
			unchecked = 0
			if err := d.freeSpace(0); err != nil {
				return 0, err
			}
		}
		n, err := r.Read(p)
		unchecked += int64(n)
		return n, err
	})
}

func withContext(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
