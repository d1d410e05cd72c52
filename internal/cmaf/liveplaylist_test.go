package cmaf

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/hls-m3u8/m3u8"
	gocmp "github.com/google/go-cmp/cmp"

	"weir/internal/hls"
)

// testStream is a generated live stream.
type testStream struct {
	track      Track
	frame      []uint32 // lengths of frames, in turn
	gop        int      // frames from one key frame to the next
	partTarget time.Duration
	segments   int
	window     time.Duration

	// After such segments, which may end anywhere, the encoder was disconnected for a while; after
	// such it came back with another codec configuration.
	lost, changed []int
	undated       bool
}

var (
	liveVideoTrack = Track{Kind: Video, Codec: "avc1.64001f", Timescale: 90000}
	liveAudioTrack = Track{Kind: Audio, Codec: "mp4a.40.2", Timescale: 48000}
)

// states returns what a packager shows after each part and each segment of the stream,
// from its beginning to its end.
func (s testStream) states() iter.Seq[LiveWindow] {
	return func(yield func(LiveWindow) bool) {
		w := LiveWindow{First: 41, DiscontinuitySequence: 2, Target: 2 * time.Second, PartTarget: s.partTarget}
		began := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		var at int64
		frame, init := 0, 3
		for n := range s.segments {
			open := Segment{Discontinuity: slices.Contains(s.lost, n-1) || slices.Contains(s.changed, n-1)}
			if open.Discontinuity {
				at += 20 * int64(s.track.Timescale)
			}
			if slices.Contains(s.changed, n-1) {
				init++
			}
			if !s.undated {
				open.Wall = began.Add(s.track.Time(at))
			}
			w.Segments, w.Tracks, w.Inits, w.Open = append(w.Segments, open), append(w.Tracks, s.track), append(w.Inits, init), true
			last := len(w.Segments) - 1
			frames := s.frames(n, frame)
			for start := at; len(frames) > 0; {
				take := s.part(frames)
				part := Part{Start: at, Head: 100, Samples: frames[:take:take]}
				at, frames, frame = part.End(), frames[take:], frame+take
				w.Segments[last].Parts = append(w.Segments[last].Parts, part)
				if len(frames) == 0 {
					w.Target = max(w.Target, s.track.Time(at-start))
				}
				if !yield(w.snapshot()) {
					return
				}
			}
			w.Open = false
			for w.duration()-w.Segments[0].Duration() > s.track.Ticks(s.window) {
				if w.Segments[0].Discontinuity {
					w.DiscontinuitySequence++
				}
				w.First++
				w.Segments, w.Tracks, w.Inits = w.Segments[1:], w.Tracks[1:], w.Inits[1:]
			}
			if !yield(w.snapshot()) {
				return
			}
		}
		w.Ended = true
		yield(w.snapshot())
	}
}

// frames returns the frames of a segment: whole groups of at least two seconds, unless
// the encoder goes away in it.
func (s testStream) frames(segment, first int) []Sample {
	var all []Sample
	for ticks := int64(0); ; {
		i := len(all)
		d := s.frame[(first+i)%len(s.frame)]
		key := s.track.Kind == Audio || i%s.gop == 0
		if i > 0 && key && ticks+int64(d)/2 >= 2*int64(s.track.Timescale) {
			return all
		}
		if i > 0 && i == s.gop/3+1 && (slices.Contains(s.lost, segment) || slices.Contains(s.changed, segment)) {
			return all
		}
		all = append(all, Sample{Duration: d, Size: 1, Sync: key})
		ticks += int64(d)
	}
}

// part returns how many of the frames go into the next part.
func (s testStream) part(frames []Sample) int {
	n := 1
	for n < len(frames) && Span(frames[:n+1]) <= s.track.Ticks(s.partTarget) {
		n++
	}
	return n
}

// duration returns the duration of all segments together, in ticks.
func (w LiveWindow) duration() (ticks int64) {
	for _, s := range w.Segments {
		ticks += s.Duration()
	}
	return ticks
}

// snapshot returns the window as it is now, whatever becomes of it.
func (w LiveWindow) snapshot() LiveWindow {
	w.Segments, w.Tracks, w.Inits = slices.Clone(w.Segments), slices.Clone(w.Tracks), slices.Clone(w.Inits)
	for i := range w.Segments {
		w.Segments[i].Parts = slices.Clone(w.Segments[i].Parts)
	}
	return w
}

