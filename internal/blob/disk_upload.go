package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"

	"weir/internal/weir"
)

const keyFile = "key"

// diskUpload is an upload to a disk: a hidden folder with a file for each part. Complete copies the
// parts into one file; file systems that share blocks move no bytes for that.
type diskUpload struct {
	disk   *disk
	key    string
	id     string
	folder string
}

func (d *disk) Upload(_ context.Context, key string, _ PutOptions) (Upload, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	u := d.upload(key, weir.NewID())
	if err := d.root.Mkdir(u.folder, 0o700); err != nil {
		return nil, diskError(err, "begin upload")
	}
	if err := u.write(keyFile, func(f *os.File) error { _, err := f.WriteString(key); return err }); err != nil {
		_ = d.root.RemoveAll(u.folder)
		return nil, diskError(err, "begin upload")
	}
	return u, nil
}

func (d *disk) upload(key, id string) *diskUpload {
	return &diskUpload{d, key, id, path.Join(uploadFolder, id)}
}

func (d *disk) Resume(_ context.Context, key, uploadID string) (Upload, error) {
	if err := errors.Join(checkKey(key), checkKey(uploadID)); err != nil {
		return nil, err
	}
	u := d.upload(key, uploadID)
	of, err := d.root.ReadFile(path.Join(u.folder, keyFile))
	if err != nil {
		return nil, diskError(err, "resume upload")
	}
	if string(of) != key {
		return nil, weir.ErrNotFound()
	}
	return u, nil
}

func (u *diskUpload) ID() string { return u.id }

func (u *diskUpload) Part(ctx context.Context, n int, r io.ReadSeeker, size int64) (PartInfo, error) {
	if n < 1 || n > maxParts {
		return PartInfo{}, fmt.Errorf("upload part %d: the numbers are 1 to %d", n, maxParts)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return PartInfo{}, fmt.Errorf("upload part %d of %s: %w", n, u.key, err)
	}
	err := u.write(strconv.Itoa(n), func(f *os.File) error { return u.disk.fill(ctx, f, r, size) })
	if err != nil {
		return PartInfo{}, diskError(err, fmt.Sprintf("write upload part %d", n))
	}
	return PartInfo{Number: n, Size: size}, nil
}

// write makes a file of the upload. It is synced, because callers don't store a part again.
func (u *diskUpload) write(name string, fill func(*os.File) error) error {
	temp := path.Join(u.folder, weir.NewID())
	if err := u.disk.create(temp, fill); err != nil {
		return err
	}
	if err := u.disk.root.Rename(temp, path.Join(u.folder, name)); err != nil {
		_ = u.disk.root.Remove(temp)
		return err
	}
	return u.disk.sync(u.folder)
}

func (u *diskUpload) Complete(ctx context.Context, parts []PartInfo) error {
	if err := checkParts(parts); err != nil {
		return err
	}
	err := u.disk.write(u.key, func(f *os.File) error {
		for _, p := range parts {
			if err := u.appendPart(ctx, f, p); err != nil {
				return fmt.Errorf("upload part %d: %w", p.Number, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return u.Abort(ctx)
}

func (u *diskUpload) appendPart(ctx context.Context, to *os.File, p PartInfo) error {
	part, err := u.disk.root.Open(path.Join(u.folder, strconv.Itoa(p.Number)))
	if err != nil {
		return diskError(err, "open upload part")
	}
	stat, err := part.Stat()
	if err == nil && stat.Size() != p.Size {
		err = fmt.Errorf("it has %d bytes, %d were expected", stat.Size(), p.Size)
	}
	if err == nil {
		_, err = u.disk.copyFile(ctx, to, part, p.Size)
	}
	return errors.Join(err, part.Close())
}

func (u *diskUpload) Abort(context.Context) error {
	if err := u.disk.root.RemoveAll(u.folder); err != nil {
		return diskError(err, "remove upload")
	}
	return nil
}

func (d *disk) abortBelow(folder string) error {
	ids, err := fs.ReadDir(d.root.FS(), uploadFolder)
	if err != nil {
		return diskError(err, "list uploads")
	}
	var failed error
	for _, id := range ids {
		u := d.upload("", id.Name())
		key, err := d.root.ReadFile(path.Join(u.folder, keyFile))
		if err == nil && bytes.HasPrefix(key, []byte(folder+"/")) {
			err = d.root.RemoveAll(u.folder)
		}
		if err != nil && !isMissing(err) {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return diskError(failed, "remove uploads")
	}
	return nil
}

func checkParts(parts []PartInfo) error {
	if len(parts) == 0 {
		return errors.New("complete upload: there are no upload parts")
	}
	for i, p := range parts {
		if i > 0 && p.Number <= parts[i-1].Number {
			return fmt.Errorf("complete upload: upload part %d is listed after upload part %d", p.Number, parts[i-1].Number)
		}
	}
	return nil
}
