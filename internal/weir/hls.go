package weir

import "strings"

// HLSAttributes reads the attributes in a line of an HLS playlist, like
// NAME=VALUE,OTHER="with, comma". What can't be read is left out.
func HLSAttributes(text string) map[string]string {
	found := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		var value string
		if quoted, isQuoted := strings.CutPrefix(rest, `"`); isQuoted {
			value, rest, _ = strings.Cut(quoted, `"`)
			_, text, _ = strings.Cut(rest, ",")
		} else {
			value, text, _ = strings.Cut(rest, ",")
		}
		found[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return found
}
