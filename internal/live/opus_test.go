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

// soundOf returns some seconds of a sine in AAC.
func soundOf(t *testing.T, seconds string) (cmaf.Track, []Frame) {
	t.Helper()
	return framesOf(t, "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100:duration="+seconds, "-c:a", "aac")
}

// AAC comes out as Opus at the times that it has, also after a hole, for as many as want
// it; and when the last of them is gone, so is the encoder.
func TestTapOpus(t *testing.T) {
	s := newStation(t, false)
	s.stop()
	var err error
	if s.engine, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2}); err != nil {
		t.Fatal(err)
	}
	s.start()
	track, frames := soundOf(t, "4")
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
	taps := []*Tap{s.broadcast().TapOpus(videoName), s.broadcast().TapOpus(videoName)}
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
	begin := session.end - frames[len(frames)-1].PTS - hole // about where the first frame is, on the timeline
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
			t.Errorf("the sound begins at %v, want %v", first, begin)
		}
	}
	taps[0].Close()
	if session.opus == nil {
		t.Error("the encoder is gone, but somebody listens")
	}
	taps[1].Close()
	if running := s.engine.Stats().Running; session.opus != nil || running != [3]int{} {
		t.Errorf("nobody listens, and the encoder is there: %v", running)
	}
	p.Close(true)
}

// Sound that went through an encoder gets its time back.
func TestSoundLine(t *testing.T) {
	const frame = 20 * time.Millisecond
	ahead := time.Duration(opusAhead) * time.Second / opusRate
	var l soundLine
	for _, at := range []time.Duration{time.Second, time.Second + frame, 5 * time.Second, 5*time.Second + frame + time.Millisecond} {
		l.add(at, frame)
	}
	for i, want := range []time.Duration{time.Second, time.Second + frame, 5 * time.Second, 5*time.Second + frame, 5*time.Second + 2*frame} {
		if got := l.take(frame); got != want-ahead {
			t.Errorf("packet %d is heard at %v, want %v", i, got, want-ahead)
		}
	}
}
