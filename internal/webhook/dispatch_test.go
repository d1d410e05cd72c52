package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

var local = netip.MustParsePrefix("127.0.0.1/32")

// eachEngine runs a test on both engines.
func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, storetest.SQLite(t, store.Open, storeOptions())) })
	t.Run("postgres", func(t *testing.T) { test(t, storetest.PostgreSQL(t, store.Open, storeOptions())) })
}

// tarpit is a server that accepts connections and never answers.
type tarpit struct {
	url   string
	mu    sync.Mutex
	conns []net.Conn
}

func newTarpit(t *testing.T) *tarpit {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tarpit{url: "http://" + listener.Addr().String()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
		for _, conn := range p.conns {
			_ = conn.Close()
		}
	})
	return p
}

// accepted returns how many connections there were so far.
func (p *tarpit) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// patient lets exchanges wait until the test ends.
func patient() []time.Duration { return []time.Duration{time.Hour} }

// TestTarpit has accounts whose webhooks never answer. They get a part of the slots, and all
// deliveries of an honest account arrive in order while theirs are in flight.
func TestTarpit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, attackers := range []int{1, 5} {
		t.Run(fmt.Sprint(attackers), func(t *testing.T) {
			eachEngine(t, func(t *testing.T, url string) { testTarpit(t, url, attackers) })
		})
	}
}

func testTarpit(t *testing.T, url string, attackers int) {
	ann := newFixtureOn(t, url, local)
	ann.sender.slots, ann.sender.timeouts = 16, patient()
	pit := newTarpit(t)
	for i := range attackers {
		eve := ann.as(ann.newUser(fmt.Sprint("eve", i)))
		for range 10 {
			eve.hook(pit.url)
		}
		for n := range 3 {
			eve.emit(eve.stream, n)
		}
	}
	ann.run()
	// Each may hold as many as it leaves free of the 12 that are not kept.
	held := 6
	if attackers > 1 {
		held = 10
	}
	wait.Until(t, "the slots are held", func() bool { return pit.accepted() == held && int(ann.sender.Stats().InFlight) == held })

	address, requests := receiver(t, nil)
	hook := ann.hook(address)
	streams := []weir.Stream{ann.stream, ann.newStream("second"), ann.newStream("third")}
	const events = 20
	for n := range events {
		for _, s := range streams {
			ann.emit(s, n)
		}
	}
	next := map[string]int{}
	for range events * len(streams) {
		stream, n := number(t, <-requests)
		if n != next[stream] {
			t.Errorf("stream %s: event %d, want %d", stream, n, next[stream])
		}
		next[stream] = n + 1
	}
	wait.Until(t, "all are written", func() bool {
		return len(ann.logs(hook)) == events*len(streams) && int(ann.sender.Stats().InFlight) == held
	})
	if pit.accepted() != held {
		t.Errorf("%d connections to webhooks that never answer, want %d still", pit.accepted(), held)
	}
	if got := ann.sender.Stats(); got.Delivered != int64(events*len(streams)) || got.Retried != 0 || got.Failed != 0 {
		t.Errorf("Stats() = %+v", got)
	}
}

