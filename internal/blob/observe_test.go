package blob

import (
	"strings"
	"testing"
	"time"

	"weir/internal/blob/s3test"
)

// Every request to a bucket is observed, and whether the bucket failed. An object that does not exist
// is no failure.
func TestRequestsAreObserved(t *testing.T) {
	t.Parallel()
	behind, line := s3test.Start(t).Behind(t)
	var requests, failures int
	bucket, err := Open(behind.URL(), Options{timing: timing{tries: 2, pause: time.Millisecond}, Observe: func(took time.Duration, failed bool) {
		if requests++; failed {
			failures++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	if err := bucket.Put(t.Context(), "film", strings.NewReader("film"), 4, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	body, _, err := bucket.Get(t.Context(), "film", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if _, err := bucket.Stat(t.Context(), "none"); err == nil {
		t.Error("an object that is not there is found")
	}
	if requests != 3 || failures != 0 {
		t.Errorf("%d requests, %d failures; want 3 and none", requests, failures)
	}
	line.Cut()
	if _, err := bucket.Stat(t.Context(), "film"); err == nil {
		t.Error("a bucket that is away answers")
	}
	if failures < 2 || requests != 3+failures {
		t.Errorf("with tries that fail: %d requests, %d failures; want two more of both, at least", requests, failures)
	}
}
