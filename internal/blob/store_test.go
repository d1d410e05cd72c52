package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/blob/s3test"
	"weir/internal/weir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(s3test.Runner{M: m})
}

// onEveryStore runs a test on a disk and in a bucket, under a path in it.
func onEveryStore(t *testing.T, test func(t *testing.T, s Store)) {
	open := func(url string) func(t *testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			s, err := Open(url, Options{timing: quick})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, s)
		}
	}
	t.Parallel()
	t.Run("disk", open("file:"+t.TempDir()))
	t.Run("s3", open(s3test.Start(t).URL()+"/some/prefix"))
}

// quick is a timing that does not make a test wait.
var quick = timing{pause: time.Millisecond, maxPause: 4 * time.Millisecond}

func put(t *testing.T, s Store, key, content string) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(content), int64(len(content)), PutOptions{}); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// get returns what is under a key, or the kind of the error in brackets.
func get(t *testing.T, s Store, key string, offset, length int64) string {
	t.Helper()
	r, info, err := s.Get(t.Context(), key, offset, length)
	if err != nil {
		return "(" + string(weir.KindOf(err)) + ")"
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	if info.Key != key || info.ETag == "" {
		t.Errorf("info of %s = %+v, want all of it", key, info)
	}
	return string(content)
}

func list(t *testing.T, s Store, folder string) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for info, err := range s.List(t.Context(), folder) {
		if err != nil {
			t.Fatalf("list %s: %v", folder, err)
		}
		found[info.Key] = info.Size
	}
	return found
}

func TestPutAndGet(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		put(t, s, "a/b/c d+e%20ü.m4s", "0123456789")
		for _, tt := range []struct {
			offset, length int64
			want           string
		}{
			{0, -1, "0123456789"},
			{0, 4, "0123"},
			{3, 4, "3456"},
			{3, -1, "3456789"},
			{8, 100, "89"},
			{10, -1, ""},
			{10, 5, ""},
			{4, 0, ""},
			{11, -1, "(invalid)"},
			{11, 0, "(invalid)"},
			{-1, -1, "(invalid)"},
		} {
			if got := get(t, s, "a/b/c d+e%20ü.m4s", tt.offset, tt.length); got != tt.want {
				t.Errorf("bytes from %d, %d of them = %q, want %q", tt.offset, tt.length, got, tt.want)
			}
		}
		if got := get(t, s, "a/b", 0, -1); got != "(not-found)" {
			t.Errorf("a folder = %q, want not found", got)
		}
		if got := get(t, s, "a/b/c d+e%20ü.m4s/x", 0, -1); got != "(not-found)" {
			t.Errorf("below an object = %q, want not found", got)
		}
		put(t, s, "a/b/c d+e%20ü.m4s", "new")
		if got := get(t, s, "a/b/c d+e%20ü.m4s", 0, -1); got != "new" {
			t.Errorf("after the second put = %q, want new", got)
		}
		put(t, s, "empty", "")
		if got := get(t, s, "empty", 0, -1); got != "" {
			t.Errorf("empty object = %q", got)
		}
	})
}

func TestPutTakesEveryReader(t *testing.T) {
	large := make([]byte, readerPart+12345)
	_, _ = rand.Read(large)
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, large, 0o600); err != nil {
		t.Fatal(err)
	}
	onEveryStore(t, func(t *testing.T, s Store) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Seek(1000, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		size := int64(len(large))
		for _, tt := range []struct {
			name string
			r    io.Reader
			size int64
			want []byte
		}{
			{"file from its offset", f, size - 1000, large[1000:]},
			{"part of memory", bytes.NewReader(large[5:]), size - 5, large[5:]},
			{"reader", onlyReader{bytes.NewReader(large)}, size, large},
			{"reader of unknown size", onlyReader{bytes.NewReader(large)}, -1, large},
			{"reader of whole parts", onlyReader{bytes.NewReader(large[:readerPart])}, -1, large[:readerPart]},
			{"small reader of unknown size", onlyReader{strings.NewReader("abc")}, -1, []byte("abc")},
			{"empty reader of unknown size", onlyReader{strings.NewReader("")}, -1, nil},
			{"byte by byte", iotest.OneByteReader(strings.NewReader("abc")), 3, []byte("abc")},
		} {
			if err := s.Put(t.Context(), "k", tt.r, tt.size, PutOptions{}); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if got := get(t, s, "k", 0, -1); got != string(tt.want) {
				t.Errorf("%s: got %d bytes, want %d, or others", tt.name, len(got), len(tt.want))
			}
		}
	})
}

