package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"weir/internal/weir"
)

// Body is the schema of an operation's body. Many goroutines may use it.
type Body struct {
	schema *jsonschema.Schema
	place  string // of the schema in doc, behind its $ref
	doc    *document
}

// The limits of every body, whatever its schema. The library collects all errors, so the number
// of values bounds the cost of an invalid body.
const (
	maxDepth    = 64 // no body of the document is a tenth as deep
	maxValues   = 10_000
	maxDigits   = 64
	maxExponent = 308 // of a float64; the library writes numbers out in full
)

// Check checks a body and returns it for the handler to decode. It returns the validated body, not
// the received one: of two members with the same name only the last was validated. The error of an
// invalid body has messages for programs, which are JSON in a string as in the Livepeer Studio API,
// and after them one for people.
func (b *Body) Check(body []byte) ([]byte, error) {
	value, err := parse(body)
	if err != nil {
		return nil, err
	}
	if err := b.validate(value); err != nil {
		return nil, err
	}
	checked, err := json.Marshal(plainNumbers(value))
	if err == nil && bytes.Contains(checked, []byte(`\u0000`)) && hasZero(value) {
		return nil, weir.Errorf(weir.Invalid, "the body has a string with a NUL character; remove it")
	}
	return checked, err
}

func (b *Body) validate(value any) error {
	budget := maxValues
	failure := checkLimits(value, nil, &budget)
	if failure == nil {
		err := b.schema.Validate(value)
		if err == nil {
			return nil
		}
		found, ok := errors.AsType[*jsonschema.ValidationError](err)
		if !ok {
			return fmt.Errorf("validate body: %w", err)
		}
		failure = b.doc.explain(b.doc.first(found))
	}
	var messages []string
	for _, f := range failure.flatten() {
		text, err := f.forPrograms(b.place)
		if err != nil {
			return fmt.Errorf("describe a body's error: %w", err)
		}
		messages = append(messages, text)
	}
	return &weir.Error{Kind: weir.Invalid, Messages: append(messages, failure.sentence())}
}

// parse decodes JSON, with numbers as json.Number.
func parse(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, weir.Errorf(weir.Refused, "the body is not valid UTF-8")
	}
	if tooDeep(body) {
		return nil, weir.Errorf(weir.Refused, "the body is nested deeper than %d levels", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, weir.Errorf(weir.Refused, "the body is not JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, weir.Errorf(weir.Refused, "the body is not JSON: there is data after the first value")
	}
	return value, nil
}

// tooDeep counts brackets outside of strings.
func tooDeep(body []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// checkLimits returns an error for a value that would cost too much to validate.
func checkLimits(value any, instance []string, budget *int) *failure {
	if *budget--; *budget < 0 {
		return &failure{
			keyword: "maxValues", params: map[string]any{"limit": maxValues},
			message: fmt.Sprintf("must NOT have more than %d values", maxValues),
			advice:  fmt.Sprintf("must have at most %d values in all", maxValues),
		}
	}
	switch value := value.(type) {
	case map[string]any:
		var first *failure
		for name, member := range value {
			found := checkLimits(member, append(instance, name), budget)
			if found != nil && (first == nil || slices.Compare(found.instance, first.instance) < 0) {
				first = found // the map has no order, the response must have one
			}
			if *budget < 0 {
				return found
			}
		}
		return first
	case []any:
		for i, item := range value {
			if found := checkLimits(item, append(instance, strconv.Itoa(i)), budget); found != nil {
				return found
			}
		}
	case json.Number:
		if !sensibleNumber(value) {
			return &failure{
				keyword: "format", instance: slices.Clone(instance), params: map[string]any{"format": "double"},
				message: `must match format "double"`, advice: "must be a number with fewer digits",
			}
		}
	}
	return nil
}

// sensibleNumber reports whether a number is short, and in the range of float64.
func sensibleNumber(n json.Number) bool {
	text := string(n)
	if len(text) > maxDigits {
		return false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(text[i+1:])
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return false
		}
	}
	f, err := n.Float64()
	return err == nil && !math.IsInf(f, 0)
}

// hasZero finds zero characters, which a database can't store as text.
func hasZero(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if strings.ContainsRune(name, 0) || hasZero(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasZero)
	case string:
		return strings.ContainsRune(v, 0)
	}
	return false
}

// plainNumbers writes whole numbers without point and exponent, as Go's integers need them: 128.0
// and 1e3 are integers to JSON Schema.
func plainNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = plainNumbers(member)
		}
	case []any:
		for i, item := range v {
			v[i] = plainNumbers(item)
		}
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
	}
	return value
}
