package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// document is the YAML with its members in their order. Places in it are JSON pointers.
type document struct{ root any }

// at returns the value at a place, nil when there is none.
func (d *document) at(place string) any {
	value := d.root
	for token := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
		_, value = child(value, token)
	}
	return value
}

// follow returns the place that a $ref names, or the place itself if it has no $ref.
func (d *document) follow(place string) string {
	for {
		ref, ok := d.at(place + "/$ref").(string)
		if !ok {
			return place
		}
		place = strings.TrimPrefix(ref, "#")
	}
}

// members yields the names and the places of the members at a place.
func (d *document) members(place string) func(yield func(name, place string) bool) {
	return func(yield func(string, string) bool) {
		object, _ := d.at(place).(yaml.MapSlice)
		for _, member := range object {
			name := member.Key.(string)
			if !yield(name, place+"/"+escape(name)) {
				return
			}
		}
	}
}

// title returns the title of the schema at a place, which names one form of a oneOf.
func (d *document) title(place string) string {
	title, ok := d.at(d.follow(place) + "/title").(string)
	if !ok {
		return "another form"
	}
	return title
}

// compare returns which of two places comes first in the document.
func (d *document) compare(a, b string) int {
	tokensA, tokensB := strings.Split(a, "/"), strings.Split(b, "/")
	value := d.root
	for i := 1; i < min(len(tokensA), len(tokensB)); i++ {
		indexA, member := child(value, tokensA[i])
		if tokensA[i] != tokensB[i] {
			indexB, _ := child(value, tokensB[i])
			return cmp.Compare(indexA, indexB)
		}
		value = member
	}
	return cmp.Compare(len(tokensA), len(tokensB))
}

// child returns the member or item with the escaped name, and its index.
func child(value any, token string) (int, any) {
	switch value := value.(type) {
	case yaml.MapSlice:
		name := token
		if strings.Contains(token, "~") {
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		}
		for i, member := range value {
			if member.Key == name {
				return i, member.Value
			}
		}
	case []any:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(value) {
			return i, value[i]
		}
	}
	return -1, nil
}

func escape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// placeOf returns the place in the document that a URL of the library names.
func placeOf(schemaURL string) string {
	_, fragment, _ := strings.Cut(schemaURL, "#")
	place, err := url.PathUnescape(fragment)
	if err != nil {
		return fragment // never: jsonschema escaped it
	}
	return place
}

// toJSON writes YAML as JSON, members in their order.
func toJSON(value any) ([]byte, error) {
	var buf bytes.Buffer
	err := writeJSON(&buf, value)
	return buf.Bytes(), err
}

func writeJSON(buf *bytes.Buffer, value any) error {
	switch value := value.(type) {
	case yaml.MapSlice:
		buf.WriteByte('{')
		for i, member := range value {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := writeJSON(buf, member.Key); err != nil { // go-yaml makes sure that it is a string
				return err
			}
			buf.WriteByte(':')
			if err := writeJSON(buf, member.Value); err != nil {
				return err
			}
		}
		buf.WriteByte('}')
	case []any:
		buf.WriteByte('[')
		for i, item := range value {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := writeJSON(buf, item); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
	default:
		encoder := json.NewEncoder(buf)
		encoder.SetEscapeHTML(false) // `>` occurs in messages
		if err := encoder.Encode(value); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - 1) // the line feed
	}
	return nil
}
