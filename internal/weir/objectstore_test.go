package weir

import (
	"strings"
	"testing"
	"time"
)

func TestNewObjectStore(t *testing.T) {
	for _, tt := range []struct {
		url, public, err string
	}{
		{"s3+https://key:hun%2Fter2@s3.example.com/bucket", "", ""},
		{"s3+http://key:secret@127.0.0.1:9000/region/bucket", "https://cdn.example.com/x", ""},
		{"s3://key:hunter2@eu-west-1/bucket", "", ""},
		{"s3+https://key:hun/ter2@s3.example.com/bucket", "", "url: write it as"},
		{"s3+https://key:hunter2@s3.example.com/", "", "url: write it as"},
		{"s3+https://s3.example.com/bucket", "", "url: has no key and secret"},
		{"gs://key:hunter2@host/bucket", "", "url: the scheme must be"},
		{"", "", "url: write it as"},
		{"s3://key:hunter2@eu-west-1/bucket", "cdn.example.com", "publicUrl: write it as"},
		{"s3://key:hunter2@eu-west-1/bucket", "ftp://cdn.example.com", "publicUrl: write it as"},
	} {
		_, err := NewObjectStore{URL: tt.url, PublicURL: tt.public}.ObjectStore("u", "p", time.Now())
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s, %s: %v", tt.url, tt.public, err)
		case tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err) || KindOf(err) != Invalid):
			t.Errorf("%s, %s: error %v, want %q…", tt.url, tt.public, err, tt.err)
		case err != nil && strings.Contains(err.Error(), "ter2"):
			t.Errorf("the error repeats the URL: %v", err)
		}
	}
}

func TestObjectStorePatch(t *testing.T) {
	o, err := NewObjectStore{Name: "a", URL: "s3://k:s@region/bucket"}.ObjectStore("u", "p", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := (ObjectStorePatch{Name: new("b"), Disabled: new(true)}).Apply(&o); err != nil {
		t.Fatal(err)
	}
	if o.Name != "b" || !o.Disabled || o.URL.Reveal() != "s3://k:s@region/bucket" {
		t.Errorf("patched to %+v", o)
	}
	if err := (ObjectStorePatch{URL: new("nonsense")}).Apply(&o); KindOf(err) != Invalid {
		t.Errorf("bad url: %v, want invalid", err)
	}
}
