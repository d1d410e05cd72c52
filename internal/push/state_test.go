package push

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/weir"
)

// eventLog collects the events of a push.
type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (t *eventLog) add(name weir.EventName, _ store.Push) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, strings.TrimPrefix(string(name), "multistream."))
}

// take returns the events since the last call.
func (t *eventLog) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := strings.Join(t.all, " ")
	t.all = nil
	return all
}

// taps sends frames to the open taps.
type taps struct {
	mu   sync.Mutex
	open map[*fakeTap]bool
}

// fakeTap has a queue that no test fills.
type fakeTap struct {
	taps  *taps
	queue chan live.TapItem
}

func (t *taps) tap(string) (tap, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &fakeTap{t, make(chan live.TapItem, 10_000)}
	if t.open == nil {
		t.open = map[*fakeTap]bool{}
	}
	t.open[f] = true
	return f, nil
}

func (t *taps) share(frame live.TapItem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.open {
		f.queue <- frame
	}
}

func (f *fakeTap) Next(ctx context.Context) (live.TapItem, error) {
	select {
	case frame := <-f.queue:
		return frame, nil
	case <-ctx.Done():
		return live.TapItem{}, context.Cause(ctx)
	}
}

func (f *fakeTap) Close() {
	f.taps.mu.Lock()
	defer f.taps.mu.Unlock()
	delete(f.taps.open, f)
}

func newTestPush(events *eventLog) *push {
	return &push{
		log: slog.New(slog.DiscardHandler), emit: events.add, done: make(chan struct{}),
		want: store.Push{Ref: weir.TargetRef{ID: "x", Profile: weir.SourceProfile}},
	}
}

// The events of a target, and their times.
func TestPushEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &eventLog{}
		p := newTestPush(events)
		broken := errors.New("broken")
		hold := func(long time.Duration, want string) {
			t.Helper()
			over := p.connected(&kept{})
			time.Sleep(long)
			if got := events.take(); got != "" {
				t.Errorf("connected while the encoder is away: events %q", got)
			}
			p.sent()
			p.sent()
			if got := events.take(); got != want {
				t.Errorf("after %v connected, with %d failures: events %q, want %q", long, p.failures, got, want)
			}
			over()
		}
		fail := func(want string) {
			t.Helper()
			p.failed(broken)
			if got := events.take(); got != want {
				t.Errorf("failure %d: events %q, want %q", p.failures, got, want)
			}
		}
		hold(6*time.Second, "") // too short to count
		hold(8*time.Second, "connected")
		fail("")
		hold(8*time.Second, "connected") // does not make up for the failure
		fail("error")
		hold(8*time.Second, "connected")
		fail("") // silent from here on
		fail("")
		hold(time.Minute, "")
		hold(3*time.Minute, "connected") // makes up for all of them
		fail("")
		fail("error")
		hold(5*time.Minute, "connected")
		p.disconnected()
		if got := events.take(); got != "disconnected" {
			t.Errorf("left in a gap: events %q", got)
		}
		p.disconnected()
		if got := events.take(); got != "" {
			t.Errorf("left before its event: events %q", got)
		}
		p.cancel = func() {}
		p.end()
		hold(5*time.Minute, "") // the one who removed it has written the event
	})
}

// A target stays connected while the encoder is away for a while, is left when that takes too long,
// and is called again when the encoder is back. One that fails is called again and again, at longer
// intervals.
func TestPushGapsAndRetries(t *testing.T) {
	tracks := testTracks(t)
	synctest.Test(t, func(t *testing.T) {
		events := &eventLog{}
		p := newTestPush(events)
		var readers taps
		p.open = readers.tap
		var mu sync.Mutex // guards what follows
		var calls []time.Duration
		began := time.Now()
		outlets := []*kept{}
		var refuse error
		p.connect = func(context.Context, string, func(error)) (targetConn, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, time.Since(began))
			if refuse != nil {
				return nil, refuse
			}
			outlets = append(outlets, &kept{})
			return outlets[len(outlets)-1], nil
		}
		last := func() *kept {
			mu.Lock()
			defer mu.Unlock()
			return outlets[len(outlets)-1]
		}
		share := func(f live.TapItem) {
			readers.share(f)
			synctest.Wait()
		}
		frame := func(at time.Duration) { share(live.TapItem{DTS: at, PTS: at, Sync: true, Data: []byte{1}}) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx)
		}()
		synctest.Wait()
		time.Sleep(time.Hour)
		if len(calls) > 0 {
			t.Error("a target was called although there is nothing to send")
		}
		share(live.TapItem{Tracks: tracks})
		frame(0)
		time.Sleep(20 * time.Second)
		share(live.TapItem{Tracks: tracks}) // the encoder is back
		frame(20 * time.Second)
		time.Sleep(24 * time.Second)
		synctest.Wait()
		frames, closed := last().state()
		if got := events.take(); len(outlets) != 1 || closed || len(frames) != 2 || got != "connected" {
			t.Fatalf("in a short gap: %d connections, events %q", len(outlets), got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, closed = last().state()
		if got := events.take(); !closed || got != "disconnected" || p.health(time.Now()).Status != statusDisconnected {
			t.Fatalf("in a long gap: closed %v, events %q, %+v", closed, got, p.health(time.Now()))
		}

		mu.Lock()
		refuse, calls, began = errors.New("no"), nil, time.Now()
		mu.Unlock()
		for i := range 600 { // frames keep coming for ten minutes
			share(live.TapItem{Tracks: tracks})
			frame(time.Duration(i) * time.Second)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		// 1, 2, 4, 8, 16, 30, 30 … seconds, each from half to one and a half times.
		if len(calls) < 12 || len(calls) > 50 || calls[1]-calls[0] > 4*time.Second {
			t.Errorf("a target that fails was called after %v", calls)
		}
		for i := 1; i < len(calls); i++ {
			if wait := calls[i] - calls[i-1]; wait < minRetry/2 || wait > maxRetry*3/2+2*time.Second {
				t.Errorf("call %d came %v after the one before it", i, wait)
			}
		}
		mu.Lock()
		refuse = nil
		mu.Unlock()
		for i := range 60 {
			share(live.TapItem{Tracks: tracks})
			frame(time.Duration(600+i) * time.Second)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		rising := func(a, b outgoing) int { return int(a.dts - b.dts) }
		if frames, closed := last().state(); closed || len(frames) == 0 || frames[0].dts != 0 || !slices.IsSortedFunc(frames, rising) {
			t.Errorf("after the failures: closed %v, %+v", closed, frames)
		}
		cancel()
		<-done
		if _, closed := last().state(); !closed {
			t.Error("the stream was not ended in order")
		}
	})
}
