package blob

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestParseBucket(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want bucket
		base string
	}{
		{
			"s3+https://key:secret@s3.eu-west-1.amazonaws.com/out",
			bucket{true, "s3.eu-west-1.amazonaws.com", "eu-west-1", "key", "secret", "out", ""},
			"https://s3.eu-west-1.amazonaws.com/out",
		},
		{
			"s3+https://k%2Fe%3Ay:s%40%2F%25+ret@account.r2.example.com:8443/out/a/b/",
			bucket{true, "account.r2.example.com:8443", "r2", "k/e:y", "s@/%+ret", "out", "a/b"},
			"https://account.r2.example.com:8443/out/a/b",
		},
		{"s3+http://k:s@127.0.0.1:7070/out", bucket{false, "127.0.0.1:7070", "us-east-1", "k", "s", "out", ""}, "http://127.0.0.1:7070/out"},
		{"s3+http://k:s@[::1]:7070/out", bucket{false, "[::1]:7070", "us-east-1", "k", "s", "out", ""}, "http://[::1]:7070/out"},
		{"s3+https://k:s@storage.example.com/out/", bucket{true, "storage.example.com", "us-east-1", "k", "s", "out", ""}, "https://storage.example.com/out"},
		{"s3+https://k:s@localhost/out", bucket{true, "localhost", "us-east-1", "k", "s", "out", ""}, "https://localhost/out"},
		{"s3://k:s@eu-central-1/out/p", bucket{true, "s3.eu-central-1.amazonaws.com", "eu-central-1", "k", "s", "out", "p"}, "https://s3.eu-central-1.amazonaws.com/out/p"},
	} {
		got, err := parseBucket(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(bucket{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.url, diff)
		}
		if got := baseURL(tt.url); got != tt.base {
			t.Errorf("base of %s = %s, want %s", tt.url, got, tt.base)
		}
	}
}

// Only credentials are masked in the messages of a storage.
func TestHide(t *testing.T) {
	for _, tt := range []struct{ key, secret, text, want string }{
		{"k", "s", "Check your key and signing method.", "Check your key and signing method."},
		{"key", "method", "Check your key and signing method.", "Check your key and signing ***."},
		{"AKIAEXAMPLE", "s@/%+ret", "AKIAEXAMPLE, 'AKIAEXAMPLE' and s@/%+ret", "***, '***' and ***"},
		{"secret", "geheim", "secretary, my_geheim, geheime, geheim=secret", "secretary, my_***, geheime, ***=***"},
		{"ab-ab-ab", "\xff\xfe\xff\xfe\xff\xfe", "ab-ab-ab-ab ab-ab-ab\xff\xfe\xff\xfe\xff\xfe", "***-ab ******"},
		{"mustermann", "straße", "die straßenbahn, die straße", "die straßenbahn, die ***"},
	} {
		if got := (bucket{key: tt.key, secret: tt.secret}).hide(tt.text); got != tt.want {
			t.Errorf("%s and %s hidden: %q, want %q", tt.key, tt.secret, got, tt.want)
		}
	}
}

func TestBadStorageURLs(t *testing.T) {
	for _, raw := range []string{
		"", "x", "https://k:geheim@host/bucket", "s3+https://host/bucket", "s3+https://k@host/bucket", "s3+https://k:@host/bucket",
		"s3+https://:geheim@host/bucket", "s3+https://k:geheim@/bucket", "s3+https://k:geheim@host", "s3+https://k:geheim@host/",
		"s3://k:geheim@host.example.com/bucket", "s3://k:geheim@/bucket", "s3+https://k:geheim@host/..", "s3+https://k:geh%zzeim@host/b",
		"s3+https://k:geheim@ho%73t/b", "s3+https://k:geheim@host/b/../c", "s3+https://k:geheim@host/B_!/c", "w3s://geheim@/",
	} {
		_, err := Open(raw, Options{})
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("%s: error = %v, want one of kind invalid", raw, err)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "geheim") || strings.Contains(text, "geh%zz") {
			t.Errorf("%s: the error shows the secret: %s", raw, text)
		}
		if !strings.HasSuffix(raw, "/c") {
			if got := baseURL(raw); got != "" {
				t.Errorf("base of %s = %s, want none", raw, got)
			}
		}
	}
}

func TestBucketIsNotPrintedWithItsSecret(t *testing.T) {
	b, err := parseBucket("s3+https://wohnung:geheim@host/bucket")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, b); strings.Contains(text, "geheim") || strings.Contains(text, "wohnung") {
			t.Errorf("%s shows the secret: %s", format, text)
		}
	}
}

func FuzzParseBucket(f *testing.F) {
	for _, seed := range []string{
		"s3+https://key:secret@s3.eu-west-1.amazonaws.com/out/a", "s3://k:s@r/b", "s3+http://k%2F:s%40@[::1]:80/b//c/",
		"s3+http://F:0@::/b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		b, err := parseBucket(raw)
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Errorf("error = %v, want one of kind invalid", err)
			}
			return
		}
		if b.key == "" || b.secret == "" || b.host == "" || b.name == "" || b.region == "" || strings.Contains(b.name, "/") {
			t.Errorf("%q gives %#v with something missing", raw, b)
		}
		base := b.base()
		if u, err := url.Parse(base); err != nil || u.User != nil || u.Host != b.host {
			t.Errorf("base %q of %q: %v", base, raw, err)
		}
		_, _ = Open(raw, Options{})
	})
}

func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"a/b", "../a", "a//b", "a\x00", ".weir/x", "a/.weir", "\\", "ü/ñ"} {
		f.Add(seed)
	}
	s, err := NewDisk(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	root := s.(*disk).dir
	f.Fuzz(func(t *testing.T, key string) {
		path, ok := s.Path(key)
		if valid := checkKey(key) == nil; ok != valid {
			t.Fatalf("path of %q: %v, valid: %v", key, ok, valid)
		}
		if !ok {
			return
		}
		if path != root+"/"+key || strings.Contains(path, "/../") || strings.HasPrefix(path, root+"/"+hidden+"/") {
			t.Errorf("%q leads to %q", key, path)
		}
	})
}
