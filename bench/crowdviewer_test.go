//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowd are viewers of one stream. Each has a connection, on which it waits for the next part of the
// playlist, and then fetches it.
type crowd struct {
	addrs    []string // where they connect to
	admitted func() (path string, err error)
	viewers  []*crowdViewer
	cancel   context.CancelFunc
	ctx      context.Context
	running  sync.WaitGroup
	known    knownParts

	requests, failed atomic.Int64
	since            time.Time
	before, wrong    int64 // of the counts above
	lagging          context.CancelFunc
	lags             chan []time.Duration
}

// part is the place of a part in a stream.
type part struct{ segment, part int64 }

func (p part) query() string {
	return fmt.Sprintf("index.m3u8?_HLS_msn=%d&_HLS_part=%d", p.segment, p.part)
}

// knownParts is what the first viewer has read that all others only receive.
type knownParts struct {
	mu   sync.Mutex
	next map[part]part      // the hint of the playlist that has a part
	sent map[part]time.Time // when the newest frame of a part was sent by the encoder
}

// arrival is a part that a viewer has received.
type arrival struct {
	part part
	at   time.Time
}

type crowdViewer struct {
	crowd *crowd
	addr  string
	conn  net.Conn
	in    *bufio.Reader
	mu    sync.Mutex
	got   []arrival
}

// newCrowd returns a crowd that is not there yet. admitted returns the path of the playlist's folder for
// another viewer.
func newCrowd(t *testing.T, addrs []string, n int, admitted func() (string, error)) *crowd {
	t.Helper()
	c := &crowd{addrs: addrs, admitted: admitted, viewers: make([]*crowdViewer, n)}
	c.known = knownParts{next: map[part]part{}, sent: map[part]time.Time{}}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	for i := range c.viewers {
		c.viewers[i] = &crowdViewer{crowd: c, addr: addrs[i%len(addrs)]}
	}
	return c
}

// each runs viewers until the crowd leaves. They come one after the other.
func (c *crowd) each(run func(ctx context.Context, v *crowdViewer)) {
	const comeIn = 6 * time.Second
	for i, v := range c.viewers {
		c.running.Go(func() {
			if sleep(c.ctx, comeIn*time.Duration(i)/time.Duration(len(c.viewers))) == nil {
				run(c.ctx, v)
			}
			if v.conn != nil {
				_ = v.conn.Close()
			}
		})
	}
	_ = sleep(c.ctx, comeIn+3*time.Second)
}

func (c *crowd) stop() {
	c.cancel()
	for _, v := range c.viewers {
		v.mu.Lock()
		if v.conn != nil {
			_ = v.conn.Close() // it may wait
		}
		v.mu.Unlock()
	}
	c.running.Wait()
}

// ask has all viewers ask for a path every second.
func (c *crowd) ask(path func() string) {
	c.each(func(ctx context.Context, v *crowdViewer) {
		for ctx.Err() == nil {
			_, _, _ = v.get(path())
			_ = sleep(ctx, time.Second)
		}
	})
}

// watch has all viewers watch.
func (c *crowd) watch() {
	c.each(func(ctx context.Context, v *crowdViewer) {
		for ctx.Err() == nil {
			if err := v.watch(ctx); err != nil && ctx.Err() == nil {
				c.failed.Add(1)
				_ = sleep(ctx, time.Second)
			}
		}
	})
}

// watch follows the playlist until something fails.
func (v *crowdViewer) watch(ctx context.Context) error {
	folder, err := v.crowd.admitted()
	if err != nil {
		return err
	}
	status, body, err := v.get(folder + "index.m3u8")
	if err == nil && status != http.StatusOK {
		err = errStatus(status)
	}
	if err != nil {
		return err
	}
	next, err := hinted(body)
	for err == nil && ctx.Err() == nil {
		next, err = v.step(ctx, folder, next)
	}
	return err
}

