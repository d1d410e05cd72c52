package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

func TestParseFilters(t *testing.T) {
	want := []store.Filter{{ID: "name", Value: "x"}, {ID: "isActive", Value: true}}
	for _, text := range []string{
		`[{"id":"name","value":"x"},{"id":"isActive","value":true}]`,
		`%5B%7B%22id%22%3A%22name%22%2C%22value%22%3A%22x%22%7D%2C%7B%22id%22%3A%22isActive%22%2C%22value%22%3Atrue%7D%5D`,
	} {
		got, err := parseFilters(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("filters differ (-want +got):\n%s", diff)
		}
	}
	for text, want := range map[string]string{
		`{}`:                        `error parsing filters: Error: must be an array`,
		`[{"id":"name"}]`:           `error parsing filters: Error: missing filter value for id "name"`,
		`[7]`:                       `error parsing filters: Error: missing filter value for id ""`,
		`[{"id":"a","value":null}]`: `error parsing filters: Error: missing filter value for id "a"`,
		`[`:                         `error parsing filters: SyntaxError: unexpected EOF`,
	} {
		_, err := parseFilters(text)
		if err == nil || err.Error() != want {
			t.Errorf("filters %s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseFilters(f *testing.F) {
	f.Add(`[{"id":"name","value":{"gt":1}}]`)
	f.Add(`%5B%5D`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseFilters(text); err != nil && weir.KindOf(err) != weir.Refused {
			t.Errorf("error of kind %s: %v", weir.KindOf(err), err)
		}
	})
}
