package live

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
)

const ms = time.Millisecond

func TestClock(t *testing.T) {
	type moment struct {
		dts, pts time.Duration
		jumped   bool
	}
	for _, tt := range []struct {
		name  string
		start time.Duration
		in    []Frame
		want  []moment
	}{
		{
			"starts anywhere", 5 * time.Second,
			[]Frame{{DTS: 1000 * ms, PTS: 1066 * ms}, {DTS: 1033 * ms, PTS: 1166 * ms}},
			[]moment{{4934 * ms, 5000 * ms, false}, {4967 * ms, 5100 * ms, false}},
		},
		{
			"sound and picture stay in step", 0,
			[]Frame{{DTS: 100 * ms, PTS: 100 * ms}, {Track: 1, DTS: 80 * ms, PTS: 80 * ms}, {DTS: 133 * ms, PTS: 133 * ms}},
			[]moment{{0, 0, false}, {-20 * ms, -20 * ms, false}, {33 * ms, 33 * ms, false}},
		},
		{
			"sound comes late", 0,
			[]Frame{{}, {DTS: 900 * ms, PTS: 900 * ms}, {Track: 1}, {Track: 1, DTS: 20 * ms, PTS: 20 * ms}, {DTS: 940 * ms, PTS: 940 * ms}},
			[]moment{{0, 0, false}, {900 * ms, 900 * ms, false}, {0, 0, false}, {20 * ms, 20 * ms, false}, {940 * ms, 940 * ms, false}},
		},
		{
			"sound is late, and both go back to the start", 0,
			[]Frame{
				{DTS: time.Hour, PTS: time.Hour},
				{Track: 1, DTS: time.Hour - 800*ms, PTS: time.Hour - 800*ms},
				{DTS: time.Second, PTS: time.Second},
				{Track: 1, DTS: 220 * ms, PTS: 220 * ms},
				{DTS: 1040 * ms, PTS: 1040 * ms},
			},
			[]moment{{0, 0, false}, {-800 * ms, -800 * ms, false}, {0, 0, true}, {-780 * ms, -780 * ms, false}, {40 * ms, 40 * ms, false}},
		},
		{
			"back to the start", 0,
			[]Frame{{DTS: 100 * time.Second, PTS: 100 * time.Second}, {DTS: 0, PTS: 0}, {DTS: 33 * ms, PTS: 33 * ms}},
			[]moment{{0, 0, false}, {0, 0, true}, {33 * ms, 33 * ms, false}},
		},
		{
			"far ahead", 0,
			[]Frame{{}, {DTS: time.Hour, PTS: time.Hour}, {DTS: time.Hour + 40*ms, PTS: time.Hour + 40*ms}},
			[]moment{{0, 0, false}, {0, 0, true}, {40 * ms, 40 * ms, false}},
		},
		{
			"a hole is no jump", 0,
			[]Frame{{}, {DTS: 5 * time.Second, PTS: 5 * time.Second}},
			[]moment{{0, 0, false}, {5 * time.Second, 5 * time.Second, false}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClock(tt.start)
			var got []moment
			for _, f := range tt.in {
				dts, pts, jumped := c.at(f)
				got = append(got, moment{dts, pts, jumped})
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(moment{})); diff != "" {
				t.Errorf("times differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOrder sends what an encoder with two B-frames sends, and expects each key frame to
// be shown when it is decoded, and nothing to be lost or moved.
func TestOrder(t *testing.T) {
	o := retimer{track: cmaf.Track{Timescale: 1000, Delay: 80}}
	type frame struct {
		dts, pts int
		sync     bool
	}
	in := []frame{{0, 80, true}, {40, 200, false}, {80, 120, false}, {120, 160, false}, {160, 240, true}, {200, 280, false}}
	var got []sample
	for _, f := range in {
		if s, ok := o.add(time.Duration(f.dts)*ms, time.Duration(f.pts)*ms, f.sync, []byte{1}); ok {
			got = append(got, s)
		}
	}
	if s, ok := o.finish(40 * ms); ok {
		got = append(got, s)
	}
	if len(got) != len(in) {
		t.Fatalf("%d samples of %d frames", len(got), len(in))
	}
	for i, s := range got {
		if shown := s.at + int64(s.Offset); shown != int64(in[i].pts) {
			t.Errorf("frame %d is shown at %d, want %d", i, shown, in[i].pts)
		}
		if s.Sync && s.Offset != 0 {
			t.Errorf("key frame %d is shown %d after it is decoded", i, s.Offset)
		}
		if i > 0 && got[i-1].at+int64(got[i-1].Duration) != s.at {
			t.Errorf("frame %d is decoded at %d, the one before ends at %d", i, s.at, got[i-1].at+int64(got[i-1].Duration))
		}
	}
}

// TestOrderOfBadTimes expects decode times to grow whatever the encoder says.
func TestOrderOfBadTimes(t *testing.T) {
	o := retimer{track: cmaf.Track{Timescale: 90000}}
	last := int64(-1)
	for i, at := range []int{0, 40, 40, 20, 80, 79, 200} {
		s, ok := o.add(time.Duration(at)*ms, time.Duration(at)*ms, i == 0, nil)
		if !ok {
			continue
		}
		if s.at <= last || s.Duration == 0 {
			t.Errorf("a sample at %d lasts %d, the one before was at %d", s.at, s.Duration, last)
		}
		last = s.at
	}
}