// step waits for a part and fetches it, and returns the one after it.
func (v *crowdViewer) step(ctx context.Context, folder string, next part) (part, error) {
	status, body, err := v.get(folder + next.query())
	if err == nil && status != http.StatusOK {
		err = errStatus(status)
	}
	if err != nil {
		return next, err
	}
	k := &v.crowd.known
	k.mu.Lock()
	after, ok := k.next[next]
	k.mu.Unlock()
	if !ok {
		if after, err = hinted(body); err != nil {
			return next, err
		}
		if after == next { // the encoder is silent
			return next, sleep(ctx, time.Second)
		}
		k.mu.Lock()
		k.next[next] = after
		k.mu.Unlock()
	}
	newest := next
	if after.part > 0 {
		newest = part{after.segment, after.part - 1}
	}
	status, body, err = v.get(folder + fmt.Sprintf("%d.%d.m4s", newest.segment, newest.part))
	if err == nil && status != http.StatusOK {
		err = errStatus(status)
	}
	if err != nil {
		return next, err
	}
	now := time.Now()
	v.mu.Lock()
	v.got = append(v.got, arrival{newest, now})
	v.mu.Unlock()
	k.mu.Lock()
	_, ok = k.sent[newest]
	k.mu.Unlock()
	if !ok {
		if ages, err := stamps(body, now); err == nil && len(ages) > 0 {
			k.mu.Lock()
			k.sent[newest] = now.Add(-slices.Min(ages))
			k.mu.Unlock()
		}
	}
	return after, nil
}

// hinted returns the part that a playlist says will come next.
func hinted(body []byte) (p part, err error) {
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return p, err
		}
		if body, err = io.ReadAll(r); err != nil {
			return p, err
		}
	}
	const hint = "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\""
	_, rest, ok := strings.Cut(string(body), hint)
	if !ok {
		return p, fmt.Errorf("a playlist without a hint")
	}
	segment, rest, _ := strings.Cut(rest, ".")
	number, _, _ := strings.Cut(rest, ".")
	if p.segment, err = strconv.ParseInt(segment, 10, 64); err != nil {
		return p, err
	}
	p.part, err = strconv.ParseInt(number, 10, 64)
	return p, err
}

// get sends a request on the connection of the viewer, and makes one if there is none.
func (v *crowdViewer) get(path string) (status int, body []byte, err error) {
	v.crowd.requests.Add(1)
	if v.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(v.crowd.ctx, "tcp", v.addr)
		if err != nil {
			return 0, nil, err
		}
		v.mu.Lock()
		v.conn, v.in = conn, bufio.NewReader(conn)
		v.mu.Unlock()
	}
	defer func() {
		if err != nil {
			v.mu.Lock()
			_ = v.conn.Close()
			v.conn = nil
			v.mu.Unlock()
		}
	}()
	if _, err := fmt.Fprintf(v.conn, "GET %s HTTP/1.1\r\nHost: crowd.example\r\nAccept-Encoding: gzip\r\n\r\n", path); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// crowdResult is what a crowd did in a time.
type crowdResult struct {
	requests, failed int64
	took             []time.Duration // from the encoder's newest frame of a part to a viewer's last byte
	lag              time.Duration   // by which the generator is late, p99
}

// begin begins to count.
func (c *crowd) begin() {
	c.since, c.before, c.wrong = time.Now(), c.requests.Load(), c.failed.Load()
	ctx, cancel := context.WithCancel(c.ctx)
	c.lagging, c.lags = cancel, make(chan []time.Duration, 1)
	go func() {
		var lags []time.Duration
		for ctx.Err() == nil {
			due := time.Now().Add(10 * time.Millisecond)
			time.Sleep(time.Until(due))
			lags = append(lags, time.Since(due))
		}
		c.lags <- lags
	}()
}

// end returns what was counted.
func (c *crowd) end() (r crowdResult) {
	r.requests, r.failed = c.requests.Load()-c.before, c.failed.Load()-c.wrong
	c.lagging()
	r.lag = at(<-c.lags, 99)
	for _, v := range c.viewers {
		v.mu.Lock()
		for _, a := range v.got {
			c.known.mu.Lock()
			sent, ok := c.known.sent[a.part]
			c.known.mu.Unlock()
			if ok && sent.After(c.since) {
				r.took = append(r.took, a.at.Sub(sent))
			}
		}
		v.got = nil
		v.mu.Unlock()
	}
	return r
}

func (r *crowdResult) delays() string {
	if len(r.took) == 0 {
		return "–"
	}
	text := ""
	for _, percent := range []int{50, 95, 99} {
		text += fmt.Sprintf(" / %.0f", 1000*at(r.took, percent).Seconds())
	}
	return strings.TrimPrefix(text, " / ")
}

// at returns a percentile.
func at(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}