var shows = map[string]testStream{
	"30 fps":           {track: liveVideoTrack, frame: []uint32{3000}, gop: 60},
	"25 fps":           {track: liveVideoTrack, frame: []uint32{3600}, gop: 50},
	"29.97 fps":        {track: liveVideoTrack, frame: []uint32{3003}, gop: 60, lost: []int{3, 4, 11}},
	"24 fps by RTMP":   {track: liveVideoTrack, frame: []uint32{3780, 3690, 3780}, gop: 24, changed: []int{2, 9}},
	"30 fps by RTMP":   {track: liveVideoTrack, frame: []uint32{2970, 2970, 3060}, gop: 30, lost: []int{0, 7}},
	"60 fps, long GOP": {track: liveVideoTrack, frame: []uint32{1500}, gop: 500, segments: 4, lost: []int{2}},
	"audio":            {track: liveAudioTrack, frame: []uint32{1024}, gop: 90, lost: []int{5}, changed: []int{6}},
	"undated":          {track: liveVideoTrack, frame: []uint32{3000}, gop: 45, undated: true},
	"two fps":          {track: liveVideoTrack, frame: []uint32{45000}, gop: 4},
}

// TestLivePlaylistGrows plays streams from beginning to end: every playlist must hold the
// rules, and go on where the one before it was.
func TestLivePlaylistGrows(t *testing.T) {
	for name, s := range shows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.segments == 0 {
				s.segments = 20
			}
			s.partTarget, s.window = 210*time.Millisecond, 25*time.Second
			before := map[bool]*liveList{}
			count, deltas := 0, 0
			for w := range s.states() {
				count++
				for _, low := range []bool{false, true} {
					w.Low, w.Skip = low, false
					list := s.check(t, w, before[low])
					if low && before[low] != nil {
						w.Skip = true
						delta := s.check(t, w, nil)
						full, err := delta.update(before[low])
						if err != nil {
							t.Fatal(err)
						}
						if !full.same(list, int(delta.skipped)) {
							t.Fatalf("state %d: a player makes %+v of the update, want %+v", count, full, list)
						}
						if delta.skipped > 0 {
							deltas++
						}
					}
					before[low] = list
				}
			}
			if count < 60 || deltas < 20 && s.gop != 500 && s.gop != 4 {
				t.Errorf("%d states, %d updates without the older segments: too few to show anything", count, deltas)
			}
			if l := before[true]; !l.ended || l.segments[len(l.segments)-1].uri == "" {
				t.Errorf("the last playlist is not the end: %+v", l)
			}
		})
	}
}

// text renders a window.
func (w LiveWindow) text(t testing.TB) string {
	t.Helper()
	list, err := w.Media()
	if err != nil {
		t.Fatal(err)
	}
	return string(list.Text())
}

// check renders a window and returns what a player reads of it.
func (s testStream) check(t *testing.T, w LiveWindow, before *liveList) *liveList {
	t.Helper()
	text := w.text(t)
	if again := rewrite(t, []byte(text)); again != text {
		t.Fatalf("the parser reads another playlist (-written +read):\n%s", gocmp.Diff(text, again))
	}
	list, err := parseLive(text)
	if err == nil {
		err = list.conform(!s.undated, s.frame[0] < 45000)
	}
	if err == nil && before != nil && w.Target == 2*time.Second {
		err = list.follow(before)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	whole := len(w.Segments)
	if w.Open {
		whole--
	}
	got := 0
	for _, l := range list.segments {
		if l.uri != "" {
			got++
		}
	}
	if list.low != w.Low || list.ended != w.Ended || list.sequence != w.First || got+int(list.skipped) != whole {
		t.Fatalf("the list has %d segments from %d and %d before, low %v, ended %v; want %d from %d\n%s",
			got, list.sequence, list.skipped, list.low, list.ended, whole, w.First, text)
	}
	return list
}

// TestDelta leaves out of the playlist that another node reads what the window leaves out itself.
func TestDelta(t *testing.T) {
	for name, s := range shows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.segments == 0 {
				s.segments = 20
			}
			s.partTarget, s.window = 210*time.Millisecond, 25*time.Second
			delta := func(text string) string {
				t.Helper()
				_, list, err := hls.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return string(list.Delta().Text())
			}
			deltas := 0
			for w := range s.states() {
				plain := w.text(t)
				w.Low = true
				whole := w.text(t)
				w.Skip = true
				want := w.text(t)
				if got := delta(whole); got != want {
					t.Fatalf("another update (-want +got):\n%s", gocmp.Diff(want, got))
				}
				if got := delta(plain); got != plain {
					t.Fatalf("something is left out of a playlist that does not allow it:\n%s", got)
				}
				if strings.Contains(want, "#EXT-X-SKIP") {
					deltas++
				}
			}
			if deltas < 20 && s.gop != 500 && s.gop != 4 {
				t.Errorf("%d playlists have something that can be left out: too few to show anything", deltas)
			}
		})
	}
}

