package blob

import (
	"strings"
	"testing"

	"weir/internal/blob/s3test"
	"weir/internal/weir"
)

// Both kinds of storage can be a destination, and Seal returns their URL.
func TestDest(t *testing.T) {
	t.Parallel()
	bucket, dir := s3test.Start(t), t.TempDir()
	for name, tt := range map[string]struct {
		url, base string
		parts     bool
	}{
		"s3":   {bucket.URL() + "/some/prefix", bucket.Endpoint + "/" + bucket.Name + "/some/prefix", true},
		"disk": {"file:" + dir, "file:" + dir, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dest, err := OpenDest(tt.url, Options{timing: quick})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := dest.Close(); err != nil {
					t.Error(err)
				}
			})
			if size := dest.PartSize(); (size >= MinPart) != tt.parts || !tt.parts && size != 0 {
				t.Errorf("parts have %d bytes", size)
			}
			if err := dest.Put(t.Context(), "v/a.m3u8", strings.NewReader("#EXTM3U"), 7, PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if info, err := dest.Stat(t.Context(), "v/a.m3u8"); err != nil || info.Size != 7 {
				t.Errorf("%+v, %v", info, err)
			}
			for range 2 {
				if base, err := dest.Seal(t.Context()); err != nil || base != tt.base {
					t.Errorf("sealed as %q, want %q: %v", base, tt.base, err)
				}
			}
			if err := dest.Delete(t.Context(), "v/a.m3u8"); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := OpenDest("s3+https://user@host/bucket", Options{}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("a storage without a secret: %v", err)
	}
}
