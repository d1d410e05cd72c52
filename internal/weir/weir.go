// Package weir has the types and the rules of the service: streams, sessions, assets, tasks,
// targets, webhooks, keys, users, and the errors that say what a caller must change.
//
// It imports nothing but the standard library and does no I/O. There is one file per resource. Each
// has the resource as the API shows it (the JSON tags), the bodies of requests, and the rules that
// do not need the store. A secret has the type [Secret] and the tag `json:"-"`, so that it can't
// get into a response, an event or a log line by accident.
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

// Millis is a time in Unix milliseconds, as the API writes it.
type Millis int64

// At returns t in milliseconds.
func At(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time returns m as a time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Secret is a string that does not print, log or marshal as itself. Only Reveal returns its value,
// so that every place that shows a secret can be found.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String returns stars, or "" for an empty secret.
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
