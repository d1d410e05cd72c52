package push

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/rtmp"
	"weir/internal/weir"
)

// connectTimeout is the maximum time until a target accepts the stream.
const connectTimeout = 10 * time.Second

// rtmpTarget publishes to an RTMP server.
type rtmpTarget struct {
	conn    *rtmp.Conn
	video   string // codec
	reading sync.WaitGroup
}

// dialRTMP connects to a target and returns when it accepts the stream. fail is called if the
// connection breaks after that.
func dialRTMP(ctx context.Context, raw string, dial rtmp.DialFunc, fail func(error)) (targetConn, error) {
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		return nil, weir.Errorf(weir.Invalid, "the URL of the target has a user name in it; "+
			"RTMP targets are identified by their key alone: use rtmp://host/app/key")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := rtmp.Dial(ctx, raw, dial)
	if err != nil {
		return nil, rtmpError(err)
	}
	if err := conn.Publish(ctx); err != nil {
		conn.Cut()
		return nil, rtmpError(err)
	}
	o := &rtmpTarget{conn: conn}
	o.reading.Go(func() {
		fail(rtmpError(conn.Wait()))
		conn.Cut()
	})
	return o, nil
}

// rtmpError returns an error with a sentence for the owner, if it is one of package rtmp.
func rtmpError(err error) error {
	if errors.Is(err, rtmp.ErrURL) {
		return weir.Errorf(weir.Invalid, "the URL of the target must be rtmp://host/app/key or rtmps://host/app/key")
	}
	if e, ok := errors.AsType[*rtmp.Refusal](err); ok {
		return weir.Errorf(weir.Upstream, "the target refused the stream (%s); "+
			"check the address and the key", cmp.Or(e.Code, "no reason given"))
	}
	if e, ok := errors.AsType[*rtmp.TLSError](err); ok {
		return weir.Wrap(weir.Upstream, err, "TLS with the target failed: %v", e)
	}
	if e, ok := errors.AsType[rtmp.LimitError](err); ok {
		return weir.Wrap(weir.Upstream, err, "the target sends %s", string(e))
	}
	return err
}

func (o *rtmpTarget) announce(video, audio *cmaf.Track, at time.Duration) error {
	var tracks []codec.Config
	if video != nil {
		config := video.Config()
		switch o.video = config.Codec; o.video {
		case codec.H264, codec.H265, codec.AV1:
			tracks = append(tracks, config)
		default:
			return weir.Errorf(weir.Invalid, "%s can't be sent over RTMP; send H.264, HEVC or AV1", video.Codec)
		}
	}
	if audio != nil {
		tracks = append(tracks, audio.Config())
	}
	return o.conn.WriteTracks(at, tracks...)
}

func (o *rtmpTarget) frame(f outgoing) error {
	p := codec.Packet{Kind: f.kind, Codec: codec.AAC, Composition: f.pts - f.dts, Data: f.data}
	if f.kind == codec.Video {
		p.Codec = o.video
	}
	return o.conn.WritePacket(p, f.sync, f.dts)
}

// pause does nothing: RTMP times may jump.
func (o *rtmpTarget) pause() error { return nil }

func (o *rtmpTarget) sent() int64 { return o.conn.Sent() }

func (o *rtmpTarget) limitWrite() { o.conn.LimitWrite() }

func (o *rtmpTarget) close() {
	o.conn.Close()
	o.reading.Wait()
}