type onlyReader struct{ io.Reader }

func TestPutIsWholeOrNotAtAll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		put(t, s, "there", "old")
		broken := errors.New("the reader broke")
		many := strings.Repeat("x", readerPart)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name string
			ctx  context.Context
			r    io.Reader
			size int64
		}{
			{"error in the middle", t.Context(), io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), 10},
			{"error after the first part", t.Context(), io.MultiReader(strings.NewReader(many), iotest.ErrReader(broken)), -1},
			{"too few", t.Context(), onlyReader{strings.NewReader("abc")}, 4},
			{"too few that can seek", t.Context(), strings.NewReader("abc"), 4},
			{"too many", t.Context(), onlyReader{strings.NewReader("abc")}, 2},
			{"too many that can seek", t.Context(), strings.NewReader("abc"), 2},
			{"too few parts", t.Context(), onlyReader{strings.NewReader(many)}, readerPart + 1},
			{"too many parts", t.Context(), onlyReader{strings.NewReader(many + "y")}, readerPart},
			{"too few in a file", t.Context(), fileOf(t, "abc"), 4},
			{"too many in a file", t.Context(), fileOf(t, "abc"), 2},
			{"file that can't be read", t.Context(), fileOf(t, ""), 4},
			{"cancelled", cancelled, strings.NewReader("abc"), 3},
		} {
			for _, key := range []string{"there", "missing"} {
				if err := s.Put(tt.ctx, key, tt.r, tt.size, PutOptions{}); err == nil {
					t.Errorf("%s: no error", tt.name)
				}
			}
			if got := get(t, s, "there", 0, -1); got != "old" {
				t.Errorf("%s: the old object is %q now", tt.name, got)
			}
			if got := get(t, s, "missing", 0, -1); got != "(not-found)" {
				t.Errorf("%s: there is an object %q now", tt.name, got)
			}
		}
		noLeftovers(t, s)
	})
}

// fileOf returns a file with that content; one without any is closed already.
func fileOf(t *testing.T, content string) *os.File {
	t.Helper()
	f := spoolFile(t)
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	if content == "" {
		_ = f.Close()
	}
	return f
}

// noLeftovers checks that no temporary file and no upload is there.
func noLeftovers(t *testing.T, s Store) {
	t.Helper()
	switch s := s.(type) {
	case *disk:
		for _, folder := range []string{tempFolder, uploadFolder} {
			if left, err := os.ReadDir(filepath.Join(s.dir, folder)); err != nil || len(left) > 0 {
				t.Errorf("left in %s: %v (%v)", folder, left, err)
			}
		}
	case *s3:
		left, err := s.client().ListMultipartUploads(t.Context(), s.bucket.name, "", "", "", "", 1000)
		if err != nil || len(left.Uploads) > 0 {
			t.Errorf("uploads left: %v (%v)", left.Uploads, err)
		}
	}
}

func TestStat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		put(t, s, "a/b", "abc")
		first, err := s.Stat(t.Context(), "a/b")
		if err != nil || first.Key != "a/b" || first.Size != 3 || first.ETag == "" {
			t.Errorf("stat = %+v, %v", first, err)
		}
		put(t, s, "a/b", "xyzxyz")
		second, err := s.Stat(t.Context(), "a/b")
		if err != nil || second.ETag == first.ETag || second.Size != 6 {
			t.Errorf("after another put, stat = %+v, %v; it was %+v", second, err, first)
		}
		for _, key := range []string{"a", "a/c", "a/b/c"} {
			if _, err := s.Stat(t.Context(), key); weir.KindOf(err) != weir.NotFound {
				t.Errorf("stat of %s: %v, want not found", key, err)
			}
		}
	})
}