// TestTimeoutsPauseWebhook has a webhook that times out until it is paused. Then nothing is sent
// until its owner changes it.
func TestTimeoutsPauseWebhook(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		h := newFixtureOn(t, url, local)
		h.sender.timeouts = []time.Duration{30 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}
		h.sender.firstBackoff = 0
		pit := newTarpit(t)
		hook := h.hook(pit.url)
		h.emit(h.stream, 1)
		stop := h.run()
		wait.Until(t, "the webhook is paused", func() bool {
			now, err := h.store.Webhook(t.Context(), hook.ID)
			return err == nil && now.PausedUntil() > 0
		})
		stop()
		logs := h.logs(hook)
		for i, entry := range logs {
			want := "timeout: no response within " + h.sender.timeouts[min(i, 2)].String()
			if entry.Response.Error != want {
				t.Errorf("attempt %d: %q, want %q", i, entry.Response.Error, want)
			}
		}
		status := h.status(hook)
		if len(logs) != 10 || status.ConsecutiveTimeouts != 10 || status.Paused.Reason != "10 deliveries in a row timed out" {
			t.Errorf("%d attempts, status %+v, %+v; want 10", len(logs), status, status.Paused)
		}
		h.sender.timeouts = patient() // those who answer may be slow
		h.run()
		h.emit(h.stream, 2)
		// Another webhook is not held up by it, and shows that there was a look at what is due.
		address, requests := receiver(t, nil)
		h.hook(address)
		h.emit(h.newStream("other"), 3)
		<-requests
		if n := len(h.logs(hook)); n != 10 || h.pending() < 2 {
			t.Errorf("%d attempts, %d pending after the pause began", n, h.pending())
		}
		h.write(func(tx *store.Tx) error {
			_, err := tx.UpdateWebhook(t.Context(), hook.ID, func(w *weir.Webhook) error {
				return weir.WebhookPatch{URL: &address}.Apply(w)
			})
			return err
		})
		wait.Until(t, "no delivery is left", func() bool { return h.pending() == 0 })
		if status := h.status(hook); status.ConsecutiveTimeouts != 0 || status.Paused != nil {
			t.Errorf("status = %+v", status)
		}
	})
}

// TestResponseWithoutEnd has a webhook whose responses begin with 200 and do not end. Its events are
// delivered, and it counts as one that times out.
func TestResponseWithoutEnd(t *testing.T) {
	h := newFixture(t)
	h.sender.timeouts = []time.Duration{100 * time.Millisecond}
	h.sender.firstBackoff = 0
	address, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "wait")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	hook := h.hook(address)
	h.emit(h.stream, 1)
	h.run()
	wait.Until(t, "it is delivered", func() bool { return h.pending() == 0 })
	logs := h.logs(hook)
	if entry := logs[len(logs)-1]; !entry.Success {
		t.Errorf("entry = %+v", entry)
	}
	// The beginning of a response may have come too late, on a busy machine.
	if status := h.status(hook); status.ConsecutiveTimeouts != len(logs) {
		t.Errorf("status = %+v after %d attempts", status, len(logs))
	}
}

// TestNewEventsAreNoticed shows that an event does not wait for the next check.
func TestNewEventsAreNoticed(t *testing.T) {
	h := newFixture(t)
	address, requests := receiver(t, nil)
	h.hook(address)
	h.run()
	for n := range 20 {
		h.emit(h.stream, n)
		if _, got := number(t, <-requests); got != n {
			t.Errorf("event %d, want %d", got, n)
		}
	}
}

// TestDrain shows that a node that stops lets exchanges finish, and that an attempt whose end is
// not known is made again.
func TestDrain(t *testing.T) {
	h := newFixture(t)
	var hold sync.Map // "next" → channel that is closed to respond
	address, requests := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		if open, ok := hold.LoadAndDelete("next"); ok {
			select {
			case <-open.(chan struct{}):
			case <-r.Context().Done():
			}
		}
	})
	hook := h.hook(address)
	finished := make(chan struct{})
	hold.Store("next", finished)
	h.sender.Drain = time.Hour
	h.emit(h.stream, 1)
	stop := h.run()
	<-requests
	go func() {
		time.Sleep(50 * time.Millisecond) // Run has noticed the end by then, usually
		close(finished)
	}()
	stop()
	if n := len(h.logs(hook)); n != 1 || h.pending() != 0 {
		t.Errorf("%d entries, %d pending after the first node; want 1 and 0", n, h.pending())
	}

	never := make(chan struct{})
	hold.Store("next", never)
	h.sender.Drain = 0
	h.emit(h.stream, 2)
	stop = h.run()
	<-requests
	stop()
	if n := len(h.logs(hook)); n != 1 || h.pending() != 1 || h.sender.Stats().InFlight != 0 {
		t.Errorf("%d entries, %d pending, %+v; want 1, 1 and none in flight", n, h.pending(), h.sender.Stats())
	}
	h.deliver(hook, 2)
	if _, n := number(t, <-requests); n != 2 || h.pending() != 0 {
		t.Errorf("event %d was sent again, %d are left", n, h.pending())
	}
}

