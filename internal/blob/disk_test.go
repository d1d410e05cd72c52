package blob

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/weir"
)

func TestDiskRemovesOldTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	old, recent := filepath.Join(dir, tempFolder, "old"), filepath.Join(dir, tempFolder, "recent")
	upload, oldUpload := filepath.Join(dir, uploadFolder, "x"), filepath.Join(dir, uploadFolder, "y")
	object := filepath.Join(dir, "asset", "1")
	for _, file := range []string{old, recent, filepath.Join(upload, "1"), filepath.Join(oldUpload, "1"), object} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-30 * 24 * time.Hour)
	for _, file := range []string{old, oldUpload, object} {
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for file, want := range map[string]bool{old: false, recent: true, upload: true, oldUpload: false, object: true} {
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", file, err, want)
		}
	}
}

func TestDiskKeepsNoEmptyFolders(t *testing.T) {
	dir := t.TempDir()
	s, err := NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"a/b/c/d", "a/x", "w/1/2/3"} {
		put(t, s, key, "x")
	}
	if err := errors.Join(s.Delete(t.Context(), "a/b/c/d"), s.DeletePrefix(t.Context(), "w/1")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a/b": false, "a/x": true, "w": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}

// TestDiskStaysInItsFolder checks that a symbolic link does not lead out of the folder.
func TestDiskStaysInItsFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	s, err := NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "link/file", 0, -1); err == nil {
		t.Error("a file outside was read")
	}
	if err := s.Put(t.Context(), "link/new", strings.NewReader("x"), 1, PutOptions{}); err == nil {
		t.Error("a file outside was written")
	}
	_ = s.DeletePrefix(t.Context(), "link")
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Errorf("a file outside was removed: %v", err)
	}
}

func TestDiskCopyIsALink(t *testing.T) {
	s, err := NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "a", "x")
	if err := s.Copy(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	first, _ := s.Path("a")
	second, _ := s.Path("b")
	one, err1 := os.Stat(first)
	two, err2 := os.Stat(second)
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(one, two) {
		t.Errorf("the copy is another file (%v)", err)
	}
	// Where there are no links, bytes are copied.
	if err := s.(*disk).copyBytes(t.Context(), "a", "c"); err != nil || get(t, s, "c", 0, -1) != "x" {
		t.Errorf("copy of the bytes: %v", err)
	}
}

func TestDiskKeyInsideObject(t *testing.T) {
	s, err := NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "a/b", "x")
	for _, key := range []string{"a", "a/b/c"} {
		if err := s.Put(t.Context(), key, strings.NewReader("y"), 1, PutOptions{}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("put %s: error = %v, want one of kind conflict", key, err)
		}
		if err := s.Copy(t.Context(), "a/b", key); weir.KindOf(err) != weir.Conflict {
			t.Errorf("copy to %s: error = %v, want one of kind conflict", key, err)
		}
	}
	if got := get(t, s, "a/b", 0, -1); got != "x" {
		t.Errorf("the object is %q", got)
	}
	noLeftovers(t, s)
}

