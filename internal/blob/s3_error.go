package blob

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"

	"github.com/minio/minio-go/v7"

	"weir/internal/weir"
)

// maxReason bounds the length of a server's own message.
const maxReason = 300

// invalidPart is the code of S3 for parts that an upload does not have.
const invalidPart = "InvalidPart"

// transient are the codes of S3 for errors that go away, whatever their status.
var transient = map[string]bool{
	"RequestTimeout": true, "Throttling": true, "ThrottlingException": true, "RequestLimitExceeded": true,
	"RequestThrottled": true, "InternalError": true, "SlowDown": true, "SlowDownRead": true, "SlowDownWrite": true,
	"ServiceUnavailable": true, "BandwidthLimitExceeded": true, "IncompleteBody": true, "BadDigest": true,
	"XAmzContentSHA256Mismatch": true, "OperationAborted": true,
}

// failure returns an error of the client library with its kind, and a message with the store's own code
// and reason.
func (s *s3) failure(ctx context.Context, err error, key string) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return netError(ctx, err, s.bucket.host)
	}
	if e.RequestID == "minio" { // of the library itself, about an argument
		return weir.Errorf(weir.Invalid, "%s", s.reason(e))
	}
	status, refused := e.StatusCode, "the storage at "+s.bucket.host+" refused: "+s.reason(e)
	switch {
	case e.Code == minio.NoSuchBucket:
		return weir.Errorf(weir.Invalid, "the storage at %s has no bucket %q (%s)", s.bucket.host, s.bucket.name, s.reason(e))
	case e.Code == minio.NoSuchKey || e.Code == minio.NoSuchUpload:
		return weir.Errorf(weir.NotFound, "%s is not in the bucket %q of %s (%s)", key, s.bucket.name, s.bucket.host, s.reason(e))
	case e.Code == invalidPart: // like an upload that does not exist: it has to begin again
		return weir.Errorf(weir.NotFound, "upload parts of %s are no longer in the storage at %s (%s)", key, s.bucket.host, s.reason(e))
	case e.Code == minio.PreconditionFailed || status == http.StatusPreconditionFailed:
		return changed(s.bucket.host)
	case transient[e.Code], status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == 0:
		return weir.Errorf(weir.Upstream, "the storage at %s failed: %s", s.bucket.host, s.reason(e))
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		return weir.Errorf(weir.Denied, "%s", refused)
	}
	return weir.Errorf(weir.Invalid, "%s", refused)
}

// isPage reports whether a text is HTML: that of a server that is no store, or of a proxy.
func isPage(text string) bool {
	begin := strings.ToLower(text[:min(len(text), len("<!doctype"))])
	return strings.HasPrefix(begin, "<!doctype") || strings.HasPrefix(begin, "<html")
}

// reason returns the store's code and message, without credentials.
func (s *s3) reason(e minio.ErrorResponse) string {
	text, message := e.Code, strings.TrimSpace(e.Error())
	switch {
	case isPage(message):
		text += ": the answer is a web page, not that of an S3 service; check the endpoint"
	case message != "" && message != e.Code:
		text += ": " + message
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s.bucket.hide(text))
	return cut(text, maxReason)
}
