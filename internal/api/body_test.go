package api

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/weir"
)

func TestParseBody(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		kind       weir.Kind // of the error; "" = none
	}{
		{"object", `{"a":1}`, ""},
		{"brackets in strings do not count", `"` + strings.Repeat("[", 100) + `\""`, ""},
		{"as deep as allowed", strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), ""},
		{"too deep", strings.Repeat("[", maxDepth+1), weir.Refused},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", weir.Refused},
		{"two values", `{} {}`, weir.Refused},
		{"no JSON", `{"a":`, weir.Refused},
		{"nothing", ``, weir.Refused},
	} {
		_, err := parseBody([]byte(tt.body))
		if got := kindOrNone(err); got != tt.kind {
			t.Errorf("%s: kind %q, want %q (%v)", tt.name, got, tt.kind, err)
		}
	}
}

func kindOrNone(err error) weir.Kind {
	if err == nil {
		return ""
	}
	return weir.KindOf(err)
}

func TestPlainNumbers(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":128.0,"b":[1e3,1.5,7]}`: `{"a":128,"b":[1000,1.5,7]}`,
		`1e400`:                       `1e400`,
		`1e17`:                        `1e17`,
		`"1e3"`:                       `"1e3"`,
	} {
		value, err := parseBody([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(plainNumbers(value))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v; want %s", in, got, err, want)
		}
	}
}

func FuzzParseBody(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"c\\"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		value, err := parseBody(body)
		if err != nil {
			if weir.KindOf(err) == weir.Internal {
				t.Errorf("error without a kind: %v", err)
			}
			return
		}
		if _, err := json.Marshal(plainNumbers(value)); err != nil {
			t.Error(err)
		}
	})
}
