package service

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	domain "weir/internal/weir"
)

// window is how much of a secret gives it away: a dozen characters in a row.
const window = 12

// secrets finds values that were planted, whole or in part, in the forms in which
// they could have been written somewhere: as they are, percent-encoded, escaped as
// in JSON or Go, in hexadecimal digits and in base64, in any case.
type secrets struct {
	t       *testing.T
	values  map[string]string          // by name
	windows map[[window]byte]string    // of every form of every value → name
	starts  [1 << 24 / 8]byte          // a bit for the first three bytes of each window
	known   map[string]map[string]bool // what was reported, by place and name, so that it is once
}

func newSecrets(t *testing.T) *secrets {
	return &secrets{t: t, values: map[string]string{}, windows: map[[window]byte]string{}, known: map[string]map[string]bool{}}
}

// plant adds a value that must stay a secret, and returns it.
func (s *secrets) plant(name, value string) string {
	s.t.Helper()
	if len(value) < window || s.values[name] != "" {
		s.t.Fatalf("%s: the value %q is too short to be found, or there is one of that name", name, value)
	}
	s.values[name] = value
	for _, form := range forms(value) {
		form := lower([]byte(form))
		for i := range len(form) - window + 1 {
			p := [window]byte(form[i:])
			s.windows[p] = name
			start := int(p[0])<<16 | int(p[1])<<8 | int(p[2])
			s.starts[start/8] |= 1 << (start % 8)
		}
	}
	return value
}

// make plants a random value. It has letters and digits only, so that it can be
// part of anything.
func (s *secrets) make(name string) string {
	s.t.Helper()
	return s.plant(name, domain.NewToken()[:24])
}

// makeOdd plants a random value with characters that others would escape.
func (s *secrets) makeOdd(name string) string {
	s.t.Helper()
	r := domain.NewToken()
	return s.plant(name, r[:8]+`"`+r[8:16]+"&"+r[16:24]+"+"+r[24:32]+"ä"+r[32:40]+"/ "+r[40:48])
}

// search reports every secret in content, except for those that may be in that place.
func (s *secrets) search(place string, content []byte, mayHave ...string) {
	s.t.Helper()
	for name, around := range s.find(content) {
		if slices.Contains(mayHave, name) || s.known[place][name] {
			continue
		}
		if s.known[place] == nil {
			s.known[place] = map[string]bool{}
		}
		s.known[place][name] = true
		s.t.Errorf("%s: has the secret %q (%s): …%q…", place, name, s.values[name], around)
	}
}

// find returns the names of the secrets in content, and what is around them.
func (s *secrets) find(content []byte) map[string]string {
	found := map[string]string{}
	text := lower(content)
	for i := range max(0, len(text)-window+1) {
		start := int(text[i])<<16 | int(text[i+1])<<8 | int(text[i+2])
		if s.starts[start/8]&(1<<(start%8)) == 0 {
			continue
		}
		if name, ok := s.windows[[window]byte(text[i:])]; ok && found[name] == "" {
			found[name] = string(content[max(0, i-60):min(len(content), i+60)])
		}
	}
	return found
}

// forms returns how a value may have been written.
func forms(value string) []string {
	all := []string{
		value, url.QueryEscape(value), url.PathEscape(value), (&url.URL{Path: value}).EscapedPath(), strconv.Quote(value), strconv.QuoteToASCII(value),
		hex.EncodeToString([]byte(value)),
	}
	for _, escapeHTML := range []bool{true, false} {
		var text strings.Builder
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(escapeHTML)
		_ = enc.Encode(value) // a string always can be
		all = append(all, strings.Trim(text.String(), "\"\n"))
	}
	// What base64 makes of a value depends on how many bytes are before it.
	for before := range 3 {
		padded := strings.Repeat("\x00", before) + value
		first, last := (8*before+5)/6, 8*len(padded)/6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, encoding.EncodeToString([]byte(padded))[first:last])
		}
	}
	return all
}

// lower returns a copy with ASCII letters in lower case; all other bytes stay.
func lower(content []byte) []byte {
	text := slices.Clone(content)
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			text[i] = c + 'a' - 'A'
		}
	}
	return text
}

// The search must be seen to find, or its silence would mean nothing.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := newSecrets(t)
	plain, odd := s.make("plain"), s.makeOdd("odd")
	noise := strings.Repeat("GET /api/stream/{id} \x00\xff{\"name\":\"x\"}\n", 50)
	quoted, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"as it is": odd, "upper case": strings.ToUpper(odd), "JSON": string(quoted), "JSON in JSON": strconv.Quote(string(quoted)),
		"query": url.Values{"token": {odd}}.Encode(), "path": (&url.URL{Path: "/x/" + odd + "/y"}).String(), "Go": fmt.Sprintf("%q", odd),
		"user of a URL": (&url.URL{Scheme: "s3", User: url.UserPassword("key", odd), Host: "h"}).String(),
		"hexadecimal":   fmt.Sprintf("%x", odd), "HEXADECIMAL": fmt.Sprintf("%X", odd), "first half": odd[:len(odd)/2], "second half": odd[len(odd)/2:],
		"base64": base64.StdEncoding.EncodeToString([]byte(odd)), "base64 of a URL": base64.URLEncoding.EncodeToString([]byte(odd)),
		"base64 after one": base64.StdEncoding.EncodeToString([]byte("x" + odd + "y")), "Basic": base64.StdEncoding.EncodeToString([]byte("id:" + odd)),
	} {
		for place, content := range map[string]string{"alone": text, "in the middle": noise + text + noise} {
			found := s.find([]byte(content))
			if found["odd"] == "" || found["plain"] != "" {
				t.Errorf("%s, %s: found %v, want odd", what, place, found)
			}
		}
	}
	if found := s.find([]byte(noise + plain[:window-1] + "\n" + noise)); len(found) > 0 {
		t.Errorf("found %v where nothing is", found)
	}
}
