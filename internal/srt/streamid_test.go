package srt

import (
	"strings"
	"testing"

	gosrt "github.com/datarhei/gosrt"
)

func TestStreamKey(t *testing.T) {
	for _, tt := range []struct {
		id, key string
		code    gosrt.RejectionReason
	}{
		{"abcd-1234", "abcd-1234", 0},
		{"publish:abcd-1234", "abcd-1234", 0},
		{"#!::r=abcd-1234,m=publish", "abcd-1234", 0},
		{"#!::m=publish,u=me,r=abcd-1234,t=stream,h=host", "abcd-1234", 0},
		{"#!::r=abcd-1234", "abcd-1234", 0},
		{"", "", gosrt.REJX_BAD_REQUEST},
		{"publish:", "", gosrt.REJX_BAD_REQUEST},
		{"#!::", "", gosrt.REJX_BAD_REQUEST},
		{"#!::m=publish", "", gosrt.REJX_BAD_REQUEST},
		{"#!::r=abcd-1234,m", "", gosrt.REJX_BAD_REQUEST},
		{"#!::r=abcd-1234,m=other", "", gosrt.REJX_BAD_REQUEST},
		{"#!:{r: abcd-1234}", "", gosrt.REJX_BAD_REQUEST},
		{"other:abcd-1234", "", gosrt.REJX_BAD_REQUEST},
		{"read:abcd-1234", "", gosrt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=request", "", gosrt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=bidirectional", "", gosrt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=publish,t=file", "", gosrt.REJX_NOTSUP_MEDIA},
	} {
		key, err := streamKey(tt.id)
		var code gosrt.RejectionReason
		if err != nil {
			code = rejection(err)
			if strings.Contains(err.Error(), "1234") {
				t.Errorf("%q: the reason contains the key: %v", tt.id, err)
			}
		}
		if key != tt.key || code != tt.code {
			t.Errorf("%q: key %q, code %d, want %q, %d", tt.id, key, code, tt.key, tt.code)
		}
	}
}

func FuzzStreamKey(f *testing.F) {
	for _, id := range []string{"key", "publish:key", "#!::r=key,m=publish", "#!::m=request,r=key", "#!:{}", "a:b:c"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		key, err := streamKey(id)
		if (err == nil) != (key != "") {
			t.Errorf("key %q and %v", key, err)
		}
		if !strings.Contains(id, key) {
			t.Errorf("key %q was not in %q", key, id)
		}
	})
}