func TestListAndDelete(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		all := map[string]int64{
			"asset/1/index": 1, "asset/1/720p0/0.m4s": 2, "asset/1/720p0/1.m4s": 3,
			"asset/10/index": 4, "asset/1x": 5, "work/t/x": 6,
		}
		for key, size := range all {
			put(t, s, key, strings.Repeat("x", int(size)))
		}
		if diff := cmp.Diff(all, list(t, s, "")); diff != "" {
			t.Errorf("everything (-want +got):\n%s", diff)
		}
		one := map[string]int64{"asset/1/index": 1, "asset/1/720p0/0.m4s": 2, "asset/1/720p0/1.m4s": 3}
		for _, folder := range []string{"asset/1", "asset/1/"} {
			if diff := cmp.Diff(one, list(t, s, folder)); diff != "" {
				t.Errorf("in %s (-want +got):\n%s", folder, diff)
			}
		}
		for _, folder := range []string{"asset/2", "asset/1x", "asset/1/index/z"} {
			if got := list(t, s, folder); len(got) > 0 {
				t.Errorf("in %s: %v, want nothing", folder, got)
			}
		}
		for range s.List(t.Context(), "") {
			break
		}

		for _, key := range []string{"asset/10/index", "asset/10/index", "asset/never", "asset/1"} {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("delete %s: %v", key, err)
			}
		}
		for _, folder := range []string{"asset/1/", "asset/1", "asset/1x", "nothing/there"} {
			if err := s.DeletePrefix(t.Context(), folder); err != nil {
				t.Errorf("delete all in %s: %v", folder, err)
			}
		}
		if diff := cmp.Diff(map[string]int64{"asset/1x": 5, "work/t/x": 6}, list(t, s, "")); diff != "" {
			t.Errorf("after the deletions (-want +got):\n%s", diff)
		}
		for _, folder := range []string{"", "/", "../x"} {
			if err := s.DeletePrefix(t.Context(), folder); weir.KindOf(err) != weir.Invalid {
				t.Errorf("delete all in %q: %v, want it refused", folder, err)
			}
		}
		if len(list(t, s, "")) != 2 {
			t.Error("something is gone that was not named")
		}
	})
}

func TestListSeesEndOfContext(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		put(t, s, "a", "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var failed error
		for _, err := range s.List(ctx, "") {
			failed = err
		}
		if !errors.Is(failed, context.Canceled) {
			t.Errorf("error = %v, want that of the context", failed)
		}
	})
}

func TestCopy(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		if s, ok := s.(*s3); ok {
			s.copyPart = MinPart // less than what the server copies at once
		}
		large := strings.Repeat("0123456789abcdef", (s3test.CopyLimit+1<<20)/16)
		put(t, s, "from/small", "abc")
		put(t, s, "from/large", large)
		put(t, s, "to/there", "old")
		for _, tt := range []struct{ from, to, want string }{
			{"from/small", "to/new", "abc"},
			{"from/small", "to/there", "abc"},
			{"from/small", "to/there", "abc"},
			{"from/small", "from/small", "abc"},
			{"from/large", "to/large", large},
		} {
			if err := s.Copy(t.Context(), tt.from, tt.to); err != nil {
				t.Errorf("copy %s to %s: %v", tt.from, tt.to, err)
			} else if got := get(t, s, tt.to, 0, -1); got != tt.want {
				t.Errorf("%s has %d bytes, want the %d of %s", tt.to, len(got), len(tt.want), tt.from)
			}
		}
		put(t, s, "from/small", "changed")
		if err := s.Delete(t.Context(), "from/large"); err != nil {
			t.Error(err)
		}
		if got := get(t, s, "to/new", 0, -1); got != "abc" {
			t.Errorf("after a change of the original the copy is %q", got)
		}
		if got := get(t, s, "to/large", 0, 3); got != "012" {
			t.Errorf("after the original was deleted the copy is %q", got)
		}
		for _, from := range []string{"from/nothing", "from"} {
			if err := s.Copy(t.Context(), from, "to/x"); weir.KindOf(err) != weir.NotFound {
				t.Errorf("copy of %s: %v, want not found", from, err)
			}
		}
		noLeftovers(t, s)
	})
}

