package live

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/rtc/rtctest"
)

// TestLiveCrowd sends and watches beside fifty viewers who are slow, twenty publishers who
// send what they must not, and one who sends ten times what it should: those who do
// nothing wrong notice nothing of it. TestLiveSoak (make soak-live) does the same for
// minutes, and measures.
func TestLiveCrowd(t *testing.T) {
	// SRT drops what is later than its latency, and other tests use the machine too.
	c := newCrowd(t, harness.NewWeir(t), 10_000_000, 15*time.Second)
	c.bad.deletes, c.slow.deletes = true, true
	c.storm(4 * time.Second)
	c.finish()
}

// crowd is a weir with all of them.
type crowd struct {
	t       *testing.T
	w       *harness.Weir
	ops     string
	latency time.Duration // of SRT
	good    []*goodStream
	viewer  *rtctest.Peer // over WebRTC
	large   *goodStream   // sends ten times what it should
	bad     *offenders
	slow    *slowViewers
	before  process // storm
	stop    context.CancelFunc
	running sync.WaitGroup // those who do nothing wrong
	watched sync.WaitGroup
}

// process is what weir uses.
type process struct{ goroutines, files int }

// newCrowd starts weir, and those who do nothing wrong, but for one who sends so many bits
// a second. The latency is that of SRT.
func newCrowd(t *testing.T, w *harness.Weir, many int, latency time.Duration) *crowd {
	t.Helper()
	c := &crowd{t: t, w: w, ops: harness.FreeAddr(t), latency: latency}
	rtmp, srt, webrtc := harness.FreeAddr(t), freeUDPAddr(t), harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--srt", srt, "--webrtc", webrtc, "--ops", c.ops, "--session-timeout", "3s")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c.stop = cancel
	t.Cleanup(func() {
		cancel()
		c.running.Wait()
		w.Kill()
		c.watched.Wait()
	})
	for i := range 3 {
		c.add(ctx, fmt.Sprintf("RTMP %d", i), 2500, rtmp, "")
	}
	c.add(ctx, "SRT", 2500, "", srt)
	c.large = c.add(ctx, "ten times the bitrate", many/8/25, rtmp, "")
	harness.Eventually(t, func() error {
		for _, g := range c.good {
			if _, next, err := newest(g.liveStream); err != nil || next < 2 {
				return fmt.Errorf("%s: %d segments, %w", g.name, next, err)
			}
		}
		return nil
	})
	c.viewer = rtctest.New(t)
	c.viewer.Post(w.URL+"/webrtc/"+c.good[0].playback, c.viewer.OfferToWatch())
	c.viewer.Connected()

	c.bad = newOffenders(w, rtmp, srt)
	c.bad.offer = rtctest.New(t).OfferToSend()
	c.slow = &slowViewers{
		addr: strings.TrimPrefix(w.URL, "http://"), others: []string{rtmp, webrtc}, large: c.large.liveStream, good: c.good[0],
		offer: rtctest.New(t).OfferToWatch(), w: w, client: clientFrom("127.0.2.1"),
	}
	c.before = c.process()
	return c
}

// add adds a stream of somebody who does nothing wrong.
func (c *crowd) add(ctx context.Context, name string, size int, rtmp, srt string) *goodStream {
	c.t.Helper()
	g := &goodStream{liveStream: newStream(c.w, rtmp), name: name, size: size}
	end, err := func() (func(), error) {
		if srt != "" {
			return g.overSRT(srt, c.latency)
		}
		return g.overRTMP(ctx, rtmp)
	}()
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	c.running.Go(func() { g.publish(ctx, end) })
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.t.Cleanup(cancel)
	c.watched.Go(func() { g.watch(watching) })
	c.good = append(c.good, g)
	return g
}

// process asks weir what it uses.
func (c *crowd) process() (p process) {
	c.t.Helper()
	http.DefaultClient.CloseIdleConnections() // they are weir's too
	_, text := get(c.t, "http://"+c.ops+"/metrics")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			p.goroutines = int(n)
		case "process_open_fds":
			p.files = int(n)
		}
	}
	if p.goroutines == 0 || p.files == 0 {
		c.t.Fatal("the metrics don't tell of goroutines and files")
	}
	return p
}

