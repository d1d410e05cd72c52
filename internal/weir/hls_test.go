package weir

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHLSAttributes(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                       {},
		"TYPE":                   {},
		"TYPE=AUDIO":             {"TYPE": "AUDIO"},
		"A=1, B = 2 ,C=":         {"A": "1", "B": "2", "C": ""},
		`CODECS="avc1,mp4a",B=2`: {"CODECS": "avc1,mp4a", "B": "2"},
		`URI="a=b",B="x"`:        {"URI": "a=b", "B": "x"},
		`URI="no end,B=2`:        {"URI": "no end,B=2"},
		`A="1"junk,B=2,junk`:     {"A": "1", "B": "2"},
	} {
		if diff := cmp.Diff(want, HLSAttributes(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
