package live

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	srt "github.com/datarhei/gosrt"
	"golang.org/x/time/rate"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

const (
	// tsBatch is how much of a stream is made MPEG-TS at once. Each batch repeats the
	// tables.
	tsBatch = 100 * time.Millisecond
	// srtPayload is seven packets of MPEG-TS, as everybody sends.
	srtPayload = 7 * 188
	// What is sent is never faster than this: the library throws away what it can't queue.
	srtMaxRate  = 32 << 20 // bytes a second
	srtMaxBurst = 512 << 10
	// srtIdle is how long the library's reader may sleep.
	srtIdle = 3 * time.Second
	// srtLinger is how long the last packets are on their way, at least.
	srtLinger = 200 * time.Millisecond
	// maxLatency is what a target may ask for.
	maxLatency = 8 * time.Second
)

// srtTarget is where SRT sends a stream to.
type srtTarget struct {
	host   string
	port   uint16
	config srt.Config
}

// parseSRT takes the URL of a target apart.
func parseSRT(raw string) (t srtTarget, err error) {
	wrong := weir.Errorf(weir.Invalid, "the URL of the target must be srt://host:port?streamid=key; passphrase, pbkeylen and latency (in milliseconds) may follow")
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return t, wrong
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	query, queryErr := url.ParseQuery(u.RawQuery)
	if err != nil || queryErr != nil || port == 0 {
		return t, wrong
	}
	if mode := query.Get("mode"); mode != "" && mode != "caller" {
		return t, weir.Errorf(weir.Invalid, "a target is called: leave out mode, or write mode=caller")
	}
	t = srtTarget{host: u.Hostname(), port: uint16(port), config: srt.DefaultConfig()}
	t.config.StreamId, t.config.Passphrase = query.Get("streamid"), query.Get("passphrase")
	t.config.ConnectionTimeout = targetPatience / 2
	t.config.PayloadSize = srtPayload
	if text := query.Get("pbkeylen"); text != "" {
		if t.config.PBKeylen, err = strconv.Atoi(text); err != nil {
			return t, wrong
		}
	}
	if text := query.Get("latency"); text != "" {
		ms, err := strconv.Atoi(text)
		latency := time.Duration(ms) * time.Millisecond
		if err != nil || ms < 0 || latency > maxLatency {
			return t, weir.Errorf(weir.Invalid, "the latency of the target must be given in milliseconds, at most %d", maxLatency.Milliseconds())
		}
		t.config.Latency = latency
	}
	if t.config.Validate() != nil { // its text may repeat what it is about
		return t, weir.Errorf(weir.Invalid, "the URL of the target can't be used: a passphrase has 10 to 80 characters, pbkeylen is 16, 24 or 32, streamid has at most 512 characters")
	}
	return t, nil
}

// resolver returns an address of a host that may be connected to: guard.Guard.Resolve.
type resolver func(ctx context.Context, host string) (netip.Addr, error)

// srtOutlet sends MPEG-TS over SRT.
type srtOutlet struct {
	conn   srt.Conn
	fail   func(error)
	pace   *rate.Limiter
	sentTo atomic.Int64
	ended  sync.WaitGroup
	gone   chan struct{} // closed when the target is

	ts           *cmaf.TS
	video, audio *srtTrack
	since        time.Duration // where the batch in hand begins
}

// srtTrack is a track on its way into a batch.
type srtTrack struct {
	track cmaf.Track
	order order
	batch []cmaf.Fragment
}

// dialSRT connects to a target. fail is told if the connection breaks after that.
func dialSRT(ctx context.Context, raw string, resolve resolver, fail func(error)) (outlet, error) {
	target, err := parseSRT(raw)
	if err != nil {
		return nil, err
	}
	addr, err := resolve(ctx, target.host)
	if err != nil {
		return nil, err
	}
	target.config.Logger = lateCloser{}
	conn, err := srt.DialWithContext(ctx, "srt", net.JoinHostPort(addr.String(), strconv.Itoa(int(target.port))), target.config)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, weir.Wrap(weir.Upstream, err, "the target did not take the call over SRT; check the address, the streamid and the passphrase")
	}
	o := &srtOutlet{conn: conn, fail: fail, pace: rate.NewLimiter(srtMaxRate, srtMaxBurst), gone: make(chan struct{})}
	o.ended.Go(o.listen)
	return o, nil
}