func TestUploadInParts(t *testing.T) {
	parts := []string{strings.Repeat("a", MinPart), strings.Repeat("b", MinPart), "the end"}
	onEveryStore(t, func(t *testing.T, s Store) {
		up, err := s.Upload(t.Context(), "file.mp4", PutOptions{ContentType: "video/mp4"})
		if err != nil {
			t.Fatal(err)
		}
		infos := make([]PartInfo, len(parts))
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				// Another process may store a part.
				again, err := s.Resume(t.Context(), "file.mp4", up.ID())
				if err != nil {
					t.Error(err)
					return
				}
				if infos[i], err = again.Part(t.Context(), i+1, strings.NewReader(parts[i]), int64(len(parts[i]))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := get(t, s, "file.mp4", 0, -1); got != "(not-found)" {
			t.Errorf("before it is complete there is %q", got)
		}
		if got := list(t, s, ""); len(got) > 0 {
			t.Errorf("before it is complete there is %v", got)
		}
		// A part that is stored once more replaces the first.
		parts := slices.Clone(parts)
		parts[0] = strings.Repeat("A", MinPart)
		if infos[0], err = up.Part(t.Context(), 1, strings.NewReader(parts[0]), MinPart); err != nil {
			t.Fatal(err)
		}
		if err := up.Complete(t.Context(), infos); err != nil {
			t.Fatal(err)
		}
		if got, want := get(t, s, "file.mp4", 0, -1), strings.Join(parts, ""); got != want {
			t.Errorf("got %d bytes, want %d, or others", len(got), len(want))
		}
		if _, err := s.Resume(t.Context(), "file.mp4", up.ID()); weir.KindOf(err) != weir.NotFound {
			t.Errorf("resume of a complete upload: %v, want not found", err)
		}
		if err := up.Abort(t.Context()); err != nil {
			t.Errorf("abort after completion: %v", err)
		}
		if got := get(t, s, "file.mp4", 0, 1); got != "A" {
			t.Errorf("after the abort the object is %q", got)
		}
		noLeftovers(t, s)
	})
}

func TestUploadThatIsNotCompleted(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		for _, end := range []func(Upload) error{
			func(u Upload) error { return errors.Join(u.Abort(t.Context()), u.Abort(t.Context())) },
			func(Upload) error { return s.DeletePrefix(t.Context(), "work") },
		} {
			up, err := s.Upload(t.Context(), "work/x", PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			info, err := up.Part(t.Context(), 1, strings.NewReader("abc"), 3)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := up.Part(t.Context(), 2, strings.NewReader("abc"), 4); err == nil {
				t.Error("a part that is too short was taken")
			}
			if _, err := up.Part(t.Context(), 0, strings.NewReader("abc"), 3); err == nil {
				t.Error("part 0 was taken")
			}
			if err := up.Complete(t.Context(), nil); err == nil {
				t.Error("an object was made of no parts")
			}
			if err := up.Complete(t.Context(), []PartInfo{info, info}); err == nil {
				t.Error("an object was made of one part twice")
			}
			if err := up.Complete(t.Context(), []PartInfo{info, {Number: 2, Size: 1, ETag: info.ETag}}); err == nil {
				t.Error("an object was made of a part that is missing")
			}
			if err := end(up); err != nil {
				t.Error(err)
			}
			if _, err := s.Resume(t.Context(), "work/x", up.ID()); weir.KindOf(err) != weir.NotFound {
				t.Errorf("resume: %v, want not found", err)
			}
			if got := list(t, s, ""); len(got) > 0 {
				t.Errorf("there is %v, want nothing", got)
			}
			noLeftovers(t, s)
		}
		if _, err := s.Resume(t.Context(), "work/x", "no-such-upload"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("resume of nothing: %v, want not found", err)
		}
	})
}

func TestStoreUsedByMany(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		if _, ok := s.(*s3); ok {
			put(t, s, "shared/kept", "") // the server of the tests trips over folders that come and go
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				key := "shared/" + string(rune('a'+i)) + "/deep/er"
				for range 10 {
					put(t, s, key, "content")
					if err := s.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		left := list(t, s, "")
		delete(left, "shared/kept")
		if len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestKeysThatAreRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s Store) {
		for _, key := range []string{
			"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "a/./b", "a\\b", "a\x00b", "a\nb", "\xff",
			".weir/tmp/x", strings.Repeat("x", 256), strings.Repeat("x/", 600) + "x",
		} {
			if err := s.Put(t.Context(), key, strings.NewReader("x"), 1, PutOptions{}); weir.KindOf(err) != weir.Invalid {
				t.Errorf("put %q: %v, want it refused", key, err)
			}
			if got := get(t, s, key, 0, -1); got != "(invalid)" {
				t.Errorf("get %q: %s, want it refused", key, got)
			}
			if _, err := s.Upload(t.Context(), key, PutOptions{}); weir.KindOf(err) != weir.Invalid {
				t.Errorf("upload %q: %v, want it refused", key, err)
			}
			if err := errors.Join(s.Delete(t.Context(), key), s.Copy(t.Context(), key, "a"), s.Copy(t.Context(), "a", key)); weir.KindOf(err) != weir.Invalid {
				t.Errorf("delete or copy %q: %v, want it refused", key, err)
			}
			if path, ok := s.Path(key); ok {
				t.Errorf("path of %q = %s, want none", key, path)
			}
		}
	})
}
