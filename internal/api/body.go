package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/weir"
)

const (
	maxBody     = 1 << 20
	maxDepth    = 64 // no body of the contract is a tenth as deep
	bodyTimeout = 20 * time.Second
	// What is larger than any honest body waits its turn to be checked, so that a
	// flood of such leaves room for others.
	largeBody = 16 << 10
)

// readBody reads the body of a request and holds it against the contract. A
// request without a body has an empty object.
func (s *server) readBody(w *recorder, r *request, route *route) error {
	schema := s.contract.body(route.method + " /api" + route.path)
	if schema == nil {
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := receive(w, r)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if len(body) > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	r.body, err = checkBody(schema, body)
	return err
}

// receive reads a body that is not too large. What is too large by its own word is
// read past a little, so that the client gets to the answer.
func receive(w http.ResponseWriter, r *request) ([]byte, error) {
	tooLarge := weir.Errorf(weir.TooLarge, "the body is larger than 1 MiB")
	if r.ContentLength > maxBody {
		_, _ = io.CopyN(io.Discard, http.MaxBytesReader(w, r.Body, 4*maxBody), 4*maxBody)
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if err != nil {
		return nil, weir.Wrap(weir.Refused, err, "the body could not be read to its end")
	}
	if body = bytes.TrimSpace(body); len(body) == 0 {
		body = []byte("{}")
	}
	return body, nil
}

// checkBody returns the body as handlers decode it: what was validated, not what
// was sent, because of two members with the same name the validator saw the last
// one only.
func checkBody(schema *bodySchema, body []byte) ([]byte, error) {
	value, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	if err := schema.validate(value); err != nil {
		if e, ok := errors.AsType[*bodyError](err); ok {
			return nil, &weir.Error{Kind: weir.Invalid, Messages: e.Messages()}
		}
		return nil, err
	}
	checked, err := json.Marshal(plainNumbers(value))
	if err == nil && bytes.Contains(checked, []byte(`\u0000`)) && hasZero(value) {
		return nil, weir.Errorf(weir.Invalid, "the body has a text with a zero character in it")
	}
	return checked, err
}

// hasZero looks for what a database can't keep as text.
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

// checkAddress refuses paths and queries that are no text.
func checkAddress(r *http.Request) error {
	isText := func(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
	if !isText(r.URL.Path) {
		return weir.ErrNotFound()
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return weir.Errorf(weir.Refused, "the query of the URL is not valid: percent signs must be written as %%25, semicolons as %%3B")
	}
	for name, all := range values {
		if !isText(name) || slices.ContainsFunc(all, func(v string) bool { return !isText(v) }) {
			return weir.Errorf(weir.Refused, "the query of the URL is not valid UTF-8 text")
		}
	}
	return nil
}

// plainNumbers writes whole numbers without point and exponent, as Go's integers
// need them: 128.0 and 1e3 are integers to JSON Schema.
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

// parseBody turns a body into a value, with numbers as json.Number.
func parseBody(body []byte) (any, error) {
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
		return nil, weir.Errorf(weir.Refused, "the body is not JSON: there is something after the first value")
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

func toText(v any) string { return fmt.Sprint(v) }