// TestRestart has a node that hangs in an exchange while a new process of it starts. The new one
// sends the event again, and the result of the old one does not count.
func TestRestart(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		old := newFixtureOn(t, url, local)
		var again atomic.Bool
		respond := make(chan struct{})
		free := sync.OnceFunc(func() { close(respond) })
		address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			if !again.Swap(true) {
				<-respond
				w.WriteHeader(http.StatusTeapot)
			}
		})
		t.Cleanup(free)
		hook := old.hook(address)
		e := old.emit(old.stream, 1)
		old.run()
		<-requests
		restarted := newNode(t, url, storeOptions(), local)
		restarted.run()
		<-requests
		wait.Until(t, "it is delivered", func() bool { return restarted.pending() == 0 })
		free()
		wait.Until(t, "the delivery is interrupted", func() bool { return strings.Contains(old.log.String(), "delivery interrupted") })
		logs := restarted.logs(hook)
		if len(logs) != 1 || logs[0].EventID != e.ID || logs[0].Response.Status != 200 {
			t.Errorf("log = %+v, want the attempt of the new process", logs)
		}
	})
}

// TestClaimInFlight has a line whose claim becomes void while its delivery is in flight, as after a
// pause of the process. The node claims it again, and neither sends it twice at once nor loses a slot.
func TestClaimInFlight(t *testing.T) {
	h := newFixture(t)
	respond := make(chan struct{})
	address, requests := receiver(t, func(http.ResponseWriter, *http.Request) { <-respond })
	t.Cleanup(sync.OnceFunc(func() { close(respond) }))
	hook := h.hook(address)
	h.emit(h.stream, 1)
	d := h.sender.newDispatcher(t.Context())
	defer d.cancel()
	if !d.awaitRegistration(t.Context()) {
		t.Fatal("the node is not registered")
	}
	claim := func() {
		d.look = true
		d.claim(t.Context())
	}
	claim()
	<-requests
	if err := h.store.ReleaseOtherLines(t.Context(), nil); err != nil { // as another node voids it
		t.Fatal(err)
	}
	claim()
	if n := h.sender.Stats().InFlight; n != 1 || d.turns.inFlight != 1 {
		t.Errorf("%d deliveries are in flight with %d slots, want one", n, d.turns.inFlight)
	}
	for range h.sender.Stats().InFlight {
		respond <- struct{}{}
	}
	for len(d.claimed) > 0 || h.sender.Stats().InFlight > 0 {
		d.handle(t.Context(), <-d.results)
	}
	if n := d.turns.held(h.user.ID); n != 0 || d.turns.inFlight != 0 {
		t.Errorf("the account holds %d of %d slots when nothing is in flight", n, d.turns.inFlight)
	}
	if h.pending() != 0 || len(h.logs(hook)) != 1 {
		t.Errorf("%d deliveries are pending after %d attempts, want none after one", h.pending(), len(h.logs(hook)))
	}
}

// TestClaimBeforeResult claims a line again before the result of its last delivery is handled: the
// result is written, so the line is free. The account keeps no slot, and nothing is left.
func TestClaimBeforeResult(t *testing.T) {
	h := newFixture(t)
	address, requests := receiver(t, nil)
	hook := h.hook(address)
	h.emit(h.stream, 1)
	h.emit(h.stream, 2)
	d := h.sender.newDispatcher(t.Context())
	defer d.cancel()
	if !d.awaitRegistration(t.Context()) {
		t.Fatal("the node is not registered")
	}
	d.claim(t.Context())
	<-requests
	first := <-d.results
	d.look = true
	d.claim(t.Context())
	if _, n := number(t, wait.Receive(t, "the second delivery", requests)); n != 2 {
		t.Errorf("event %d is sent, want 2", n)
	}
	second := <-d.results
	d.handle(t.Context(), first)
	d.handle(t.Context(), second)
	if n := d.turns.held(h.user.ID); n != 0 || d.turns.inFlight != 0 || h.sender.Stats().InFlight != 0 || len(d.claimed) > 0 {
		t.Errorf("the account holds %d of %d slots when nothing is in flight; claimed %v", n, d.turns.inFlight, d.claimed)
	}
	if h.pending() != 0 || len(h.logs(hook)) != 2 {
		t.Errorf("%d deliveries are pending after %d attempts, want none after two", h.pending(), len(h.logs(hook)))
	}
}

