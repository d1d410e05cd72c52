package live

import (
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/wait"
	"weir/internal/weir"
)

// frames sends video frames, so many bytes each, a step apart. The first is a key
// frame; the others are if all are.
func (e *encoder) frames(count, size int, step time.Duration, all bool) error {
	start := time.Duration(e.frame) * 40 * time.Millisecond
	for i := range count {
		at := start + time.Duration(i)*step
		if err := e.Write(Frame{Track: 0, PTS: at, DTS: at, Sync: all || i == 0, Data: make([]byte, size)}); err != nil {
			return err
		}
	}
	return nil
}

// A clock that stands still must not make a part that has no end.
func TestPartsHaveAMaxSize(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	limit := int64(0)
	for range 30 {
		if err := e.frames(1, 1<<20, 0, true); err != nil {
			t.Fatal(err)
		}
		if e.packers != nil {
			limit = max(limit, e.packers[0].OpenPart.Bytes)
		}
	}
	if limit > maxPart || limit == 0 {
		t.Errorf("the open part has %d bytes, want at most %d", limit, maxPart)
	}
}

// An encoder that sends a segment without an end is disconnected, and can reconnect.
func TestEndlessSegments(t *testing.T) {
	for name, tt := range map[string]struct {
		send func(*encoder) error
		want string
	}{
		"no key frame": {func(e *encoder) error { return e.frames(61*25, 100, 40*time.Millisecond, false) }, "no key frame"},
		"a clock that stands still": {func(e *encoder) error {
			e.session.conn.allowance.frames.SetBurst(1 << 30) // of which there is a limit too
			e.session.conn.allowance.frames.SetLimit(1 << 30)
			return e.frames(maxSegmentSamples+100, 10, 0, true)
		}, "stand still"},
		"too many bytes": {func(e *encoder) error {
			if err := e.frames(3, 100, 40*time.Millisecond, false); err != nil {
				return err
			}
			e.packers[0].OpenSegment.Bytes += maxSegmentBytes // as if so many had come
			return e.frames(3, 100, 40*time.Millisecond, false)
		}, "stand still"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, false)
			e := s.publish()
			err := tt.send(e)
			if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			e.Close(false)
			again := s.publish()
			if err := again.send(5); err != nil {
				t.Errorf("the encoder comes back, and %v", err)
			}
			if text := s.playlist(videoName, Query{Segment: -1, Part: -1}); !strings.Contains(text, "#EXT-X-DISCONTINUITY\n") {
				t.Errorf("there is no discontinuity:\n%s", text)
			}
		})
	}
}