// TestConformance: the rules find what is wrong, or the tests above show nothing.
func TestConformance(t *testing.T) {
	const good = `#EXTM3U
#EXT-X-VERSION:9
#EXT-X-TARGETDURATION:2
#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.600000,CAN-SKIP-UNTIL=12.000000
#EXT-X-PART-INF:PART-TARGET=0.200000
#EXT-X-MEDIA-SEQUENCE:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI="init-0.mp4"
#EXT-X-PROGRAM-DATE-TIME:2026-03-04T05:06:07.000Z
#EXT-X-PART:DURATION=0.200000,URI="7.0.m4s",INDEPENDENT=YES
#EXT-X-PART:DURATION=0.180000,URI="7.1.m4s"
#EXT-X-PART:DURATION=0.100000,URI="7.2.m4s"
#EXTINF:0.480000,
7.m4s
#EXT-X-PROGRAM-DATE-TIME:2026-03-04T05:06:07.480Z
#EXT-X-PART:DURATION=0.200000,URI="8.0.m4s",INDEPENDENT=YES
#EXT-X-PRELOAD-HINT:TYPE=PART,URI="8.1.m4s"
#EXT-X-RENDITION-REPORT:URI="../audio/index.m3u8",LAST-MSN=8,LAST-PART=0
`
	find := func(text string) error {
		list, err := parseLive(text)
		if err != nil {
			return err
		}
		return list.conform(true, true)
	}
	if err := find(good); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to string }{
		{"#EXTM3U\n", ""},
		{"VERSION:9", "VERSION:5"},
		{"TARGETDURATION:2", "TARGETDURATION:0"},
		{"CAN-BLOCK-RELOAD=YES,", ""},
		{"PART-HOLD-BACK=0.6", "PART-HOLD-BACK=0.5"},
		{"UNTIL=12.0", "UNTIL=11.0"},
		{"#EXT-X-PART-INF:PART-TARGET=0.200000\n", ""},
		{"PART-TARGET=0.200000", "PART-TARGET=0.199999"},
		{"PART-TARGET=0.200000", "PART-TARGET=0.250000"},
		{"#EXT-X-INDEPENDENT-SEGMENTS\n", ""},
		{"#EXT-X-MAP:URI=\"init-0.mp4\"\n", ""},
		{"#EXT-X-PROGRAM-DATE-TIME:2026-03-04T05:06:07.480Z\n", ""},
		{"DURATION=0.180000", "DURATION=0.160000"},
		{"EXTINF:0.480000", "EXTINF:0.480001"},
		{"\n7.m4s", "\n8.m4s"},
		{"7.1.m4s", "7.3.m4s"},
		{"8.0.m4s\",INDEPENDENT=YES", "8.0.m4s\""},
		{"8.1.m4s", "9.0.m4s"},
		{"#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"8.1.m4s\"\n", ""},
		{"#EXT-X-RENDITION", "#EXT-X-ENDLIST\n#EXT-X-RENDITION"},
		{"LAST-MSN=8,", ""},
		{"#EXTINF:", "#EXT-X-DISCONTINUITY\n#EXTINF:"},
		{"#EXT-X-MEDIA-SEQUENCE:7", "#EXT-X-MEDIA-SEQUENCE:6"},
		{"#EXT-X-PRELOAD", "#EXT-X-GAP\n#EXT-X-PRELOAD"},
	} {
		bad := strings.Replace(good, change.from, change.to, 1)
		if err := find(bad); err == nil || bad == good {
			t.Errorf("%q instead of %q was not found", change.to, change.from)
		}
	}

	before, err := parseLive(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to string }{
		{"#EXT-X-MEDIA-SEQUENCE:7", "#EXT-X-MEDIA-SEQUENCE:6"},
		{"#EXT-X-MEDIA-SEQUENCE:7", "#EXT-X-MEDIA-SEQUENCE:10"},
		{"TARGETDURATION:2", "TARGETDURATION:3"},
		{"PART-TARGET=0.2", "PART-TARGET=0.3"},
		{"#EXT-X-INDEPENDENT", "#EXT-X-DISCONTINUITY-SEQUENCE:1\n#EXT-X-INDEPENDENT"},
		{"EXTINF:0.48", "EXTINF:0.47"},
		{"init-0", "init-1"},
		{"07.000Z", "07.001Z"},
		{"#EXT-X-MAP", "#EXT-X-DISCONTINUITY\n#EXT-X-MAP"},
		{"DURATION=0.180000", "DURATION=0.170000"},
		{"#EXT-X-PROGRAM-DATE-TIME:2026-03-04T05:06:07.480Z\n#EXT-X-PART:DURATION=0.200000,URI=\"8.0.m4s\",INDEPENDENT=YES\n", ""},
	} {
		after, err := parseLive(strings.Replace(good, change.from, change.to, 1))
		if err != nil {
			t.Fatal(err)
		}
		if after.follow(before) == nil {
			t.Errorf("%q instead of %q was not found in an update", change.to, change.from)
		}
	}
	if err := before.follow(before); err != nil {
		t.Error(err)
	}
}

