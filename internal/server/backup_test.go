package server

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

// newData makes a data folder with a database and some media, and returns its settings.
func newData(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	secret := bytes.Repeat([]byte{9}, 32)
	st, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "weir.db"), store.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	for name, text := range map[string]string{
		"secret": hex.EncodeToString(secret) + "\n", "node": "0123456789ab\n", "lock": "", "speed.json": "{}", "live/posters/s.jpg": "x", "work/t/1/source": "x",
		"media/asset/a/presentation.json": "{}", "media/asset/a/source/index": "i", "media/asset/a/source/0.m4s": "0", "media/upload/b/0": "u", "media/.weir/tmp/c": "c",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &config.Config{
		Data: dir, Database: weir.Secret("sqlite:" + filepath.Join(dir, "weir.db")), Storage: weir.Secret("file:" + filepath.Join(dir, "media")),
		SecretFile: filepath.Join(dir, "secret"),
	}
}

// files returns the paths of all files below a folder.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			paths = append(paths, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestBackup(t *testing.T) {
	cfg := newData(t)
	dir := filepath.Join(t.TempDir(), "backup")
	has, err := (&Backup{Config: cfg, Dir: dir}).Make(t.Context())
	if err != nil || !has.Database || !has.Media || has.Recordings != 0 {
		t.Fatalf("backup: %+v, %v", has, err)
	}
	want := []string{
		"media/asset/a/presentation.json", "media/asset/a/source/0.m4s", "media/asset/a/source/index", "media/upload/b/0", "node", "secret", "weir.db",
	}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("files of the backup (-want +got):\n%s", diff)
	}
	for name, link := range map[string]bool{"media/asset/a/source/0.m4s": true, "node": false, "secret": false} {
		one, err1 := os.Stat(filepath.Join(cfg.Data, name))
		other, err2 := os.Stat(filepath.Join(dir, name))
		if err1 != nil || err2 != nil || os.SameFile(one, other) != link || other.Mode().Perm() != 0o600 {
			t.Errorf("%s: a link: %v, want %v; mode %v (%v, %v)", name, os.SameFile(one, other), link, other.Mode(), err1, err2)
		}
	}
	if _, err := (&Backup{Config: cfg, Dir: dir}).Make(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("backup into a folder with a backup: %v", err)
	}
}

// TestBackupElsewhere refuses folders that weir would tidy, or that the backup would copy into itself.
func TestBackupElsewhere(t *testing.T) {
	cfg := newData(t)
	for _, name := range []string{"media/backup", "media/asset/../backup", "live/backup", "work"} {
		b := Backup{Config: cfg, Dir: filepath.Join(cfg.Data, name)}
		if _, err := b.Make(t.Context()); err == nil || name != "work" && !strings.Contains(err.Error(), "is inside") {
			t.Errorf("backup to %s: %v", name, err)
		}
	}
	if _, err := (&Backup{Config: cfg, Dir: filepath.Join(cfg.Data, "..backup")}).Make(t.Context()); err != nil {
		t.Errorf("backup beside them: %v", err)
	}
}

// TestBackupCopies makes a backup on another file system.
func TestBackupCopies(t *testing.T) {
	cfg := newData(t)
	dir, err := os.MkdirTemp("/dev/shm", "weir-backup-")
	if err != nil || canLink(dir, cfg.Data) {
		t.Skip("there is no other file system")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var last, total int64
	b := &Backup{Config: cfg, Dir: dir, Progress: func(done, of int64) { last, total = done, of }}
	if _, err := b.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last == 0 || last != total {
		t.Errorf("the progress ends with %d of %d bytes", last, total)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "media/asset/a/source/index")); err != nil || string(text) != "i" {
		t.Errorf("the copy of a file: %q, %v", text, err)
	}
}

// TestBackupNeedsSpace refuses to begin when there is no room.
func TestBackupNeedsSpace(t *testing.T) {
	cfg := newData(t)
	dir, err := os.MkdirTemp("/dev/shm", "weir-backup-")
	if err != nil || canLink(dir, cfg.Data) {
		t.Skip("there is no other file system")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// It takes no space, but says that it does.
	if err := os.Truncate(filepath.Join(cfg.Data, "media/asset/a/source/0.m4s"), 1<<42); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Backup{Config: cfg, Dir: dir}).Make(t.Context()); err == nil || !strings.Contains(err.Error(), "the backup needs 4096.0 GiB") {
		t.Errorf("backup of what has no room: %v", err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("copied nevertheless: %v", left)
	}
}
