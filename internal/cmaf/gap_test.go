package cmaf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A segment that nobody has keeps its place in the list: players look for it elsewhere.
func TestLivePlaylistGap(t *testing.T) {
	track := liveVideoTrack
	track.Entry = nil
	part := func(start int64, size uint32) Part {
		return Part{Start: start, Head: 100, Samples: []Sample{{Duration: 18000, Size: size, Sync: true}}}
	}
	gap, data := EncodePart(1, track, GapFragment(18000, 180000))
	w := LiveWindow{
		First: 7, Target: 2 * time.Second, PartTarget: 210 * time.Millisecond, Tracks: []Track{track, track, track}, Inits: []int{0, 0, 0},
		Segments: []Segment{{Parts: []Part{part(0, 9)}}, {Parts: []Part{gap}}, {Parts: []Part{part(198000, 9)}}}, Open: true,
	}
	if s := w.Segments[1]; !s.Gap() || s.Size() == 0 || w.Segments[0].Gap() || (Segment{}).Gap() {
		t.Errorf("it is a gap: %v, of %d bytes; the one before it: %v", s.Gap(), s.Size(), w.Segments[0].Gap())
	}
	// It comes back from the disk as what it was.
	parts, good, err := ReadParts(track, data)
	if diff := cmp.Diff([]Part{gap}, parts); diff != "" || err != nil || good != int64(len(data)) {
		t.Errorf("read %d of %d bytes, %v (-want +got):\n%s", good, len(data), err, diff)
	}
	segments, _, err := ReadIndex(AppendEntry(nil, w.Segments[1]))
	if err != nil || len(segments) != 1 || !segments[0].Gap() || segments[0].Duration() != 180000 {
		t.Errorf("the index has %+v, %v", segments, err)
	}
	for low, want := range map[bool]string{
		true: `#EXTM3U
#EXT-X-VERSION:9
#EXT-X-TARGETDURATION:2
#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.630000,CAN-SKIP-UNTIL=12.000000
#EXT-X-PART-INF:PART-TARGET=0.210000
#EXT-X-MEDIA-SEQUENCE:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI="init-0.mp4"
#EXT-X-PART:DURATION=0.200000,URI="7.0.m4s",INDEPENDENT=YES
#EXTINF:0.200000,
7.m4s
#EXT-X-GAP
#EXTINF:2.000000,
8.m4s
#EXT-X-PART:DURATION=0.200000,URI="9.0.m4s",INDEPENDENT=YES
#EXT-X-PRELOAD-HINT:TYPE=PART,URI="9.1.m4s"
`,
		false: `#EXTM3U
#EXT-X-VERSION:8
#EXT-X-TARGETDURATION:2
#EXT-X-MEDIA-SEQUENCE:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI="init-0.mp4"
#EXTINF:0.200000,
7.m4s
#EXT-X-GAP
#EXTINF:2.000000,
8.m4s
`,
	} {
		w.Low = low
		if diff := cmp.Diff(want, w.text(t)); diff != "" {
			t.Errorf("low latency %v (-want +got):\n%s", low, diff)
		}
	}
}
