package cmaf

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Stored media must have the bytes of its source, and the same frames at
// the same times.
func TestRoundTrip(t *testing.T) {
	for _, tt := range codings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := generate(t, tt.options)
			source := writeFile(t, data)
			for i, track := range store(t, data) {
				kept := writeFile(t, track.fmp4())
				decode(t, kept)
				tracks, _ := readAll(t, track.fmp4())
				if diff := cmp.Diff([]Track{track.Track}, tracks, cmpopts.IgnoreFields(Track{}, "Delay")); diff != "" {
					t.Errorf("init segment of track %d (-want +got):\n%s", i, diff)
				}
				want, got := frames(t, source, i), frames(t, kept, 0)
				if len(got) == 0 {
					t.Fatal("nothing was decoded")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("frames of track %d (-want +got):\n%s", i, diff)
				}
				if n := len(packets(t, source, fmt.Sprint(i))); track.Frames() != n {
					t.Errorf("the index has %d frames, want %d", track.Frames(), n)
				}
			}
		})
	}
}

// frames returns the times and hashes of the decoded frames of a stream.
func frames(t *testing.T, file string, stream int) []string {
	t.Helper()
	out := ffmpeg(t, "-copyts", "-i", file, "-map", fmt.Sprintf("0:%d", stream), "-fps_mode", "passthrough", "-f", "framemd5", "-")
	var all []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, ",") // stream, dts, pts, duration, size, hash
		all = append(all, strings.TrimSpace(f[2])+" "+strings.TrimSpace(f[5]))
	}
	return all
}

// Durations and flags that differ in every way a run of samples can have them.
func TestEncodePartForms(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		start   int64
		delay   int64
		samples []Sample
	}{
		{"none", Video, 5, 0, nil},
		{"one frame", Video, 0, 0, []Sample{{Duration: 40, Size: 3, Sync: true}}},
		{"one frame that is not sync", Video, 0, 0, []Sample{{Duration: 40, Size: 3}}},
		{"all alike", Audio, 1 << 40, 0, []Sample{{1024, 0, 2, true}, {1024, 0, 2, true}}},
		{"first is sync", Video, 7, 0, []Sample{{1, 0, 2, true}, {1, 0, 3, false}, {1, 0, 2, false}}},
		{"first is not", Video, 7, 0, []Sample{{1, 0, 2, false}, {1, 0, 3, true}, {1, 0, 2, true}}},
		{"sync here and there", Video, 7, 0, []Sample{{1, 0, 2, true}, {1, 0, 3, false}, {1, 0, 2, true}, {1, 0, 2, false}}},
		{"last is sync", Video, 7, 0, []Sample{{1, 0, 2, false}, {1, 0, 3, false}, {1, 0, 2, true}}},
		{"audio without sync", Audio, 7, 0, []Sample{{1, 0, 2, true}, {1, 0, 3, false}}},
		{"negative offsets", Video, 7, 0, []Sample{{10, 0, 2, true}, {20, 30, 3, false}, {30, -20, 0, false}}},
		{"offsets made positive", Video, 7, 30, []Sample{{10, 0, 2, true}, {20, 30, 3, false}, {30, -30, 0, false}}},
		{"offsets made zero", Video, 7, 30, []Sample{{10, -30, 2, true}, {20, -30, 3, false}}},
		{"long before zero", Video, -10007, 5, []Sample{{10, 0, 2, true}, {20, 0, 3, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			track := Track{Kind: tt.kind, Codec: "test", Timescale: 1000, Delay: tt.delay, Entry: entryOf(tt.kind)}
			data := make([]byte, Bytes(tt.samples))
			for i := range data {
				data[i] = byte(i + 1)
			}
			part, encoded := EncodePart(3, track, Fragment{Start: tt.start, Samples: tt.samples, Data: data})
			if diff := cmp.Diff(tt.samples, part.Samples); diff != "" || part.Start != tt.start {
				t.Errorf("part from %d with other samples (-want +got):\n%s", part.Start, diff)
			}
			want := Fragment{Start: tt.start + 10000 - tt.delay, Data: data}
			for _, s := range tt.samples {
				s.Offset += int32(tt.delay)
				want.Samples = append(want.Samples, s)
			}
			if diff := cmp.Diff(data, encoded[part.Head:part.Size()]); diff != "" || part.Size() != int64(len(encoded)) {
				t.Errorf("part %+v of %d bytes does not end with its samples", part, len(encoded))
			}
			r := NewReader(bytes.NewReader(append(Init(track), encoded...)))
			got, err := r.Next()
			if len(tt.samples) == 0 {
				if err != io.EOF {
					t.Errorf("got %+v, %v; want the end", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("read again (-want +got):\n%s", diff)
			}
		})
	}
}

// entryOf makes a sample entry of no real coding.
func entryOf(kind Kind) []byte {
	w := new(boxWriter)
	w.container("test", func() {
		if kind == Video {
			w.data = append(w.data, make([]byte, 78)...)
		} else {
			w.data = append(w.data, make([]byte, 28)...)
		}
	})
	return w.data
}

func TestInitKeepsShapeOfPixels(t *testing.T) {
	data := generate(t, "-f lavfi -i testsrc2=s=144x90:r=25:d=0.2,setsar=4/3 -c:v libx264 -preset veryfast")
	track := store(t, data)[0]
	if width, height := track.Track.DisplaySize(); width != 192 || height != 90 {
		t.Errorf("display size = %v x %v, want 192 x 90", width, height)
	}
	got := probe(t, writeFile(t, track.fmp4()), "v:0", "stream=sample_aspect_ratio,display_aspect_ratio")
	want := map[string]string{"sample_aspect_ratio": "4:3", "display_aspect_ratio": "32:15"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ffprobe (-want +got):\n%s", diff)
	}
}