// TestTwoNodes has two nodes that send to one receiver. It never gets two requests of one webhook
// and stream at once, and every event once and in order.
func TestTwoNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	url, options := storetest.PostgreSQL(t, store.Open, storeOptions()), storeOptions()
	options.NodeID = "other"
	a, b := newFixtureOn(t, url, local), newNode(t, url, options, local)
	a.sender.slots, b.sender.slots = 2, 2 // neither can send everything
	var mu sync.Mutex
	busy, next := map[string]bool{}, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("receiver: %v", err)
		}
		stream, n := number(t, got{body: body})
		line := r.URL.Path + " " + stream
		mu.Lock()
		if busy[line] || n != next[line] {
			t.Errorf("%s: event %d, want %d; another request at the same time: %v", line, n, next[line], busy[line])
		}
		busy[line], next[line] = true, n+1
		mu.Unlock()
		time.Sleep(time.Millisecond) // so that others come meanwhile
		mu.Lock()
		busy[line] = false
		mu.Unlock()
	}))
	t.Cleanup(server.Close)
	hooks := []weir.Webhook{a.hook(server.URL + "/1"), a.hook(server.URL + "/2")}
	streams := []weir.Stream{a.stream, a.newStream("second"), a.newStream("third")}
	a.run()
	b.run()
	const events = 30
	for n := range events {
		for _, s := range streams {
			a.emit(s, n)
		}
	}
	wait.Until(t, "no delivery is left", func() bool { return a.pending() == 0 })
	for _, h := range []*fixture{a, b} {
		if h.sender.Stats().Delivered == 0 {
			t.Error("one node has sent nothing")
		}
	}
	if sent := a.sender.Stats().Delivered + b.sender.Stats().Delivered; sent != int64(events*len(streams)*len(hooks)) {
		t.Errorf("%d were delivered, want %d", sent, events*len(streams)*len(hooks))
	}
}

// TestDirectIsBounded has an access webhook that never answers: so many viewers of one account may
// wait, and those of another account do not notice.
func TestDirectIsBounded(t *testing.T) {
	h := newFixture(t)
	h.sender.timeouts = patient()
	pit := newTarpit(t)
	hook := h.hook(pit.url)
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()
	for range maxDirect {
		wg.Go(func() {
			if _, _, err := h.sender.Ask(ctx, hook, time.Now(), nil, nil); err == nil {
				t.Error("there was a response")
			}
		})
	}
	wait.Until(t, "all wait", func() bool { return pit.accepted() == maxDirect })
	_, _, err := h.sender.Ask(ctx, hook, time.Now(), nil, nil)
	if weir.KindOf(err) != weir.Busy || !strings.Contains(err.Error(), "32 requests to webhooks of this account wait for a response") {
		t.Errorf("one more access check: %v", err)
	}
	if _, err := h.sender.Resend(ctx, hook, weir.WebhookLog{Request: weir.WebhookRequest{Body: "{}"}}); weir.KindOf(err) != weir.Busy {
		t.Errorf("a resend: %v", err)
	}
	if got := h.sender.Stats(); got != (Stats{Busy: 2}) {
		t.Errorf("Stats() = %+v", got)
	}
	address, _ := receiver(t, nil)
	bob := h.as(h.newUser("bob"))
	if status, _, err := h.sender.Ask(t.Context(), bob.hook(address), time.Now(), nil, nil); status != 200 || err != nil {
		t.Errorf("an access check of another account: %d, %v", status, err)
	}
	leave()
	wg.Wait()
	if status, _, err := h.sender.Ask(t.Context(), h.hook(address), time.Now(), nil, nil); status != 200 || err != nil {
		t.Errorf("an access check after the others have ended: %d, %v", status, err)
	}
}
