package blob

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/weir"
)

// A shared file stays, and is not copied on the same file system.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	store, err := NewDisk(filepath.Join(dir, "media"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	file := filepath.Join(dir, "segment")
	if err := os.WriteFile(file, []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), "asset/b", strings.NewReader("other bytes"), -1, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"asset/a", "asset/a", "asset/b"} { // again, and in place of another
		if err := Share(t.Context(), store, key, file, PutOptions{}); err != nil {
			t.Fatal(err)
		}
		body, info, err := store.Get(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil || string(data) != "bytes" || info.Size != 5 {
			t.Errorf("%s is %q, error %v", key, data, err)
		}
	}
	one, err := os.Stat(file)
	if err != nil {
		t.Fatalf("the file is gone: %v", err)
	}
	path, _ := store.Path("asset/a")
	if other, err := os.Stat(path); err != nil || !os.SameFile(one, other) {
		t.Errorf("the bytes were copied; error %v", err)
	}
	if err := store.DeletePrefix(t.Context(), "asset"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file went with the object: %v", err)
	}
	if err := Share(t.Context(), store, "asset/c", filepath.Join(dir, "nothing"), PutOptions{}); weir.KindOf(err) != weir.NotFound {
		t.Errorf("error %v, want one of kind not-found", err)
	}
	if err := Share(t.Context(), store, "../c", file, PutOptions{}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("error %v, want one of kind invalid", err)
	}
}
