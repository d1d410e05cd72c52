package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	srt "github.com/datarhei/gosrt"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// offender is a publisher that sends what it must not.
type offender struct {
	name string
	// says is what weir's log tells of it; "" = nothing, since nobody is to blame.
	says string
	// hangs says that it waits for weir to close the connection, which takes a while.
	hangs bool
	// try connects once and does harm until it is cut, or ctx ends.
	try func(o *offenders, ctx context.Context) error
}

// offenders are all of them, and what they need.
type offenders struct {
	w         *harness.Weir
	rtmp, srt string
	noise     []byte
	offer     string // of somebody who does not connect
	deletes   bool   // such a one says so
	keys      []string

	// Of the one who uses this.
	from   string // address; what one does from there is not held against others
	key    string // of its stream
	client *http.Client

	mu    sync.Mutex
	tries map[string]int
	stays map[string]error // what weir let go on
}

func newOffenders(w *harness.Weir, rtmp, srt string) *offenders {
	seed := rand.Uint64()
	w.T.Logf("seed of the noise %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := &offenders{w: w, rtmp: rtmp, srt: srt, noise: make([]byte, 256<<10), tries: map[string]int{}, stays: map[string]error{}}
	for i := range o.noise {
		o.noise[i] = byte(random.Uint32())
	}
	for range badPublishers() {
		o.keys = append(o.keys, newStream(w, rtmp).key)
	}
	return o
}

// start lets all of them try until ctx ends; wait waits for them.
func (o *offenders) start(ctx context.Context) (wait func()) {
	var wg sync.WaitGroup
	for i, one := range badPublishers() {
		own := &offenders{w: o.w, rtmp: o.rtmp, srt: o.srt, noise: o.noise, offer: o.offer, deletes: o.deletes, from: fmt.Sprintf("127.0.1.%d", i+1), key: o.keys[i]}
		own.client = clientFrom(own.from)
		wg.Go(func() { o.run(ctx, one, own) })
	}
	return wg.Wait
}

// clientFrom is one at an address of this machine, that keeps no connections.
func clientFrom(address string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
}

// run lets one of them try until ctx ends.
func (o *offenders) run(ctx context.Context, one offender, own *offenders) {
	for ctx.Err() == nil {
		err := one.try(own, ctx)
		o.mu.Lock()
		o.tries[one.name]++
		if err != nil && ctx.Err() == nil {
			o.stays[one.name] = err
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// errStays says that weir let an offender go on.
var errStays = errors.New("weir does not cut it")

// cut waits until weir has closed a connection. The limits are those that weir sets.
func (e *rtmpEncoder) cut(ctx context.Context, limit time.Duration) error {
	defer e.close()
	select {
	case <-e.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit + wait.Limit):
		return errStays
	}
}

// raw is an offender that does not even shake hands.
func raw(send func(o *offenders, conn net.Conn)) func(*offenders, context.Context) error {
	return func(o *offenders, ctx context.Context) error {
		conn, err := dialFrom(ctx, o.from, o.rtmp)
		if err != nil {
			return nil
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		send(o, conn)
		return harness.HungUp(conn, 10*time.Second)
	}
}

// shaken is an offender that shakes hands. It is cut within a time after it has sent.
func shaken(limit time.Duration, send func(o *offenders, ctx context.Context, e *rtmpEncoder)) func(*offenders, context.Context) error {
	return func(o *offenders, ctx context.Context) error {
		e, err := dialRTMP(ctx, o.from, o.rtmp)
		if err != nil {
			return nil // weir has had enough of this address
		}
		defer context.AfterFunc(ctx, func() { _ = e.Close() })()
		send(o, ctx, e)
		return e.cut(ctx, limit)
	}
}

// published is an offender that has a good stream key.
func published(limit time.Duration, send func(o *offenders, ctx context.Context, e *rtmpEncoder)) func(*offenders, context.Context) error {
	return shaken(limit, func(o *offenders, ctx context.Context, e *rtmpEncoder) {
		_ = e.publish(o.key)
		send(o, ctx, e)
	})
}

// badPublishers are twenty ways to do harm.
func badPublishers() []offender {
	const handshake, idle = 10 * time.Second, 10 * time.Second
	write := func(e io.Writer, b ...byte) { _, _ = e.Write(b) }
	return []offender{
		{"noise", "the other end does not speak RTMP", false, raw(func(o *offenders, c net.Conn) { write(c, append([]byte{9}, o.noise[:3000]...)...) })},
		{"half a handshake", "no data arrived in time", true, raw(func(o *offenders, c net.Conn) { write(c, append([]byte{3}, o.noise[:700]...)...) })},
		{"noise after the handshake", "before it sent a stream key", false, shaken(handshake, func(o *offenders, _ context.Context, e *rtmpEncoder) { write(e, o.noise...) })},
		{"half a chunk", "no data arrived in time", true, shaken(handshake, func(_ *offenders, _ context.Context, e *rtmpEncoder) { write(e, 3, 0, 0, 0, 0) })},
		{"huge chunks", "bytes; 65536 are allowed here", false, shaken(handshake, func(_ *offenders, _ context.Context, e *rtmpEncoder) {
			_ = e.send(rtmpChunkSize, 0, []byte{0x7F, 0xFF, 0xFF, 0xFF})
			write(e, 3, 0, 0, 0, 0xFF, 0xFF, 0xFF, rtmpCommand, 0, 0, 0, 0)
		})},
		{"deep commands", "a command can't be read", false, shaken(handshake, func(_ *offenders, _ context.Context, e *rtmpEncoder) {
			_ = e.send(rtmpCommand, 0, bytes.Repeat([]byte{0x0A, 0xFF, 0xFF, 0xFF, 0xFF}, 6000))
		})},
		{"wrong keys", "no stream has this stream key", false, shaken(handshake, func(_ *offenders, _ context.Context, e *rtmpEncoder) { _ = e.publish("0000-0000-0000-0000") })},
		{"random tags", "publisher sent unusable media", false, published(idle, (*offenders).randomTags)},
		{"stops in the middle", "publisher lost", true, published(idle, func(_ *offenders, _ context.Context, e *rtmpEncoder) {
			_ = e.send(rtmpPicture, 0, pictureConfig(crowdSPS, crowdPPS))
			_ = e.send(rtmpPicture, 0, picture(stamped(0, true, 100)))
			write(e, 0x0B, 0, 0, 40, 0, 4, 0, rtmpPicture, 1, 0, 0, 0, 0x27, 1)
		})},
		{"a byte now and then", "publisher lost", true, published(idle, func(_ *offenders, ctx context.Context, e *rtmpEncoder) {
			for range 20 {
				write(e, 3)
				select {
				case <-e.gone:
				case <-ctx.Done():
				case <-time.After(time.Second):
					continue
				}
				return
			}
		})},
		{"a million small pictures", "publisher sent unusable media", false, published(idle, (*offenders).smallPictures)},
		{"a clock that stands still", "publisher sent unusable media", false, published(idle, (*offenders).standsStill)},
		{"another picture all the time", "publisher sent unusable media", false, published(idle, (*offenders).changes)},
		{"datagrams", "", false, (*offenders).datagrams},
		{"half an SRT handshake", "", false, (*offenders).halfSRT},
		{"wrong keys over SRT", "no stream has this stream key", false, func(o *offenders, ctx context.Context) error { return o.overSRT(ctx, "0000-0000-0000-0000", nil) }},
		{"noise over SRT", "no media arrived in time", true, func(o *offenders, ctx context.Context) error {
			return o.overSRT(ctx, o.key, func(i int) []byte { return o.noise[i%1000 : i%1000+1316] })
		}},
		{"half a transport stream", "no media arrived in time", true, func(o *offenders, ctx context.Context) error {
			return o.overSRT(ctx, o.key, func(i int) []byte {
				packets := bytes.Clone(o.noise[i%1000 : i%1000+1316])
				for at := 0; at < len(packets); at += 188 {
					packets[at] = 0x47
				}
				return packets
			})
		}},
		{"broken offers", "the offer can't be used", false, func(o *offenders, ctx context.Context) error {
			return o.post(ctx, o.key, "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"+string(o.noise[:2000]))
		}},
		{"offers of nobody", "the peer did not connect", true, func(o *offenders, ctx context.Context) error { return o.post(ctx, o.key, o.offer) }},
	}
}

// randomTags sends tags of audio and video that make no sense, and some that begin as
// if they did.
func (o *offenders) randomTags(ctx context.Context, e *rtmpEncoder) {
	begin := [][]byte{{0x17, 0, 0, 0, 0}, {0x17, 1, 0, 0, 0}, {0xAF, 0}, {0xAF, 1}, {0x90, 'h', 'v', 'c', '1'}, {0x95, 0x20}, {0x97, 3}, {}}
	for i := range 200 {
		kind := byte(rtmpAudio + i%2)
		at := rand.N(len(o.noise) - 2000)
		body := append(bytes.Clone(begin[rand.N(len(begin))]), o.noise[at:at+rand.N(2000)]...)
		if e.send(kind, time.Duration(rand.N(1<<31))*time.Millisecond, body) != nil || ctx.Err() != nil {
			return
		}
	}
	_ = e.Close()
}

// smallPictures sends as many as it can.
func (o *offenders) smallPictures(ctx context.Context, e *rtmpEncoder) {
	_ = e.send(rtmpPicture, 0, pictureConfig(crowdSPS, crowdPPS))
	for i := range 1_000_000 {
		if e.send(rtmpPicture, time.Duration(i/100)*time.Millisecond, picture([]byte{0x65, 1})) != nil || ctx.Err() != nil {
			return
		}
	}
}

// standsStill sends large pictures, all of the same moment.
func (o *offenders) standsStill(ctx context.Context, e *rtmpEncoder) {
	_ = e.send(rtmpPicture, 0, pictureConfig(crowdSPS, crowdPPS))
	nal := stamped(0, true, 500_000)
	for ctx.Err() == nil && e.send(rtmpPicture, 0, picture(nal)) == nil {
	}
}

// changes sends other parameter sets with each picture.
func (o *offenders) changes(ctx context.Context, e *rtmpEncoder) {
	for i := 0; ctx.Err() == nil; i++ {
		pps := crowdPPS + strings.Repeat("\x55", 1+i%2)
		at := time.Duration(i) * 40 * time.Millisecond
		if e.send(rtmpPicture, at, pictureConfig(crowdSPS, pps)) != nil || e.send(rtmpPicture, at, picture([]byte{0x65, 1, 2})) != nil {
			return
		}
	}
}

// datagrams sends some to the endpoint of SRT that are none of it.
func (o *offenders) datagrams(ctx context.Context) error {
	conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(o.from)}}).DialContext(ctx, "udp", o.srt)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 50 {
		at := rand.N(len(o.noise) - 1500)
		_, _ = conn.Write(o.noise[at : at+rand.N(1500)])
	}
	return nil
}

// halfSRT begins handshakes and leaves it at that.
func (o *offenders) halfSRT(ctx context.Context) error {
	conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(o.from)}}).DialContext(ctx, "udp", o.srt)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := make([]byte, 16+48)
	hello[0] = 0x80  // control, handshake
	hello[16+3] = 4  // version
	hello[16+7] = 2  // datagrams
	hello[16+14] = 5 // 1280 bytes at most
	hello[16+23] = 1 // induction
	hello[16+27] = 7 // number of the socket
	_, _ = conn.Write(hello)
	conclusion := bytes.Clone(hello)
	copy(conclusion[16+20:], []byte{0xFF, 0xFF, 0xFF, 0xFF}) // with a cookie that is wrong
	copy(conclusion[16+28:], o.noise[:36])
	_, _ = conn.Write(conclusion)
	return nil
}