// listen hears the target until the connection ends. It has nothing to say.
func (o *srtOutlet) listen() {
	defer close(o.gone)
	buffer := make([]byte, 2048)
	for {
		if _, err := o.conn.Read(buffer); err != nil {
			o.fail(weir.Wrap(weir.Upstream, err, "the target closed the connection"))
			return
		}
	}
}

// Write sends MPEG-TS.
func (o *srtOutlet) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		some := p[n:min(n+srtPayload, len(p))]
		time.Sleep(o.pace.ReserveN(time.Now(), len(some)).Delay()) // moments, after a burst
		if _, err := o.conn.Write(some); err != nil {
			return n, weir.Wrap(weir.Upstream, err, "the target closed the connection")
		}
		n += len(some)
		o.sentTo.Add(int64(len(some)))
	}
	return n, nil
}

func (o *srtOutlet) sent() int64 { return o.sentTo.Load() }

// hurry has nothing to do: nothing waits for the target.
func (o *srtOutlet) hurry() {}

func (o *srtOutlet) close() {
	_ = o.pause()
	// The other side holds back what it got for its latency, and what is on its way when
	// the connection ends does not count.
	var stats srt.Statistics
	o.conn.Stats(&stats)
	linger := time.Duration(stats.Instantaneous.MsSendTsbPdDelay)*time.Millisecond + srtLinger
	select {
	case <-o.gone:
	case <-time.After(min(linger, targetFarewell)):
	}
	_ = o.conn.Close()
	o.ended.Wait()
}

func (o *srtOutlet) begin(video, audio *cmaf.Track, at time.Duration) error {
	if err := o.pause(); err != nil {
		return err
	}
	if o.ts == nil {
		ts, err := cmaf.NewTS(video, audio, cmaf.TSState{})
		if err != nil {
			return weir.Wrap(weir.Invalid, err, "the stream can't be sent over SRT, which takes H.264 or HEVC and AAC: %v", err)
		}
		o.ts = ts
	} else {
		if !alike(o.video, video) || !alike(o.audio, audio) {
			return errOtherTracks
		}
		ts, err := cmaf.NewTS(video, audio, o.ts.State())
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
	return &srtTrack{track: *t, order: order{track: *t}}
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
	if settled, ok := to.order.add(f.dts, f.pts, f.sync, f.data); ok {
		to.put(settled)
	}
	if f.dts-o.since < tsBatch {
		return nil
	}
	o.since = f.dts
	return o.flush()
}

func (t *srtTrack) put(s sample) {
	t.batch = append(t.batch, cmaf.Fragment{Start: s.at, Samples: []cmaf.Sample{s.Sample}, Data: s.data})
}

// pause sends what is in hand: what comes next does not go on where it ends.
func (o *srtOutlet) pause() error {
	for _, t := range []*srtTrack{o.video, o.audio} {
		if t == nil {
			continue
		}
		if settled, ok := t.order.finish(0); ok {
			t.put(settled)
		}
	}
	return o.flush()
}

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

// lateCloser is a log that keeps nothing. The library waits for it between saying that a
// connection is over and closing its socket: until then its reader must have seen that it
// is over, or it never ends. It looks when something comes, or after srtIdle.
type lateCloser struct{}

func (lateCloser) HasTopic(string) bool { return false }

func (lateCloser) Print(topic string, _ uint32, _ int, message func() string) {
	if topic == "dial" && message() == "closing socket" {
		time.Sleep(srtIdle + srtIdle/20)
	}
}

func (lateCloser) Listen() <-chan srt.Log { return nil }

func (lateCloser) Close() {}
