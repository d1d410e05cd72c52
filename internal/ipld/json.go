package ipld

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// EncodeJSON returns a value as DAG-JSON, in its only form: keys are sorted, and there is no space.
func EncodeJSON(value any) ([]byte, error) { return appendJSON(nil, value) }

func appendJSON(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendFloat(b, v)
	case string:
		return appendString(b, v), nil
	case []byte:
		b = append(b, `{"/":{"bytes":"`...)
		return append(base64.RawStdEncoding.AppendEncode(b, v), `"}}`...), nil
	case CID:
		return append(append(append(b, `{"/":"`...), v.String()...), `"}`...), nil
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case Map:
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, key), ':')
			var err error
			if b, err = appendJSON(b, v[key]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	return nil, fmt.Errorf("%T is no value of DAG-JSON", value)
}

// appendFloat appends a number as JavaScript writes it. It always has a point or an exponent, because a
// number without is an integer.
func appendFloat(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v is no value of DAG-JSON", f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	b = append(b, text...)
	if !bytes.ContainsAny(text, ".e") {
		b = append(b, ".0"...)
	}
	return b, nil
}

// appendString appends a text as JSON.stringify of JavaScript writes it. encoding/json escapes more,
// and signatures are of these bytes.
func appendString(b []byte, text string) []byte {
	const short = "\b\f\n\r\t\"\\"
	const letters = "bfnrt\"\\"
	b = append(b, '"')
	for _, r := range text { // of which no part is invalid UTF-8
		if i := strings.IndexRune(short, r); i >= 0 {
			b = append(b, '\\', letters[i])
		} else if r < ' ' {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

var errJSON = errors.New("it is not DAG-JSON")

// decodeJSON reads DAG-JSON, or JSON, in which nothing is a link.
func decodeJSON(block []byte, plain bool) (any, []CID, error) {
	d := jsonDecoder{decoder: json.NewDecoder(bytes.NewReader(block)), plain: plain}
	d.decoder.UseNumber()
	if !utf8.Valid(block) {
		return nil, nil, errJSON
	}
	v, err := d.value(0)
	if err != nil {
		return nil, nil, errJSON
	}
	if _, err := d.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errJSON
	}
	return v, d.links, nil
}

type jsonDecoder struct {
	decoder *json.Decoder
	plain   bool
	links   []CID
}

func (d *jsonDecoder) value(depth int) (any, error) {
	token, err := d.decoder.Token()
	if err != nil || depth > maxNesting {
		return nil, errJSON
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		if !strings.ContainsAny(t.String(), ".eE") {
			return nil, errJSON // an integer that is too large
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			return d.list(depth)
		}
		return d.object(depth)
	}
	return token, nil // a text, a truth value or null
}

func (d *jsonDecoder) list(depth int) (any, error) {
	all := []any{}
	for d.decoder.More() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	_, err := d.decoder.Token()
	return all, err
}

func (d *jsonDecoder) object(depth int) (any, error) {
	m := Map{}
	for d.decoder.More() {
		token, err := d.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if _, twice := m[key]; twice {
			return nil, errJSON
		}
		if m[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	if _, err := d.decoder.Token(); err != nil {
		return nil, err
	}
	special, ok := m["/"]
	if !ok || len(m) > 1 || d.plain {
		return m, nil
	}
	return d.special(special)
}

// special returns the link or the bytes that an object with the key "/" is.
func (d *jsonDecoder) special(of any) (any, error) {
	switch of := of.(type) {
	case string:
		c, err := ParseCID(of)
		d.links = append(d.links, c)
		return c, err
	case Map:
		if text, ok := of["bytes"].(string); ok && len(of) == 1 {
			return base64.RawStdEncoding.DecodeString(text)
		}
	}
	return nil, errJSON
}