// smallDisk returns a folder on a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	s, err := NewDisk(smallDisk(t, "64m"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "small", "x")
	large := bytes.NewReader(make([]byte, 80<<20))
	err = s.Put(t.Context(), "large", large, large.Size(), PutOptions{})
	if weir.KindOf(err) != weir.Full || !weir.Retriable(err) {
		t.Errorf("put: error = %v, want one of kind full", err)
	}
	up, err := s.Upload(t.Context(), "large", PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := up.Part(t.Context(), 1, large, large.Size()); weir.KindOf(err) != weir.Full {
		t.Errorf("part: error = %v, want one of kind full", err)
	}
	// There is space for two parts, but not for the complete file beside them.
	var parts []PartInfo
	for n := 1; n <= 2; n++ {
		p, err := up.Part(t.Context(), n, bytes.NewReader(make([]byte, 20<<20)), 20<<20)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	if err := up.Complete(t.Context(), parts); weir.KindOf(err) != weir.Full {
		t.Errorf("complete: error = %v, want one of kind full", err)
	}
	if err := up.Abort(t.Context()); err != nil {
		t.Error(err)
	}
	noLeftovers(t, s)
	if got := get(t, s, "small", 0, -1) + get(t, s, "large", 0, -1); got != "x(not-found)" {
		t.Errorf("there is %q", got)
	}
	put(t, s, "again", "there is room")
}

// A store leaves space free: it refuses what is known to be too large at once, and stops writing
// what turns out to be. Small objects are written.
func TestDiskLeavesSpace(t *testing.T) {
	dir := smallDisk(t, "64m")
	s, err := Open("file:"+dir, Options{FreeSpace: func(need int64) error { return ReserveAt(dir, 128<<20, need) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "small", "x")
	const large = 40 << 20
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, large), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	never := readerFunc(func([]byte) (int, error) { return 0, errors.New("it was read") })
	for name, put := range map[string]func() error{
		"of known size": func() error { return s.Put(t.Context(), "large", never, large, PutOptions{}) },
		"of unknown size": func() error {
			return s.Put(t.Context(), "large", bytes.NewReader(make([]byte, large)), -1, PutOptions{})
		},
		"a file": func() error { return s.Put(t.Context(), "large", source, large, PutOptions{}) },
	} {
		if err := put(); weir.KindOf(err) != weir.Full {
			t.Errorf("%s: error = %v, want one of kind full", name, err)
		}
	}
	noLeftovers(t, s)
	if err := s.Put(t.Context(), "fits", bytes.NewReader(make([]byte, 30<<20)), -1, PutOptions{}); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if free, _, err := Room(dir, 1); err != nil || free < 32<<20 {
		t.Errorf("%d bytes are free (%v), want the quarter that is left free", free, err)
	}
	if err := s.Put(t.Context(), "more", bytes.NewReader(make([]byte, 3<<20)), 3<<20, PutOptions{}); weir.KindOf(err) != weir.Full {
		t.Errorf("more: error = %v, want one of kind full", err)
	}
	put(t, s, "index", "this is small")
}

func TestFetchToFullDisk(t *testing.T) {
	dir := smallDisk(t, "1m")
	for name, src := range map[string]*source{
		"in parts": {content: noise(70, 4<<20), etag: `"v"`}, "in order": {content: noise(70, 4<<20), noRanges: true},
	} {
		server := serveAt(t, public, src)
		f, err := os.Create(filepath.Join(dir, "spool"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = testFetcher(t).Fetch(t.Context(), server.URL, f, nil)
		if weir.KindOf(err) != weir.Full || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: error = %v, want one of kind full", name, err)
		}
		_ = f.Close()
	}
}

func TestCheckSpace(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		free, total, minFree, need int64
		ok                         bool
	}{
		{3 * gib, 10 * gib, 0, 0, true},
		{2*gib - 1, 10 * gib, 0, 0, false},
		{3 * gib, 10 * gib, 0, 2 * gib, false},
		{49 * gib, 1000 * gib, 0, 0, false},
		{51 * gib, 1000 * gib, 0, 0, true},
		{51 * gib, 1000 * gib, 0, 2 * gib, false},
		{51 * gib, 1000 * gib, 60 * gib, 0, false},
		{5, 1000 * gib, 1, 0, true},
	} {
		err := checkSpace(tt.free, keepFree(tt.total, tt.minFree), tt.need)
		if (err == nil) != tt.ok || err != nil && weir.KindOf(err) != weir.Full {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	s, err := NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	free, total, ok := s.Free(t.Context())
	if !ok || free <= 0 || total < free {
		t.Errorf("free = %d of %d, %v", free, total, ok)
	}
	if err := errors.Join(FreeSpace(t.Context(), s, 1, 0), FreeSpaceAt(t.TempDir(), 1, 0)); err != nil {
		t.Error(err)
	}
	if err := FreeSpace(t.Context(), s, 1, total+1); weir.KindOf(err) != weir.Full {
		t.Errorf("room for more than the disk: %v", err)
	}
	if err := FreeSpaceAt(filepath.Join(t.TempDir(), "missing"), 1, 0); weir.KindOf(err) != weir.NotFound {
		t.Errorf("room in no folder: %v", err)
	}
}

func TestAdopt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		_, onDisk := s.Path("x")
		folders := []string{t.TempDir(), smallDisk(t, "1m")} // the second is another file system
		for _, folder := range folders {
			put(t, s, "asset/video", "old")
			file := filepath.Join(folder, "spool")
			if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
				t.Fatal(err)
			}
			at, err := Adopt(t.Context(), s, "asset/video", file, PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if content, err := os.ReadFile(at); err != nil || string(content) != "content" {
				t.Errorf("at %s is %q, %v", at, content, err)
			}
			if got := get(t, s, "asset/video", 0, -1); got != "content" {
				t.Errorf("the object is %q", got)
			}
			if _, err := os.Stat(file); (err == nil) == onDisk {
				t.Errorf("the file: %v; it must be gone: %v", err, onDisk)
			}
		}
		if _, err := Adopt(t.Context(), s, "asset/video", filepath.Join(folders[0], "missing"), PutOptions{}); weir.KindOf(err) != weir.NotFound {
			t.Errorf("no file: error = %v", err)
		}
		if _, err := Adopt(t.Context(), s, "../x", os.Args[0], PutOptions{}); weir.KindOf(err) != weir.Invalid {
			t.Errorf("bad key: error = %v", err)
		}
		noLeftovers(t, s)
	})
}
