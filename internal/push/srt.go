package push

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/srt"
	"weir/internal/weir"
)

// tsBatch is how much of a stream is made MPEG-TS at once. Each batch repeats the tables.
const tsBatch = 100 * time.Millisecond

// srtOutlet sends MPEG-TS over SRT.
type srtOutlet struct {
	conn    *srt.Conn
	reading sync.WaitGroup
	written atomic.Int64 // bytes

	ts           *cmaf.TS
	video, audio *srtTrack
	since        time.Duration // where the batch in hand begins
}

// srtTrack is a track on its way into a batch.
type srtTrack struct {
	track cmaf.Track
	batch []cmaf.Fragment
}

// dialSRT connects to a target. fail is called if the connection breaks after that.
func dialSRT(ctx context.Context, url string, resolve srt.Resolver, fail func(error)) (outlet, error) {
	conn, err := srt.Dial(ctx, url, resolve)
	if err != nil {
		return nil, srtProblem(err)
	}
	o := &srtOutlet{conn: conn}
	o.reading.Go(func() { // a target has nothing to say, but its end
		_, err := io.Copy(io.Discard, conn)
		fail(targetClosed(err))
	})
	return o, nil
}

// srtProblem returns why a target could not be called, for its owner.
func srtProblem(err error) error {
	switch {
	case errors.Is(err, srt.ErrURL):
		return weir.Errorf(weir.Invalid, "the URL of the target must be srt://host:port?streamid=key; "+
			"passphrase, pbkeylen and latency (in milliseconds) may follow")
	case errors.Is(err, srt.ErrMode):
		return weir.Errorf(weir.Invalid, "a target is called: leave out mode, or write mode=caller")
	case errors.Is(err, srt.ErrLatency):
		return weir.Errorf(weir.Invalid, "the latency of the target must be given in milliseconds, at most %d",
			srt.MaxLatency.Milliseconds())
	case errors.Is(err, srt.ErrOptions):
		return weir.Errorf(weir.Invalid, "the URL of the target can't be used: %v", err)
	case errors.Is(err, srt.ErrConnect):
		return weir.Wrap(weir.Upstream, err, "the target did not take the call over SRT; "+
			"check the address, the streamid and the passphrase")
	}
	return err
}

func targetClosed(err error) error {
	return weir.Wrap(weir.Upstream, err, "the target closed the connection")
}

// Write sends MPEG-TS.
func (o *srtOutlet) Write(p []byte) (int, error) {
	n, err := o.conn.Write(p)
	o.written.Add(int64(n))
	if err != nil {
		err = targetClosed(err)
	}
	return n, err
}

func (o *srtOutlet) sent() int64 { return o.written.Load() }

// hurry has nothing to do: a write does not wait for the target.
func (o *srtOutlet) hurry() {}

func (o *srtOutlet) close() {
	_ = o.pause()
	_ = o.conn.Close()
	o.reading.Wait()
}

func (o *srtOutlet) begin(video, audio *cmaf.Track, at time.Duration) error {
	if err := o.pause(); err != nil {
		return err
	}
	if o.ts == nil {
		ts, err := cmaf.NewTS(video, audio)
		if err != nil {
			return weir.Wrap(weir.Invalid, err, "the stream can't be sent over SRT, which takes H.264 or HEVC and AAC: %v", err)
		}
		o.ts = ts
	} else {
		if !alike(o.video, video) || !alike(o.audio, audio) {
			return errOtherTracks
		}
		ts, err := cmaf.RestoreTS(video, audio, o.ts.State())
		if err != nil {
			return err
		}
		o.ts = ts
	}
	o.video, o.audio = newSRTTrack(video), newSRTTrack(audio)
	return nil
}

func newSRTTrack(t *cmaf.Track) *srtTrack {
	if t == nil {
		return nil
	}
	return &srtTrack{track: *t}
}

// alike reports whether a receiver can go on with a track: it must not be of another
// coding, which the tables would have to tell.
func alike(was *srtTrack, now *cmaf.Track) bool {
	if was == nil || now == nil {
		return was == nil && now == nil
	}
	return string(was.track.Entry[4:8]) == string(now.Entry[4:8])
}

func (o *srtOutlet) frame(f outgoing) error {
	to := o.video
	if f.kind == cmaf.Audio {
		to = o.audio
	}
	to.put(f)
	if f.dts-o.since < tsBatch {
		return nil
	}
	o.since = f.dts
	return o.flush()
}

// put adds a frame to the batch. In a fragment, decode times are later by the track's Delay.
func (t *srtTrack) put(f outgoing) {
	start := t.track.Ticks(f.dts) + t.track.Delay
	s := cmaf.Sample{Offset: int32(t.track.Ticks(f.pts) - start), Size: uint32(len(f.data)), Sync: f.sync}
	t.batch = append(t.batch, cmaf.Fragment{Start: start, Samples: []cmaf.Sample{s}, Data: f.data})
}

// pause sends what is in hand: what comes next does not go on where it ends.
func (o *srtOutlet) pause() error { return o.flush() }

// flush sends the batch in hand.
func (o *srtOutlet) flush() error {
	var video, audio []cmaf.Fragment
	if o.video != nil {
		video = o.video.batch
		o.video.batch = o.video.batch[:0]
	}
	if o.audio != nil {
		audio = o.audio.batch
		o.audio.batch = o.audio.batch[:0]
	}
	if len(video)+len(audio) == 0 {
		return nil
	}
	return o.ts.Segment(o, video, audio)
}
