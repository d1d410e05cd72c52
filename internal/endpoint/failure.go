package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// Failure is an error as a client sees it: a status, and a body {"errors": [...]}.
type Failure struct {
	Status     int
	Messages   []string
	RetryAfter time.Duration // when the client may try again; 0 = it is not said
	Caching    Caching       // "" = as the handler has set it
}

// FailureOf returns how a client sees an error. Of an error that is our fault it sees no more than
// the text internal.
func FailureOf(err error, internal string) Failure {
	f := Failure{Status: weir.KindOf(err).Status(), Messages: []string{internal}}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		f.Messages, f.RetryAfter = e.Messages, e.RetryAfter
	}
	return f
}

// Body returns the body, without a line feed at its end.
func (f Failure) Body() []byte {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string][]string{"errors": f.Messages}) // strings are always valid JSON
	return bytes.TrimSuffix(body.Bytes(), []byte("\n"))
}

// SetHeader sets the headers of the failure, and removes those of the response that failed.
func (f Failure) SetHeader(h http.Header) {
	for _, name := range []string{"Content-Length", "Content-Range", "Content-Disposition", "Accept-Ranges", "ETag"} {
		h.Del(name)
	}
	if !strings.HasPrefix(h.Get("Content-Type"), "application/json") { // oEmbed has no charset
		h.Set("Content-Type", JSON)
	}
	if f.Caching != "" {
		f.Caching.Set(h)
	}
	SetRetryAfter(h, f.RetryAfter)
}

// Write sends the failure, with a line feed at its end.
func (f Failure) Write(w http.ResponseWriter) {
	f.SetHeader(w.Header())
	w.WriteHeader(f.Status)
	_, _ = w.Write(append(f.Body(), '\n')) // an error means that the client has disconnected
}

// JSON is the Content-Type of failures.
const JSON = "application/json; charset=utf-8"

// SetRetryAfter tells the client when to try again, in whole seconds: at least one, and never too
// early. It sets nothing for 0.
func SetRetryAfter(h http.Header, after time.Duration) {
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
}
