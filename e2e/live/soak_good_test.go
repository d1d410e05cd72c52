package live

import (
	"bytes"
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	srt "github.com/datarhei/gosrt"

	"weir/internal/cmaf"
)

// What those who do nothing wrong send: 25 pictures a second, a key frame every second.
const (
	goodFrameTime = 40 * time.Millisecond
	goodGOP       = 25
)

// goodStream is a stream of somebody who does nothing wrong, and somebody who watches it
// and counts.
type goodStream struct {
	*liveStream
	name string
	size int        // of a picture
	put  putPicture // how it is sent
	sent atomic.Int64

	mu     sync.Mutex
	next   int // number of the picture that is to come
	delays []time.Duration
	err    error // what went wrong first
}

// putPicture sends a picture. What it returns ends the connection in order.
type putPicture func(n int, nal []byte) error

// failed notes what went wrong.
func (g *goodStream) failed(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

// overRTMP connects a publisher over RTMP.
func (g *goodStream) overRTMP(ctx context.Context, addr string) (end func(), err error) {
	e, err := dialRTMP(ctx, "", addr)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.publish(g.key), e.send(rtmpPicture, 0, pictureConfig(crowdSPS, crowdPPS))); err != nil {
		return nil, err
	}
	g.put = func(n int, nal []byte) error {
		return e.send(rtmpPicture, time.Duration(n)*goodFrameTime, picture(nal))
	}
	return func() {
		_ = e.command("deleteStream", nil, float64(1))
		<-e.gone
		_ = e.Close()
	}, nil
}

// overSRT connects a publisher over SRT: what is later than the latency, because the
// machine is busy say, is lost.
func (g *goodStream) overSRT(addr string, latency time.Duration) (end func(), err error) {
	config := srt.DefaultConfig()
	config.StreamId, config.Latency, config.PeerIdleTimeout = g.key, latency, time.Minute
	conn, err := srt.Dial("srt", addr, config)
	if err != nil {
		return nil, err
	}
	var ts tsWriter
	g.put = func(n int, nal []byte) error {
		ts.picture(uint64(n)*90000/uint64(time.Second/goodFrameTime), nal)
		for len(ts.out) > 0 {
			few := ts.out[:min(len(ts.out), 7*188)]
			if _, err := conn.Write(few); err != nil {
				return err
			}
			ts.out = ts.out[len(few):]
		}
		return nil
	}
	return func() {
		time.Sleep(latency + time.Second/2) // what the library has not sent when it is closed is lost
		_ = conn.Close()
	}, nil
}

// tsWriter makes a transport stream of pictures.
type tsWriter struct {
	out   []byte
	count map[uint16]byte // of packets, by their number
}

// picture writes one, and tables and parameter sets before a key frame.
func (w *tsWriter) picture(at uint64, nal []byte) {
	const tables, pictures = 0x100, 0x101
	var unit []byte
	if nal[0]&31 == 5 {
		w.packets(0, append([]byte{0}, table(0, 1, 0, 1, 0xE0|tables>>8, tables&0xFF)...))
		w.packets(tables, append([]byte{0}, table(2, 1, 0xE0|pictures>>8, pictures&0xFF, 0xF0, 0, 0x1B, 0xE0|pictures>>8, pictures&0xFF, 0xF0, 0)...))
		unit = fmt.Appendf(unit, "\x00\x00\x00\x01%s\x00\x00\x00\x01%s", crowdSPS, crowdPPS)
	}
	unit = append(append(unit, 0, 0, 0, 1), nal...)
	head := []byte{0, 0, 1, 0xE0, 0, 0, 0x80, 0x80, 5, 0x21 | byte(at>>29)&0xE, byte(at >> 22), byte(at>>14) | 1, byte(at >> 7), byte(at<<1) | 1}
	w.packets(pictures, append(head, unit...))
}

// packets writes something in packets of 188 bytes.
func (w *tsWriter) packets(pid uint16, data []byte) {
	if w.count == nil {
		w.count = map[uint16]byte{}
	}
	for first := byte(0x40); len(data) > 0; first = 0 {
		p := []byte{0x47, first | byte(pid>>8), byte(pid), 0x10 | w.count[pid]&15}
		w.count[pid]++
		if room := 184 - len(data); room > 0 { // the rest is stuffing
			p[3] |= 0x20
			p = append(p, byte(room-1))
			if room > 1 {
				p = append(append(p, 0), bytes.Repeat([]byte{0xFF}, room-2)...)
			}
		}
		n := 188 - len(p)
		w.out = append(append(w.out, p...), data[:n]...)
		data = data[n:]
	}
}