// overSRT connects with a streamid and sends what next returns until weir has had enough.
// All who do that come from one address, so not too often.
func (o *offenders) overSRT(ctx context.Context, streamID string, next func(i int) []byte) error {
	config := srt.DefaultConfig()
	config.StreamId, config.ConnectionTimeout = streamID, 5*time.Second
	conn, err := srt.Dial("srt", o.srt, config)
	if err != nil { // refused
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	}
	defer conn.Close()
	if next == nil {
		return fmt.Errorf("it is let in with %s", streamID)
	}
	for i := range 100 * 30 {
		if _, err := conn.Write(next(i)); err != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errStays
}

// post posts an offer to send.
func (o *offenders) post(ctx context.Context, key, offer string) error {
	return postOffer(ctx, o.client, o.w.URL, key, offer, o.deletes)
}

// postOffer posts an offer and does not connect. After a second it deletes the session, if
// asked to.
func postOffer(ctx context.Context, client *http.Client, base, id, offer string, deletes bool) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/webrtc/"+id, strings.NewReader(offer))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/sdp")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	switch {
	case response.StatusCode >= 500 && response.StatusCode != http.StatusServiceUnavailable:
		return fmt.Errorf("the offer is answered with %d", response.StatusCode)
	case response.StatusCode != http.StatusCreated:
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	if !deletes {
		return nil
	}
	r, err = http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodDelete, base+response.Header.Get("Location"), nil)
	if err != nil {
		return err
	}
	if response, err = client.Do(r); err != nil {
		return err
	}
	return response.Body.Close()
}
