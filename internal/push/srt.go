package push

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/mpegts"
	"weir/internal/srt"
	"weir/internal/weir"
)

// tsBatch is the duration of a batch of MPEG-TS. Each batch repeats the tables.
const tsBatch = 100 * time.Millisecond

// srtTarget sends MPEG-TS over SRT.
type srtTarget struct {
	conn    *srt.Conn
	reading sync.WaitGroup
	written atomic.Int64 // bytes

	ts           *mpegts.Muxer // nil = nothing was sent
	video, audio string        // the codecs of its tracks
	waiting      bool          // the current batch has frames
	since        time.Duration // where it begins
}

// dialSRT connects to a target. fail is called if the connection breaks after that.
func dialSRT(ctx context.Context, url string, resolve srt.Resolver, fail func(error)) (targetConn, error) {
	conn, err := srt.Dial(ctx, url, resolve)
	if err != nil {
		return nil, srtProblem(err)
	}
	o := &srtTarget{conn: conn}
	o.reading.Go(func() { // a target sends nothing, but may end the connection
		_, err := io.Copy(io.Discard, conn)
		fail(targetClosed(err))
	})
	return o, nil
}

// srtProblem returns an error of Dial in words for the owner.
func srtProblem(err error) error {
	switch {
	case errors.Is(err, srt.ErrURL):
		return weir.Errorf(weir.Invalid, "the URL of the target must be srt://host:port?streamid=key; "+
			"passphrase, pbkeylen and latency (in milliseconds) may follow")
	case errors.Is(err, srt.ErrMode):
		return weir.Errorf(weir.Invalid, "weir is the SRT caller of a target: leave out mode, or write mode=caller")
	case errors.Is(err, srt.ErrLatency):
		return weir.Errorf(weir.Invalid, "the latency of the target must be given in milliseconds, at most %d",
			srt.MaxLatency.Milliseconds())
	case errors.Is(err, srt.ErrOptions):
		return weir.Errorf(weir.Invalid, "the URL of the target can't be used: %v", err)
	case errors.Is(err, srt.ErrConnect):
		return weir.Wrap(weir.Upstream, err, "the target did not accept the connection over SRT; "+
			"check the address, the streamid and the passphrase")
	}
	return err
}

func targetClosed(err error) error {
	return weir.Wrap(weir.Upstream, err, "the target closed the connection")
}

// Write sends MPEG-TS.
func (o *srtTarget) Write(p []byte) (int, error) {
	n, err := o.conn.Write(p)
	o.written.Add(int64(n))
	if err != nil {
		err = targetClosed(err)
	}
	return n, err
}

func (o *srtTarget) sent() int64 { return o.written.Load() }

// limitWrite does nothing: a write does not wait for the target.
func (o *srtTarget) limitWrite() {}

func (o *srtTarget) close() {
	_ = o.pause()
	_ = o.conn.Close()
	o.reading.Wait()
}

func (o *srtTarget) announce(video, audio *cmaf.Track, at time.Duration) error {
	if err := o.pause(); err != nil {
		return err
	}
	var state mpegts.State
	videoTS, audioTS := tsTrack(video), tsTrack(audio)
	if o.ts != nil {
		// Receivers do not expect the tables of a stream to change.
		if codecOf(videoTS) != o.video || codecOf(audioTS) != o.audio {
			return errOtherTracks
		}
		state = o.ts.State()
	}
	ts, err := mpegts.NewMuxer(videoTS, audioTS, state)
	if err != nil {
		return weir.Wrap(weir.Invalid, err, "the stream can't be sent over SRT, which takes H.264 or HEVC and AAC: %v", err)
	}
	o.ts, o.video, o.audio = ts, codecOf(videoTS), codecOf(audioTS)
	return nil
}

func tsTrack(t *cmaf.Track) *mpegts.Track {
	if t == nil {
		return nil
	}
	return &mpegts.Track{Config: t.Config(), Language: t.Language}
}

func codecOf(t *mpegts.Track) string {
	if t == nil {
		return ""
	}
	return t.Config.Codec
}

func (o *srtTarget) frame(f outgoing) error {
	u := mpegts.Unit{PTS: mpegts.Ticks(f.pts), DTS: mpegts.Ticks(f.dts), Sync: f.sync, Data: f.data}
	if f.kind == cmaf.Audio {
		o.ts.AddAudio(u)
	} else {
		o.ts.AddVideo(u)
	}
	o.waiting = true
	if f.dts-o.since < tsBatch {
		return nil
	}
	o.since = f.dts
	return o.pause()
}

func (o *srtTarget) pause() error {
	if !o.waiting {
		return nil
	}
	o.waiting = false
	return o.ts.WriteSegment(o)
}
