package ingest

import (
	"strings"
	"testing"

	srt "github.com/datarhei/gosrt"
)

func TestStreamKeyIn(t *testing.T) {
	for _, tt := range []struct {
		id, key string
		code    srt.RejectionReason
	}{
		{"abcd-1234", "abcd-1234", 0},
		{"publish:abcd-1234", "abcd-1234", 0},
		{"#!::r=abcd-1234,m=publish", "abcd-1234", 0},
		{"#!::m=publish,u=me,r=abcd-1234,t=stream,h=host", "abcd-1234", 0},
		{"#!::r=abcd-1234", "abcd-1234", 0},
		{"", "", srt.REJX_BAD_REQUEST},
		{"publish:", "", srt.REJX_BAD_REQUEST},
		{"#!::", "", srt.REJX_BAD_REQUEST},
		{"#!::m=publish", "", srt.REJX_BAD_REQUEST},
		{"#!::r=abcd-1234,m", "", srt.REJX_BAD_REQUEST},
		{"#!::r=abcd-1234,m=other", "", srt.REJX_BAD_REQUEST},
		{"#!:{r: abcd-1234}", "", srt.REJX_BAD_REQUEST},
		{"other:abcd-1234", "", srt.REJX_BAD_REQUEST},
		{"read:abcd-1234", "", srt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=request", "", srt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=bidirectional", "", srt.REJX_BAD_MODE},
		{"#!::r=abcd-1234,m=publish,t=file", "", srt.REJX_NOTSUP_MEDIA},
	} {
		key, refused := streamKeyIn(tt.id)
		var code srt.RejectionReason
		if refused != nil {
			code = refused.code
			if strings.Contains(refused.why, "1234") {
				t.Errorf("%q: the reason tells the key: %s", tt.id, refused.why)
			}
		}
		if key != tt.key || code != tt.code {
			t.Errorf("%q: key %q, code %d, want %q, %d", tt.id, key, code, tt.key, tt.code)
		}
	}
}

func FuzzStreamKeyIn(f *testing.F) {
	for _, id := range []string{"key", "publish:key", "#!::r=key,m=publish", "#!::m=request,r=key", "#!:{}", "a:b:c"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		key, refused := streamKeyIn(id)
		if (refused == nil) != (key != "") {
			t.Errorf("key %q and %v", key, refused)
		}
		if !strings.Contains(id, key) {
			t.Errorf("key %q was not in %q", key, id)
		}
	})
}