// storm lets everybody loose who means harm, for a while and until weir has told of each of them, and
// then looks what it says.
func (c *crowd) storm(long time.Duration) {
	c.t.Helper()
	c.w.Log.Reset()
	seen, _ := c.viewer.Got("video")
	// Without a deadline that dials would end at by themselves.
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	began := time.Now()
	waitSlow, waitBad := c.slow.start(ctx), c.bad.start(ctx)
	time.Sleep(long)
	harness.Eventually(c.t, func() error { // on a busy machine, even the first tries take long
		if now, _ := c.viewer.Got("video"); now-seen < int(long/goodFrameTime)/2 {
			return fmt.Errorf("the viewer over WebRTC got %d packets", now-seen)
		}
		return c.told(time.Since(began))
	})
	cancel()
	waitBad()
	waitSlow()
	took := time.Since(began)
	for _, name := range slices.Sorted(maps.Keys(c.bad.tries)) {
		c.t.Logf("%-36s %d times", name, c.bad.tries[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.slow.times)) {
		c.t.Logf("%-36s %d times", name, c.slow.times[name])
	}
	for name, err := range c.bad.stays {
		c.t.Errorf("%s: %v", name, err)
	}
	for err, n := range c.slow.errs {
		c.t.Errorf("%d times %s", n, err)
	}
	c.checkLog(took)
}

// told returns an error if weir does not tell of everybody who did something wrong for so long.
func (c *crowd) told(took time.Duration) error {
	log := c.w.Log.String()
	for _, one := range badPublishers() {
		if one.says != "" && (!one.hangs || took > 30*time.Second) && !strings.Contains(log, one.says) {
			return fmt.Errorf("%s: the log does not say %q", one.name, one.says)
		}
	}
	return nil
}

// checkLog looks whether weir tells of nothing else, and not too much.
func (c *crowd) checkLog(took time.Duration) {
	c.t.Helper()
	log := c.w.Log.String()
	for line := range strings.Lines(log) {
		if strings.Contains(line, "panic") || strings.Contains(line, "defect") || strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, `"part":"store"`) {
			c.t.Errorf("weir says: %s", line)
			break
		}
	}
	// Of unauthenticated clients a few lines a second at each of three endpoints; of encoders with a good key
	// a few at each of their connections, which may be thirty and then one in two seconds.
	lines, limit := strings.Count(log, "\n"), 3*(20+2*took.Seconds())+float64(len(badPublishers()))*3*(30+took.Seconds()/2)
	c.t.Logf("%d lines in the log after %v", lines, took.Round(time.Second))
	if float64(lines) > limit {
		c.t.Errorf("%d lines in the log after %v, want at most %.0f; the last: %s", lines, took, limit, harness.Tail(log))
	}
}

// finish waits until nothing of the storm is left, lets those end who did nothing wrong,
// and looks what they got.
func (c *crowd) finish() {
	c.t.Helper()
	// Peers that never come and sessions that nobody goes on with are let go after 15 s.
	harness.Eventually(c.t, func() error {
		now := c.process()
		if now.goroutines > c.before.goroutines+20 || now.files > c.before.files+10 {
			return fmt.Errorf("weir has %d goroutines and %d files open after the storm; it had %d and %d before", now.goroutines, now.files, c.before.goroutines, c.before.files)
		}
		return nil
	})
	c.t.Logf("goroutines and files before %v, after %v", c.before, c.process())
	c.stop()
	c.running.Wait()
	for _, g := range c.good {
		harness.Eventually(c.t, func() error {
			// What is in hand is written when the encoder is gone.
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.err == nil && g.next < int(g.sent.Load()) {
				return fmt.Errorf("%s: %d pictures were sent, and %d have come", g.name, g.sent.Load(), g.next)
			}
			return nil
		})
		if err := g.check(); err != nil {
			c.t.Error(err)
		}
		c.t.Logf("%s: %d pictures, each of them %s", g.name, g.next, late(g.since(0)))
	}
	c.w.Stop()
}

// late tells how late pictures came.
func late(delays []time.Duration) string {
	if len(delays) == 0 {
		return "never"
	}
	slices.Sort(delays)
	at := func(q float64) time.Duration {
		return delays[min(int(q*float64(len(delays))), len(delays)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%v late (p50), %v (p95), %v (most)", at(0.5), at(0.95), at(1))
}
