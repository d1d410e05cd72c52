package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/wait/linetest"
)

// The storage goes away while a stream is recorded: the stream goes on, its owner sees that the
// recording waits, and what has waited is stored when the storage is back.
func TestRecordingWaitsForBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, fault := range map[string]func(*linetest.Line){"is cut off": (*linetest.Line).Cut, "hangs": (*linetest.Line).Hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behind, line := s3test.Start(t).Behind(t)
			bucket, err := blob.Open(behind.URL(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = bucket.Close() })
			s := newTestHub(t, true)
			s.hub.o.Upload, s.hub.o.maxUpload = bucket, 200*time.Millisecond
			e := s.publish()
			waits := func() bool {
				t.Helper()
				s.hub.beat(t.Context())
				stream, err := s.store.Stream(t.Context(), s.stream.ID)
				if err != nil {
					t.Fatal(err)
				}
				return slices.Contains(stream.Issues, waiting)
			}
			fault(line)
			for range 3 {
				if err := e.send(4); err != nil {
					t.Fatal(err)
				}
				s.hub.uploadAll(t.Context())
			}
			if !waits() {
				t.Error("the owner does not see that the recording waits")
			}
			if got := s.frames(videoName, 0, 1, 2, 3, 4); len(got) != 250 {
				t.Errorf("%d frames can be fetched", len(got))
			}
			line.Mend()
			e.session.uploads.limit = maxUploadTime
			s.hub.uploadAll(t.Context())
			if waits() {
				t.Error("the recording waits although all is stored")
			}
			for n := range 5 {
				if _, err := bucket.Stat(t.Context(), fmt.Sprintf("asset/%s/%s/%d.m4s", e.session.info.ID, videoName, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
