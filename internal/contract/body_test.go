package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/weir"
)

func TestParse(t *testing.T) {
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
		_, err := parse([]byte(tt.body))
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
		value, err := parse([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(plainNumbers(value))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v; want %s", in, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"c\\"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		value, err := parse(body)
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

func TestCheckBody(t *testing.T) {
	schema := compiled(t).Body("POST /api/stream")
	// The validator sees the last of two members, so the handler must not see the first.
	const twice = `{"name":"x","profiles":[{"name":"a","width":640,"height":360,"bitrate":1000,"fps":0,"quality":9999}],` +
		`"profiles":[{"name":"a","width":640,"height":360,"bitrate":1e3,"fps":0}]}`
	body, err := schema.Check([]byte(twice))
	if err != nil {
		t.Fatal(err)
	}
	var stream weir.NewStream
	if err := json.Unmarshal(body, &stream); err != nil {
		t.Fatal(err)
	}
	if p := (*stream.Profiles)[0]; p.Quality != nil || p.Bitrate != 1000 {
		t.Errorf("the handler sees %+v", p)
	}
	for _, zero := range []string{`{"name":"a\u0000b"}`, `{"name":"x","userTags":{"a\u0000":1}}`} {
		if _, err := schema.Check([]byte(zero)); kindOrNone(err) != weir.Invalid {
			t.Errorf("%s: %v, want invalid", zero, err)
		}
	}
	if _, err := schema.Check([]byte(`{"name":"a\\u0000b"}`)); err != nil {
		t.Errorf("a backslash before u0000: %v", err)
	}
}