func TestLivePlaylist(t *testing.T) {
	// at returns the n-th state of a stream.
	at := func(s testStream, n int) LiveWindow {
		s.partTarget, s.window = 210*time.Millisecond, 20*time.Second
		for w := range s.states() {
			if n--; n < 0 {
				return w
			}
		}
		t.Fatal("the stream is shorter")
		return LiveWindow{}
	}
	plain := testStream{track: liveVideoTrack, frame: []uint32{3000}, gop: 60, segments: 12}
	bumpy := testStream{track: liveVideoTrack, frame: []uint32{3003}, gop: 60, segments: 14, lost: []int{1, 9}, changed: []int{11}}
	reports := []hls.Report{{URI: "../audio/index.m3u8", Segment: 51, Part: 4}, {URI: hls.EscapePath("../größe 1+1/index.m3u8"), Segment: 50, Part: -1}}
	empty := LiveWindow{First: 7, Target: 2 * time.Second, PartTarget: 200 * time.Millisecond}
	type options struct {
		Low, Skip bool
		Reports   []hls.Report
	}
	for name, tt := range map[string]struct {
		w LiveWindow
		o options
	}{
		"live-ll":         {at(plain, 7*11+4), options{Low: true, Reports: reports}},
		"live-ll-skip":    {at(bumpy, 118), options{Low: true, Skip: true}},
		"live-ll-change":  {at(bumpy, 118), options{Low: true}},
		"live-ll-first":   {at(plain, 0), options{Low: true}},
		"live-ll-between": {at(plain, 10), options{Low: true, Reports: reports}},
		"live-ll-ended":   {at(plain, 12*11), options{Low: true, Reports: reports}},
		"live-ll-empty":   {empty, options{Low: true}},
		"live-plain":      {at(bumpy, 118), options{Skip: true, Reports: reports}},
		"live-long":       {at(shows["60 fps, long GOP"], 45), options{Low: true}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.w.Low, tt.w.Skip, tt.w.Reports = tt.o.Low, tt.o.Skip, tt.o.Reports
			text := checkGolden(t, name+".m3u8", raw([]byte(tt.w.text(t))))
			if tt.o.Low {
				return
			}
			// Another reader, which does not know all of low latency.
			list, err := m3u8.NewMediaPlaylist(0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := list.DecodeFrom(strings.NewReader(text), true); err != nil {
				t.Fatal(err)
			}
			if list.SeqNo != uint64(tt.w.First) {
				t.Errorf("first segment %d, want %d", list.SeqNo, tt.w.First)
			}
		})
	}
	if _, err := (LiveWindow{Segments: make([]Segment, 2), Tracks: make([]Track, 2), Inits: make([]int, 1)}).Media(); err == nil {
		t.Error("a segment without an init segment was written")
	}
}

