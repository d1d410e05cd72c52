package live

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
)

// framesOf returns the first track of what ffmpeg makes, as an encoder sends it.
func framesOf(t *testing.T, args ...string) (cmaf.Track, []Frame) {
	t.Helper()
	args = slices.Concat([]string{"-v", "error"}, args, []string{"-movflags", "frag_every_frame+empty_moov+default_base_moof", "-f", "mp4", "pipe:1"})
	out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	r := cmaf.NewReader(bytes.NewReader(out))
	tracks, err := r.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	var frames []Frame
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tracks[0], frames
		}
		if err != nil {
			t.Fatal(err)
		}
		at := tracks[0].Time(f.Start)
		sync := f.Samples[0].Sync || tracks[0].Kind == cmaf.Audio
		frames = append(frames, Frame{PTS: at, DTS: at, Sync: sync, Data: f.Data})
	}
}

// audioOf returns some seconds of a sine in AAC.
func audioOf(t *testing.T, seconds string) (cmaf.Track, []Frame) {
	t.Helper()
	return framesOf(t, "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100:duration="+seconds, "-c:a", "aac")
}

// AAC comes out as Opus at the times that it has, also after a hole, for as many as want
// it; the encoder ends with the last of them.
func TestTapOpus(t *testing.T) {
	s := newTestHub(t, false)
	s.stop()
	var err error
	if s.engine, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2}); err != nil {
		t.Fatal(err)
	}
	s.start()
	track, frames := audioOf(t, "4")
	p, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{Protocol: "test"})
	if err == nil {
		err = p.SetTracks(t.Context(), []cmaf.Track{track})
	}
	if err == nil {
		err = p.Write(frames[0]) // which puts it on air
	}
	if err != nil {
		t.Fatal(err)
	}
	taps := []*Tap{s.broadcast().Tap(TapOptions{Rendition: videoName, Audio: AudioOpus}), s.broadcast().Tap(TapOptions{Rendition: videoName, Audio: AudioOpus})}
	session := s.broadcast().session
	const hole = 3 * time.Second
	for i, f := range frames[1:] {
		if i >= len(frames)/2 {
			f.PTS, f.DTS = f.PTS+hole, f.DTS+hole
		}
		if err := p.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	begin := session.conn.end - frames[len(frames)-1].PTS - hole // about where the first frame is, on the timeline
	for _, tap := range taps {
		item, err := tap.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(item.Tracks) != 1 || item.Tracks[0].Codec != "opus" && item.Tracks[0].Codec != "Opus" {
			t.Fatalf("the tap begins with %+v, want a track of Opus", item)
		}
		var first, last time.Duration
		jumps := 0
		for n := 0; n < 190; n++ { // of 200 packets, but for what the encoder holds
			item, err := tap.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first, last = item.PTS, item.PTS-20*time.Millisecond
			}
			switch step := item.PTS - last; {
			case step > hole-100*time.Millisecond && step < hole+100*time.Millisecond:
				jumps++
			case step < 19*time.Millisecond || step > 21*time.Millisecond:
				t.Fatalf("packet %d is %v after the one before", n, step)
			}
			last = item.PTS
		}
		if jumps != 1 {
			t.Errorf("there are %d holes, want one of %v", jumps, hole)
		}
		if (first - begin).Abs() > 100*time.Millisecond {
			t.Errorf("the audio begins at %v, want %v", first, begin)
		}
	}
	taps[0].Close()
	if session.audio.opus == nil {
		t.Error("the encoder has ended, but a tap is open")
	}
	taps[1].Close()
	if running := s.engine.Stats().Running; session.audio.opus != nil || running != [3]int{} {
		t.Errorf("no tap is open, and the encoder runs: %v", running)
	}
	p.Close(true)
}

// Video waits for audio that is transcoded, but not for audio that does not come.
func TestVideoWaitsForAudio(t *testing.T) {
	video := newTrack(t)(codec.H264Config([]byte{0x67, 0x42, 0xc0, 0x1f, 0xda, 0x01, 0x40, 0x16, 0xe8}, []byte{0x68, 0xcb, 0x83, 0xcb, 0x20}))
	audio, _ := audioOf(t, "0.1")
	const ms = time.Millisecond
	tap := &Tap{form: AudioOpus, transcoded: -1, wake: make(chan struct{}, 1)}
	tap.receive(TapItem{Tracks: []cmaf.Track{video, audio}})
	frame := func(at time.Duration) {
		tap.receive(TapItem{PTS: at, DTS: at, Sync: true})
		tap.receive(TapItem{Track: 1, PTS: at, DTS: at, Sync: true}) // the audio as it was sent
	}
	opus := func(at time.Duration) { tap.addAudio(TapItem{Track: 1, PTS: at, DTS: at, Sync: true}) }
	frame(0)
	frame(40 * ms)
	frame(80 * ms)
	opus(0)
	opus(20 * ms)
	opus(45 * ms)
	frame(300 * ms) // for which no audio comes
	frame(340 * ms)
	tap.receive(TapItem{Tracks: []cmaf.Track{video}})
	tap.receive(TapItem{PTS: 400 * ms, DTS: 400 * ms, Sync: true})
	type item struct {
		track int
		at    time.Duration
	}
	var got []item
	for _, f := range tap.queue {
		if len(f.Tracks) == 0 {
			got = append(got, item{f.Track, f.PTS})
		}
	}
	want := []item{{0, 0}, {1, 0}, {1, 20 * ms}, {0, 40 * ms}, {1, 45 * ms}, {0, 80 * ms}, {0, 300 * ms}, {0, 340 * ms}, {0, 400 * ms}}
	if !slices.Equal(got, want) {
		t.Errorf("the tap has\n%v, want\n%v", got, want)
	}
}

// The encoder of Opus loses no frame: audioTimes derives times from how much audio came out.
func TestOpusLosesNothing(t *testing.T) {
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	track, frames := audioOf(t, "1")
	tap := &Tap{tracks: []cmaf.Track{track}, wake: make(chan struct{}, 1)}
	for _, f := range frames {
		tap.enqueue(TapItem{PTS: f.PTS, DTS: f.PTS, Sync: true, Data: f.Data})
	}
	tap.end(io.EOF)
	in, err := newOpusInput(t.Context(), tap, track, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out time.Duration
	encoders := audioEncoders{engine: engine}
	if err := encoders.transcode(t.Context(), opusArgs(), in, func(_ int64, packet []byte) error {
		out += time.Duration(codec.OpusSamples(packet)) * time.Second / codec.OpusRate
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := time.Duration(len(frames)) * in.duration; out < want {
		t.Errorf("%v of audio came out of %v", out, want)
	}
}

// Audio that went through an encoder gets its time back.
func TestAudioLine(t *testing.T) {
	const frame = 20 * time.Millisecond
	ahead := time.Duration(codec.OpusPreSkip) * time.Second / codec.OpusRate
	var l audioTimes
	for _, at := range []time.Duration{
		time.Second, time.Second + frame, 5 * time.Second, 5*time.Second + frame + time.Millisecond,
		5*time.Second + 4*frame, // two were lost
	} {
		l.frameIn(at, frame)
	}
	for i, want := range []time.Duration{time.Second, time.Second + frame, 5 * time.Second, 5*time.Second + frame, 5*time.Second + 4*frame, 5*time.Second + 5*frame} {
		if got := l.packetOut(frame); got != want-ahead {
			t.Errorf("packet %d is heard at %v, want %v", i, got, want-ahead)
		}
	}
}
