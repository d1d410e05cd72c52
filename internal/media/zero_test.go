package media

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"weir/internal/blob"
	"weir/internal/cmaf"
)

// A track from zero has the times of the timeline, also with frames before 0 and early decode times, and
// any range of it can be read alone.
func TestFromZero(t *testing.T) {
	for _, tt := range []struct {
		name         string
		delay, start int64
	}{
		{"plain", 0, 0},
		{"B-frames", 80, 0},
		{"starts before 0", 40, -1500},
		{"starts late", 80, 2500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, err := blob.NewDisk(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			described, segments := testTrack(cmaf.Video, 9)
			described.Delay = tt.delay
			for _, fragments := range segments {
				for i := range fragments {
					fragments[i].Start += tt.start
				}
			}
			index := putTrack(t, store, "v", described, segments)
			track := openTrack(t, store, "v").FromZero()
			layout, err := cmaf.SingleFile(index)
			if err != nil {
				t.Fatal(err)
			}
			file, err := NewFile(layout, []*Track{track})
			if err != nil {
				t.Fatal(err)
			}
			whole, err := io.ReadAll(file.Reader(t.Context()))
			if err != nil || !bytes.HasPrefix(whole, track.Init()) {
				t.Fatalf("%d bytes that begin with the init segment: %v", len(whole), err)
			}
			checkTimes(t, whole, tt.delay, segments)
			for at := 0; at < len(whole); at += 97 {
				reader := file.Reader(t.Context())
				if _, err := reader.Seek(int64(at), io.SeekStart); err != nil {
					t.Fatal(err)
				}
				some := make([]byte, min(200, len(whole)-at))
				if _, err := io.ReadFull(reader, some); err != nil || !bytes.Equal(some, whole[at:at+len(some)]) {
					t.Fatalf("from byte %d on the file differs: %v", at, err)
				}
			}
			if part, err := track.Part(t.Context(), 1, 1); err != nil || !bytes.Contains(whole, part) || int64(len(part)) != index.Segments[1].Parts[1].Size() {
				t.Errorf("a part of %d bytes is not in the file: %v", len(part), err)
			}
		})
	}
}

// checkTimes compares the times in a file with those of its segments. No decode time in the file is
// negative; the reader applies its edit list.
func checkTimes(t *testing.T, file []byte, delay int64, segments [][]cmaf.Fragment) {
	t.Helper()
	reader := cmaf.NewReader(bytes.NewReader(file))
	for _, fragments := range segments {
		for _, want := range fragments {
			got, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got.Start != want.Start-delay || int64(got.Samples[0].Offset) != delay || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("a part is decoded at %d and shown %d later, want %d and %d", got.Start, got.Samples[0].Offset, want.Start-delay, delay)
			}
		}
	}
	if _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("there is more: %v", err)
	}
	if bytes.Contains(file, []byte("tfdt\x01\x00\x00\x00\xff")) {
		t.Error("a decode time is negative")
	}
}
