// Package weir holds the words and the rules of the service: streams, sessions,
// assets, tasks, targets, webhooks, keys, people, and the errors that tell a
// caller what to change.
//
// It imports nothing but the standard library and does no I/O; everything here
// can be tested with a table. There is one file a resource. Each has the shape
// that the API shows (the JSON tags), the bodies that callers may send, and the
// rules that need no look into the store. What is secret has the type [Secret]
// and the tag `json:"-"`, so that it can't end up in an answer, an event or a log
// line without somebody writing that down.
//
// To add a resource: a file here, a file in store (its table), a file in api
// (its routes), and its paths in openapi.yaml.
package weir

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Millis is a moment as the API writes it: Unix milliseconds.
type Millis int64

// At returns t as the API writes it.
func At(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time returns m as a time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Secret is a string that does not print, log or marshal as itself. Reveal is
// the only way to its value, so that every place that shows one can be found.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String returns stars, or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString keeps %#v from showing the value.
func (s Secret) GoString() string { return s.String() }

// Format keeps every verb from showing the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps slog from showing the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON keeps the value out of JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