// Audio continues in segments although the video has stopped.
func TestAudioWithoutVideo(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	for range 48000 / 1024 * 40 {
		at := time.Duration(e.audio) * time.Second * 1024 / 48000
		if err := e.Write(Frame{Track: 1, PTS: at, DTS: at, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
		e.audio++
	}
	if segments, seconds := e.session.renditions.audio.carried(); segments < 15 || seconds < 30 {
		t.Errorf("40 s of audio without video are %d segments of %.1f s", segments, seconds)
	}
	// It comes back, later than it was.
	e.frame = e.audio * 1024 * 25 / 48000
	e.frame += -e.frame%50 + 50 // a key frame
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	if segments, _ := e.session.renditions.video.carried(); segments < 3 {
		t.Errorf("the video is back, and has %d segments", segments)
	}
}

// Audio that waits for video is limited, whatever its clock says.
func TestWaitingAudioHasAMax(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(1); err != nil {
		t.Fatal(err)
	}
	at := time.Duration(e.audio) * time.Second * 1024 / 48000
	for range 3 * maxWaitingFrames {
		if err := e.Write(Frame{Track: 1, PTS: at, DTS: at, Data: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.session.conn.muxer.waiting); n > maxWaitingFrames {
		t.Errorf("%d audio frames wait, want at most %d", n, maxWaitingFrames)
	}
}

// Small frames are frames too: a reader that does not read has a bounded number of them.
func TestTapHasAMaxOfFrames(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(1); err != nil {
		t.Fatal(err)
	}
	tap := s.broadcast().Tap(TapOptions{})
	defer tap.Close()
	e.frame += -e.frame%50 + 50
	if err := e.frames(2*maxTappedFrames, 1, time.Millisecond, true); err != nil {
		t.Fatal(err)
	}
	tap.mu.Lock()
	queued := len(tap.queue)
	tap.mu.Unlock()
	if queued > maxTappedFrames || tap.lostFrames() < maxTappedFrames/2 {
		t.Errorf("%d frames wait, %d are lost; want at most %d to wait", queued, tap.lostFrames(), maxTappedFrames)
	}
}

func TestAllowance(t *testing.T) {
	const size = 100_000_000 / 8 / 60
	now := time.Now()
	a := newAllowance()
	// What an encoder sends that is in order: 4K at 60 frames and 100 Mbit/s, after ten
	// seconds in which its line was stuck.
	for i := range 600 {
		if err := a.countFrame(size, now); err != nil {
			t.Fatalf("frame %d of ten seconds at once: %v", i, err)
		}
	}
	for i := range 60 * 60 {
		if err := a.countFrame(size, now.Add(time.Duration(i)*time.Second/60)); err != nil {
			t.Fatalf("frame %d of a minute: %v", i, err)
		}
	}
	for name, size := range map[string]int{"Mbit/s": 1 << 20, "frames": 1} {
		a, now := newAllowance(), time.Now()
		var err error
		sent := 0
		for ; err == nil && sent < 100_000; sent++ {
			now = now.Add(time.Second / 10_000)
			err = a.countFrame(size, now)
		}
		if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("10,000 frames of %d bytes a second: %v after %d; want too many %s", size, err, sent, name)
		}
		if err := a.countFrame(size, now.Add(time.Second)); err != nil {
			t.Errorf("a second later: %v", err)
		}
	}
}

// Encoders of a stream that connect too often are refused for a while; those of others are not.
func TestConnectionRate(t *testing.T) {
	s, other := newTestHub(t, false), newTestHub(t, false)
	key := s.stream.StreamKey.Reveal()
	var err error
	came := 0
	for ; err == nil && came < 1000; came++ {
		var p *Publisher
		if p, err = s.hub.Publish(t.Context(), key, Source{}); err == nil {
			p.Close(false)
		}
	}
	if weir.KindOf(err) != weir.Busy || came < maxArrivalsAtOnce || came > 2*maxArrivalsAtOnce {
		t.Errorf("%v after %d connections; want that it is too often after %d or a few more", err, came, maxArrivalsAtOnce)
	}
	if n := s.hub.Stats(); n.Refused != 1 || n.Admitted != int64(came-1) {
		t.Errorf("the hub counts %+v", n)
	}
	other.publish()
}

// What changes all the time ends, however often the encoder comes back meanwhile.
func TestChanges(t *testing.T) {
	s := newTestHub(t, false)
	one, other := testTracks(t), testTracks(t)[:1]
	var err error
	sets := 0
	for range maxArrivalsAtOnce {
		p, refused := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{})
		if refused != nil {
			t.Fatal(refused)
		}
		for i := 0; i < 3 && err == nil; i++ {
			if err = p.SetTracks(t.Context(), [][]cmaf.Track{one, other}[i%2]); err == nil {
				sets++
			}
		}
		p.Close(false)
	}
	if weir.KindOf(err) != weir.Invalid || sets < maxChangesAMinute || sets > maxChangesAMinute+5 {
		t.Errorf("%v after %d changes; want too many after %d or a few more", err, sets, maxChangesAMinute)
	}
}

// The segments of a playlist have a maximum size: a clock that hardly moves does not fill the
// disk.
func TestWindowHasAMaxOfBytes(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	r := e.session.renditions.video
	r.mu.Lock()
	defer r.mu.Unlock()
	large := cmaf.Segment{Parts: []cmaf.Part{{Samples: []cmaf.Sample{{Size: 200 << 20, Duration: 900}}}}}
	for range 10 {
		r.addSegment(large)
	}
	var size int64
	for _, segment := range r.segments {
		size += segment.Size()
	}
	if size > maxWindowBytes || len(r.segments) != 2 || r.size != size {
		t.Errorf("%d segments of %d bytes are shown, counted as %d; want 2 of at most %d", len(r.segments), size, r.size, maxWindowBytes)
	}
}

// A session that waits for the disk delays Stats, and no viewer.
func TestStatsDoNotBlockViewers(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(1); err != nil {
		t.Fatal(err)
	}
	e.session.mu.Lock()
	counted, found := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(counted)
		s.hub.Stats()
	}()
	go func() {
		defer close(found)
		for range 200 { // long enough for Stats to begin
			s.hub.Find(s.stream.PlaybackID)
			time.Sleep(time.Millisecond)
		}
	}()
	defer func() {
		e.session.mu.Unlock()
		<-counted
	}()
	wait.Receive(t, "streams are found while Stats runs", found)
}

// A publisher tells how many open files its stream takes at most.
func TestFiles(t *testing.T) {
	plain, renditions := weir.Stream{}, weir.Stream{Profiles: make([]weir.Profile, 4)}
	renditions.Multistream.Targets = make([]weir.TargetRef, 2)
	for want, stream := range map[int]weir.Stream{8: plain, 8 + 6 + 4*3 + 2: renditions} {
		if got := (&Publisher{stream: stream}).Files(); got != want {
			t.Errorf("%d files with %d renditions and %d targets, want %d", got, len(stream.Profiles), len(stream.Multistream.Targets), want)
		}
	}
}
