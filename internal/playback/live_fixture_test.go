package playback

import (
	"context"
	"time"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/weir"
)

// newStream makes a stream of ann's.
func (h *fixture) newStream(policy *weir.PlaybackPolicy) weir.Stream {
	h.Helper()
	s, err := weir.NewStream{Name: "s", PlaybackPolicy: policy}.Stream(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateStream(h.Context(), &s) })
	return s
}

func (h *fixture) changeStream(s weir.Stream, change func(*weir.Stream)) {
	h.Helper()
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(h.Context(), s.ID, func(s *weir.Stream) error {
			change(s)
			return nil
		})
		return err
	})
}

// runHub runs the hub until the test ends.
func (h *fixture) runHub() {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.hub.Run(ctx) }()
	h.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
}

// encoder sends the film to a stream, over and over.
type encoder struct {
	*live.Publisher
	h      *fixture
	tracks []cmaf.Track
	frames [][]live.Frame // by track
	sent   []int
	now    time.Duration
}

// encoderDelay is how far an encoder with B-frames decodes before it shows.
const encoderDelay = 2 * time.Second / rate

// partLength is the duration of a part of its video: as many frames as the target allows.
const partLength = (live.DefaultPart + live.DefaultPart/20) / (time.Second / rate) * (time.Second / rate)

// publish connects an encoder to a stream.
func (h *fixture) publish(s weir.Stream) *encoder {
	h.Helper()
	film := makeFilm(h)
	e := &encoder{h: h, frames: make([][]live.Frame, 2), sent: make([]int, 2)}
	for i, one := range []film1{film.large, film.audio} {
		track := one.index.Track
		track.Delay = 0
		if track.Kind == cmaf.Video {
			track.Delay = track.Ticks(encoderDelay)
		}
		e.tracks = append(e.tracks, track)
		e.frames[i] = framesOf(i, one)
	}
	var err error
	if e.Publisher, err = h.hub.Publish(h.Context(), s.StreamKey.Reveal(), live.Source{Protocol: "test"}); err != nil {
		h.Fatal(err)
	}
	if err := e.SetTracks(h.Context(), e.tracks); err != nil {
		h.Fatal(err)
	}
	return e
}

// framesOf takes a track of the film apart, as an encoder would send it.
func framesOf(n int, f film1) (frames []live.Frame) {
	track := f.index.Track
	for i, segment := range f.index.Segments {
		data := f.data[i]
		for _, part := range segment.Parts {
			at, data := part.Start, data[part.Head:]
			for _, s := range part.Samples {
				one := live.Frame{Track: n, PTS: track.Time(at + int64(s.Offset)), DTS: track.Time(at), Sync: s.Sync, Data: data[:s.Size:s.Size]}
				if track.Kind == cmaf.Video {
					one.DTS -= encoderDelay
				}
				frames = append(frames, one)
				at, data = at+int64(s.Duration), data[s.Size:]
			}
		}
	}
	return frames
}

// send sends the next frames of the film.
func (e *encoder) send(length time.Duration) {
	e.h.Helper()
	e.now += length
	for {
		next, at := -1, e.now
		for track := range e.frames {
			due := e.frame(track).DTS
			if e.tracks[track].Kind == cmaf.Video {
				due += encoderDelay
			}
			if due < at {
				next, at = track, due
			}
		}
		if next < 0 {
			return
		}
		if err := e.Write(e.frame(next)); err != nil {
			e.h.Fatal(err)
		}
		e.sent[next]++
	}
}

// frame returns the frame that is to be sent next.
func (e *encoder) frame(track int) live.Frame {
	all := e.frames[track]
	round, i := e.sent[track]/len(all), e.sent[track]%len(all)
	f := all[i]
	loop := videoSeconds * time.Second
	if e.tracks[track].Kind == cmaf.Audio {
		loop = e.tracks[track].Time(int64(len(all)) * 1024)
	}
	f.PTS, f.DTS = f.PTS+time.Duration(round)*loop, f.DTS+time.Duration(round)*loop
	f.Data = append([]byte(nil), f.Data...) // it is the hub's from here on
	return f
}

// broadcast is a stream that is on air, with a video and audio of so many seconds.
func (h *fixture) broadcast(policy *weir.PlaybackPolicy, length time.Duration) (weir.Stream, *encoder) {
	h.Helper()
	s := h.newStream(policy)
	e := h.publish(s)
	e.send(length)
	return s, e
}

// livePaths has all kinds of paths that a stream has after some seconds.
func livePaths() []string {
	return []string{
		"index.m3u8", "source/index.m3u8", "source/index.m3u8?ll=0", "source/index.m3u8?_HLS_msn=0&_HLS_part=1", "source/index.m3u8?_HLS_msn=1&_HLS_skip=YES",
		"source/init-0.mp4", "source/0.m4s", "source/1.m4s", "source/0.0.m4s", "source/1.3.m4s", "audio/index.m3u8", "audio/init-0.mp4", "audio/0.m4s", "audio/0.2.m4s",
	}
}
