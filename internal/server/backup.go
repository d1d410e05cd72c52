package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/config"
	"weir/internal/live"
)

// nodeFile has the identity of a node, in its data folder.
const nodeFile = "node"

// Backup is a copy of everything that a node keeps, in the form of a data folder: `weir serve` can
// run on it, on another machine. It can be made while the node runs.
//
// Nothing stops meanwhile, so the order decides whether the parts fit together. The database is
// first, and a file comes after whatever refers to it:
//
//   - database, then files. weir writes a file before the row that refers to it, so the files of all
//     rows exist when they are copied, unless weir deleted them since. It deletes files of what was
//     deleted, which the restored node deletes too; those of tasks that ended, which the restored
//     node starts again; and those of sessions that became assets:
//   - sessions, then media. A session that was open in the database may have ended since, and have
//     its recording in the media; then that is taken (see live.Backup). Media that was copied before
//     would not have it.
//   - uploads, then assets. The parts of an upload are deleted when the asset has the file.
//   - the files of a folder, then its subfolders, because the list of an asset's tracks is written
//     after the tracks. Each folder is read twice for the same reason: an index that was linked at
//     the first time may list files that came after it had begun.
//
// What the files have beyond the database does no harm: a node removes folders of sessions and tasks
// that it does not know, and writes again what it makes again.
//
// Media files are never written to after they have their name, so they are hard links where that is
// possible. The database and the files of sessions go on to change, so they are always copies.
type Backup struct {
	Config   *config.Config
	Dir      string
	Progress func(done, total int64) // of bytes that are copied; may be nil

	done, total int64
	linked      bool // media is linked
}

// BackupResult says what is in a backup.
type BackupResult struct {
	Database   bool // false: it is PostgreSQL
	Media      bool // false: it is in a bucket, or the database is not in the backup
	Recordings int  // that are not assets yet
}

// Make makes the backup. The folder must be empty or not exist.
func (b *Backup) Make(ctx context.Context) (done BackupResult, err error) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, err
	}
	if len(entries) > 0 {
		return done, fmt.Errorf("%s is not empty; name a new folder", b.Dir)
	}
	for _, dir := range b.own() {
		if within(b.Dir, dir) {
			return done, fmt.Errorf("%s is inside %s, which weir manages; name another folder", b.Dir, dir)
		}
	}
	st, err := OpenStore(ctx, b.Config)
	if err != nil {
		return done, err
	}
	defer st.Close()
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return done, err
	}
	database, sqlite := b.Config.SQLite()
	sessions := live.Backup{Store: st, Dir: b.Config.LiveDir()}
	if sqlite {
		if err := b.measure(ctx, database, sessions); err != nil {
			return done, err
		}
	}
	if err := b.copyFile("secret", b.Config.SecretFile); err != nil {
		return done, err
	}
	// A machine that never served has no identity.
	if err := b.copyFile(nodeFile, filepath.Join(b.Config.Data, nodeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, err
	}
	if !sqlite {
		return done, b.sync()
	}
	path := filepath.Join(b.Dir, "weir.db")
	if err := st.Backup(ctx, path); err != nil {
		return done, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return done, err
	}
	done.Database = true
	if done.Recordings, err = sessions.Copy(ctx, filepath.Join(b.Dir, "live"), b.copied); err != nil {
		return done, err
	}
	var media string
	if media, done.Media = b.Config.MediaDir(); done.Media {
		for _, part := range []string{"upload", ""} {
			if err := b.copyTree(ctx, filepath.Join(b.Dir, "media", part), filepath.Join(media, part)); err != nil {
				return done, err
			}
		}
	}
	return done, b.sync()
}

// own returns the folders in which only weir may write.
func (b *Backup) own() []string {
	dirs := []string{b.Config.LiveDir(), b.Config.WorkDir()}
	if media, ok := b.Config.MediaDir(); ok {
		dirs = append(dirs, media)
	}
	return dirs
}

// within reports whether a path is a folder or below it.
func within(path, dir string) bool {
	path, err1 := filepath.Abs(path)
	dir, err2 := filepath.Abs(dir)
	rel, err := filepath.Rel(dir, path)
	return errors.Join(err1, err2, err) == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// measure adds up what is to be copied, and checks that there is room for it.
func (b *Backup) measure(ctx context.Context, database string, sessions live.Backup) (err error) {
	if b.total, err = sessions.Size(ctx); err != nil {
		return err
	}
	if media, ok := b.Config.MediaDir(); ok {
		if b.linked = canLink(b.Dir, media); !b.linked {
			size, err := treeSize(ctx, media)
			if err != nil {
				return err
			}
			b.total += size
		}
	}
	need := b.total
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(database + suffix); err == nil {
			need += info.Size()
		}
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(b.Dir, &disk); err != nil {
		return fmt.Errorf("%s: %w", b.Dir, err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need {
		return fmt.Errorf("the backup needs %s, and %s has %s free", sizeText(need), b.Dir, sizeText(free))
	}
	return nil
}

// canLink reports whether files of a folder can get hard links in another one.
func canLink(to, from string) bool {
	var a, b unix.Stat_t
	return unix.Stat(to, &a) == nil && unix.Stat(from, &b) == nil && a.Dev == b.Dev
}

func treeSize(ctx context.Context, dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case unfinished(entry) && path != dir:
			return fs.SkipDir
		case entry.Type().IsRegular():
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size, err
}

// unfinished reports whether an entry of the media folder is the folder of files that are being
// written.
func unfinished(entry fs.DirEntry) bool { return entry.IsDir() && strings.HasPrefix(entry.Name(), ".") }

func sizeText(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func (b *Backup) copied(n int64) {
	b.done += n
	if b.Progress != nil && b.total > 0 {
		b.Progress(b.done, max(b.total, b.done))
	}
}

// copyTree copies the files of a folder that are not in the copy yet: first its own, then those of
// its subfolders. Files may be deleted meanwhile.
func (b *Backup) copyTree(ctx context.Context, to, from string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	var entries []fs.DirEntry
	for range 2 {
		var err error
		if entries, err = os.ReadDir(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !entry.Type().IsRegular() {
				continue
			}
			if err := b.copyMedia(filepath.Join(to, entry.Name()), filepath.Join(from, entry.Name())); err != nil {
				return err
			}
		}
	}
	for _, entry := range entries {
		if !entry.IsDir() || unfinished(entry) {
			continue
		}
		if err := b.copyTree(ctx, filepath.Join(to, entry.Name()), filepath.Join(from, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyMedia links or copies a media file, unless it is there or was deleted.
func (b *Backup) copyMedia(to, from string) error {
	err := fs.ErrInvalid
	if b.linked {
		err = os.Link(from, to)
	}
	switch {
	case err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist):
		return nil
	}
	n, err := copyTo(to, from)
	b.copied(n)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyFile copies a file into the backup.
func (b *Backup) copyFile(name, from string) error {
	_, err := copyTo(filepath.Join(b.Dir, name), from)
	return err
}

func copyTo(to, from string) (n int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, in)
	return n, errors.Join(err, out.Close())
}

// sync makes the backup survive a power failure.
func (b *Backup) sync() error {
	dir, err := os.Open(b.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", b.Dir, err)
	}
	return nil
}