// Parts may be longer than was promised: nothing in a list may be longer than what the list says. The
// target duration of segments is a promise that the caller keeps.
func TestLivePlaylistKeepsTargets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		w := LiveWindow{Target: 2 * time.Second, PartTarget: 200 * time.Millisecond, Open: rnd.IntN(2) == 0}
		var at int64
		for range 1 + rnd.IntN(12) {
			var s Segment
			for j := range 1 + rnd.IntN(12) {
				p := Part{Start: at, Samples: []Sample{{Duration: uint32(1 + rnd.IntN(40000)), Size: 1, Sync: j == 0}}}
				at = p.End()
				s.Parts = append(s.Parts, p)
			}
			w.Segments, w.Tracks, w.Inits = append(w.Segments, s), append(w.Tracks, liveVideoTrack), append(w.Inits, 0)
			w.Target = max(w.Target, liveVideoTrack.Time(s.Duration()))
		}
		for _, o := range []struct{ low, skip bool }{{}, {low: true}, {low: true, skip: true}} {
			w.Low, w.Skip = o.low, o.skip
			text := w.text(t)
			list, err := parseLive(text)
			if err == nil {
				err = list.conform(false, false)
			}
			if err != nil {
				t.Fatalf("%+v: %v\n%s", o, err, text)
			}
		}
	}
}

// Segments before a number are listed whole, however new they are; the one that is open
// has its parts.
func TestLivePlaylistPartsFrom(t *testing.T) {
	w := LiveWindow{First: 5, Target: time.Second, PartTarget: time.Second, Open: true}
	for i := range int64(3) {
		w.Segments = append(w.Segments, Segment{Parts: []Part{{Start: 90000 * i, Samples: []Sample{{Duration: 90000, Size: 1, Sync: true}}}}})
		w.Tracks, w.Inits = append(w.Tracks, liveVideoTrack), append(w.Inits, 0)
	}
	for from, want := range map[int64]int{0: 3, 5: 3, 6: 2, 7: 1, 8: 0, 100: 0} {
		w.PartsFrom, w.Low = from, true
		text := w.text(t)
		if got := strings.Count(text, "#EXT-X-PART:"); got != want || strings.Count(text, "#EXTINF:") != 2 {
			t.Errorf("from %d on: %d parts, want %d:\n%s", from, got, want, text)
		}
	}
}

// The playlist of a stream is rendered for each of its parts.
func BenchmarkLivePlaylist(b *testing.B) {
	s := testStream{track: liveVideoTrack, frame: []uint32{3000}, gop: 60, segments: 40, partTarget: 210 * time.Millisecond, window: time.Minute}
	var last LiveWindow
	for w := range s.states() {
		if w.Open {
			last = w
		}
	}
	for _, o := range []struct{ low, skip bool }{{low: true}, {low: true, skip: true}, {}} {
		b.Run(fmt.Sprintf("low=%v,skip=%v", o.low, o.skip), func(b *testing.B) {
			b.ReportAllocs()
			last.Low, last.Skip = o.low, o.skip
			for b.Loop() {
				list, err := last.Media()
				if err != nil {
					b.Fatal(err)
				}
				list.Text()
			}
		})
	}
}

// TestLiveChangeOfTimescale expects lengths to be those of the track that a segment is of.
func TestLiveChangeOfTimescale(t *testing.T) {
	second := func(scale uint32) Segment {
		return Segment{Parts: []Part{{Samples: []Sample{{Duration: scale, Size: 1, Sync: true}}}}}
	}
	slow, fast := Track{Kind: Audio, Timescale: 44100}, Track{Kind: Audio, Timescale: 48000}
	w := LiveWindow{
		Tracks: []Track{slow, fast}, Segments: []Segment{second(44100), second(48000)}, Inits: []int{0, 1},
		Target: time.Second, PartTarget: time.Second, Low: true,
	}
	text := w.text(t)
	if n := strings.Count(text, "#EXTINF:1.000000,"); n != 2 {
		t.Errorf("%d of two segments last a second:\n%s", n, text)
	}
	w.Tracks = w.Tracks[:1]
	if _, err := w.Media(); err == nil {
		t.Error("a segment without a track is taken")
	}
}
