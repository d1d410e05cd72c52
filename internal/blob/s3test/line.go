package s3test

import (
	"strings"
	"testing"

	"weir/internal/wait/linetest"
)

// Behind returns the bucket at the other end of a line.
func (b Bucket) Behind(tb testing.TB) (Bucket, *linetest.Line) {
	tb.Helper()
	l := linetest.New(tb, strings.TrimPrefix(b.Endpoint, "http://"))
	b.Endpoint = "http://" + l.Address()
	return b, l
}