// table is one of a transport stream: its kind, the number of what it tells of, the rest.
func table(kind byte, number uint16, rest ...byte) []byte {
	size := 5 + len(rest) + 4
	t := append([]byte{kind, 0xB0 | byte(size>>8), byte(size), byte(number >> 8), byte(number), 0xC1, 0, 0}, rest...)
	sum := ^uint32(0)
	for _, c := range t {
		sum ^= uint32(c) << 24
		for range 8 {
			carry := sum >> 31
			sum = sum<<1 ^ carry*0x04C11DB7
		}
	}
	return endian.BigEndian.AppendUint32(t, sum)
}

// publish sends pictures in their time until ctx ends, and the end after them.
func (g *goodStream) publish(ctx context.Context, end func()) {
	defer end()
	began := time.Now()
	for n := 0; ; n++ {
		if err := g.put(n, stamped(n, n%goodGOP == 0, g.size)); err != nil {
			g.failed("the publisher was cut after %d pictures: %w", n, err)
			return
		}
		g.sent.Store(int64(n + 1))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(began.Add(time.Duration(n+1) * goodFrameTime))):
		}
	}
}

// watch watches part by part until the stream has ended or ctx does, and counts the
// pictures: none may be missing.
func (g *goodStream) watch(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(file string) (int, []byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url("source/"+file), nil)
		if err != nil {
			return 0, nil, err
		}
		response, err := client.Do(r)
		if err != nil {
			return 0, nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, body, err
	}
	var init []byte
	var segment int64
	part, file := 0, "index.m3u8"
	for ctx.Err() == nil {
		status, text, err := get(file)
		if status == http.StatusNotFound && init == nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil || status != http.StatusOK {
			g.failed("%s: %d %w\n%s", file, status, err, text)
			return
		}
		list, err := parseLive(text)
		if err != nil {
			g.failed("%s: %w\n%s", file, err, text)
			return
		}
		if len(list.segments) > 0 && init == nil {
			segment = list.segments[0].number
			if _, init, err = get(list.segments[0].init); err != nil {
				g.failed("init segment: %w", err)
				return
			}
		}
		for _, s := range list.segments {
			if s.discontinuity {
				g.failed("segment %d has a discontinuity in front: the publisher was cut", s.number)
			}
			for _, uri := range newURIs(s, &segment, &part) {
				status, data, err := get(uri)
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("%d %s", status, data)
				}
				if err == nil {
					err = g.count(init, data, time.Now())
				}
				if err != nil {
					if ctx.Err() == nil {
						g.failed("%s: %w", uri, err)
					}
					return
				}
			}
		}
		if list.ended {
			return
		}
		file = fmt.Sprintf("index.m3u8?_HLS_msn=%d&_HLS_part=%d", segment, part)
	}
}

// newURIs returns what of a segment comes next: its parts, or all of it when they are
// not in the list any more. segment and part are moved behind it.
func newURIs(s liveSegment, segment *int64, part *int) (uris []string) {
	if s.number < *segment {
		return nil
	}
	if s.number > *segment {
		*segment, *part = s.number, 0 // what is missing shows in the numbers of the pictures
	}
	switch {
	case len(s.parts) > 0:
		for ; *part < len(s.parts); *part++ {
			uris = append(uris, s.parts[*part].uri)
		}
	case s.uri != "":
		uris = append(uris, s.uri) // some of its pictures may have been there already
	}
	if s.uri != "" {
		*segment, *part = s.number+1, 0
	}
	return uris
}

// count looks at the pictures in a part or a segment.
func (g *goodStream) count(init, data []byte, now time.Time) error {
	r := cmaf.NewReader(io.MultiReader(bytes.NewReader(init), bytes.NewReader(data)))
	if _, err := r.Tracks(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		rest := f.Data
		for _, s := range f.Samples {
			unit := rest[:s.Size]
			rest = rest[s.Size:]
			nal := unit[4:]
			if int(endian.BigEndian.Uint32(unit)) != len(nal) || len(nal) != g.size {
				return fmt.Errorf("a picture of %d bytes, %d were sent", len(nal), g.size)
			}
			n, made, err := readStamp(nal)
			switch {
			case err != nil:
				return err
			case n > g.next:
				return fmt.Errorf("picture %d comes after %d: %d are missing", n, g.next-1, n-g.next)
			case n == g.next:
				g.next++
				g.delays = append(g.delays, now.Sub(made))
			}
		}
	}
}

// latest returns how late the pictures came from a number on.
func (g *goodStream) since(n int) []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]time.Duration(nil), g.delays[min(n, len(g.delays)):]...)
}

// check says whether everything that was sent has come.
func (g *goodStream) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return fmt.Errorf("%s: %w", g.name, g.err)
	}
	if sent := int(g.sent.Load()); g.next != sent {
		return fmt.Errorf("%s: %d pictures were sent, and %d have come", g.name, sent, g.next)
	}
	return nil
}
