package media

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteAt(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer f.Close()
	want := []byte("xx")
	buffers := [][]byte{nil}
	for i := range 3*maxBuffers + 1 {
		buffers = append(buffers, bytes.Repeat([]byte{byte(i)}, i%5))
	}
	for _, buffer := range buffers {
		want = append(want, buffer...)
	}
	_, err = f.WriteString("xx")
	must(t, err)
	must(t, writeAt(f, buffers, 2))
	got, err := os.ReadFile(f.Name())
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were written, want %d", len(got), len(want))
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	if err := writeAt(full, [][]byte{{1}}, 0); err == nil {
		t.Error("a write to a full disk does not fail")
	}
}

func TestBehind(t *testing.T) {
	for n, want := range []string{"abcdef", "bcdef", "cdef", "def", "ef", "f", ""} {
		if got := bytes.Join(without([][]byte{[]byte("ab"), nil, []byte("c"), []byte("def")}, n), nil); string(got) != want {
			t.Errorf("behind %d bytes is %q, want %q", n, got, want)
		}
	}
}
