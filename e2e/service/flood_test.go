package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// TestFlood sends bad input for a few seconds, beside slow clients and a good one:
// bad input is answered with 4xx, slow clients are hung up on, the good one does
// not notice. TestFloodSoak (make soak-flood) does the same for longer and
// measures.
func TestFlood(t *testing.T) {
	t.Parallel()
	w := harness.NewWeirOn(t, "sqlite") // the store suite has both
	w.Start()
	f := newFlood(t, w, load{conns: 10, rate: 100, slow: 2 * len(slowKinds())})
	f.run(5*time.Second, false)
	w.Stop()
}

const goodRate = 20 // requests a second

// load is how much a flood sends.
type load struct {
	conns int
	rate  int // requests a second, of all connections together
	slow  int // slow clients
}

// flood is a weir that is sent too much.
type flood struct {
	t    *testing.T
	w    *harness.Weir
	load load
	addr string
	bad  []badRequest
	slow *slowClients

	sent int // requests of the flood, after run

	mu        sync.Mutex
	responses map[string]map[int]int // kind → status → how often; 0 = no response
	wrong     []string               // responses that are not 4xx
}

// newFlood makes what the flood needs to exist, and the requests that it consists of.
func newFlood(t *testing.T, w *harness.Weir, l load) *flood {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &flood{t: t, w: w, load: l, addr: strings.TrimPrefix(w.URL, "http://"), responses: map[string]map[int]int{}}
	b := &bad{random: rand.New(rand.NewPCG(seed, 0)), host: f.addr, key: w.Key, ids: map[string]string{}}
	long := strings.Repeat("a long name ", 500)
	f.parallel(1000, func(i int) error {
		return f.send("POST", "/api/stream", map[string]any{"name": fmt.Sprint(i, long)}, nil)
	})
	for name, path := range map[string]string{"stream": "/api/stream", "webhook": "/api/webhook", "asset": "/api/asset/upload/url"} {
		body := map[string]any{
			"stream": map[string]any{"name": "x"}, "asset": map[string]any{"name": "x", "url": "https://example.com/x"},
			"webhook": map[string]any{"name": "x", "url": "https://example.com/x", "events": []string{"stream.started"}},
		}[name]
		var made struct {
			ID    string
			Asset struct{ ID string }
		}
		w.Must("POST", path, body, &made)
		b.ids[name] = made.ID + made.Asset.ID
	}
	b.cursor = f.secondPage()
	f.bad = b.requests(3000)
	f.slow = &slowClients{addr: f.addr, key: w.Key, list: "/api/stream?limit=1000"}
	return f
}

var cursorInLink = regexp.MustCompile(`[?&]cursor=([^&>]+)`)

// secondPage returns the cursor of a second page.
func (f *flood) secondPage() string {
	f.t.Helper()
	response, err := f.ask("GET", "/api/stream?limit=1", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	link := cursorInLink.FindStringSubmatch(response.Header.Get("Link"))
	if link == nil {
		f.t.Fatalf("no cursor in %q", response.Header.Get("Link"))
	}
	cursor, err := url.QueryUnescape(link[1])
	if err != nil {
		f.t.Fatal(err)
	}
	return cursor
}

// parallel does something n times, a few at once.
func (f *flood) parallel(n int, do func(i int) error) {
	f.t.Helper()
	todo := make(chan int, n)
	for i := range n {
		todo <- i
	}
	close(todo)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range todo {
				if err := do(i); err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func (f *flood) ask(method, path string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if body == nil {
		text = nil
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.w.URL+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.w.Key)
	return http.DefaultClient.Do(r)
}

// send is ask for a request that must succeed; the response is read into v.
func (f *flood) send(method, path string, body, v any) error {
	response, err := f.ask(method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, harness.Tail(string(text)))
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(text, v)
}

// run floods weir and looks at what it does. It returns how long the good client
// waited for each response. Slow clients are watched to their end, the idle ones
// among them only when there is the timeout for that.
func (f *flood) run(long time.Duration, patient bool) (waited []goodReply) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), long)
	defer cancel()
	waitSlow := f.slow.start(ctx, f.load.slow, patient)
	var wg sync.WaitGroup
	for i := range f.load.conns {
		wg.Go(func() { f.attack(ctx, i) })
	}
	waited = f.good(ctx)
	wg.Wait()
	f.check(long)
	waitSlow()
	f.checkSlow(patient)
	return waited
}

// attack sends the share of one connection; some come from an address that also
// tries wrong keys.
func (f *flood) attack(ctx context.Context, i int) {
	c := &attacker{addr: f.addr}
	if i%10 == 0 {
		c.from, c.wrongKey = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}, true
	}
	defer c.close()
	select { // the connections take turns
	case <-ctx.Done():
		return
	case <-time.After(time.Duration(i) * time.Second / time.Duration(f.load.rate)):
	}
	tick := time.NewTicker(time.Second * time.Duration(f.load.conns) / time.Duration(f.load.rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := f.bad[(i+n*f.load.conns)%len(f.bad)]
		if c.wrongKey && n%2 == 0 {
			r = badRequest{kind: "wrong key", method: "GET", head: fmt.Appendf(nil, "GET /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong-%d\r\n\r\n", n)}
		}
		status, text, err := c.send(ctx, r)
		if ctx.Err() != nil && err != nil {
			return
		}
		f.note(r, status, text)
	}
}

func (f *flood) note(r badRequest, status int, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.responses[r.kind] == nil {
		f.responses[r.kind] = map[int]int{}
	}
	f.responses[r.kind][status]++
	if status != 0 && (status < 400 || status > 499) || len(text) > 64<<10 {
		f.wrong = append(f.wrong, fmt.Sprintf("%s: %q %q: %d %q", r.kind, r.head[:min(len(r.head), 300)], r.body[:min(len(r.body), 300)], status, text[:min(len(text), 300)]))
	}
}

// attacker is one connection of the flood, made anew when weir closes it.
type attacker struct {
	addr     string
	from     net.Addr
	wrongKey bool
	conn     net.Conn
	reader   *bufio.Reader
}

func (c *attacker) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// send sends a request and returns the response; 0 = there was none.
func (c *attacker) send(ctx context.Context, r badRequest) (status int, text string, err error) {
	if c.conn == nil {
		d := net.Dialer{LocalAddr: c.from}
		if c.conn, err = d.DialContext(ctx, "tcp", c.addr); err != nil {
			c.conn = nil
			return 0, "", err
		}
		c.reader = bufio.NewReader(c.conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(wait.Limit))
	var wg sync.WaitGroup
	defer wg.Wait()
	conn := c.conn
	write := func() {
		buffers := net.Buffers{r.head, r.body}
		_, _ = buffers.WriteTo(conn) // weir may hang up before it has read all
	}
	if len(r.body) < 64<<10 {
		write()
	} else {
		wg.Go(write) // the response comes while we still write
	}
	response, err := http.ReadResponse(c.reader, &http.Request{Method: r.method})
	if err != nil {
		c.close()
		return 0, "", err
	}
	all, err := io.ReadAll(response.Body)
	if response.Close || r.closes || err != nil {
		c.close()
	}
	return response.StatusCode, string(all), nil
}

// goodReply is how long the good client waited for the response to a request.
type goodReply struct {
	request string
	took    time.Duration
}

// goodRequests are what the good client sends in turn.
var goodRequests = []string{"get", "list", "create", "change"}

// good is a client that does nothing wrong. It sends its requests at their time,
// whether or not the former ones were answered.
func (f *flood) good(ctx context.Context) (waited []goodReply) {
	f.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / goodRate)
	defer tick.Stop()
	var stream struct{ ID string }
	if err := f.send("POST", "/api/stream", map[string]any{"name": "good"}, &stream); err != nil {
		f.t.Fatal(err)
	}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			wg.Wait()
			return waited
		case <-tick.C:
		}
		wg.Go(func() {
			request := goodRequests[i%len(goodRequests)]
			began := time.Now()
			err := f.goodRequest(request, i, stream.ID)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, goodReply{request, took})
			if err != nil {
				f.t.Errorf("a good request went wrong: %v", err)
			}
		})
	}
}

func (f *flood) goodRequest(request string, i int, id string) error {
	var got struct{ ID, Name string }
	name := fmt.Sprintf("good %d", i)
	switch request {
	case "get":
		if err := f.send("GET", "/api/stream/"+id, nil, &got); err != nil || got.ID == id {
			return err
		}
	case "list":
		var page []struct{ ID string }
		filters := url.QueryEscape(`[{"id":"id","value":"` + id + `"}]`)
		if err := f.send("GET", "/api/stream?filters="+filters, nil, &page); err != nil || len(page) == 1 && page[0].ID == id {
			return err
		}
	case "create":
		if err := f.send("POST", "/api/stream", map[string]any{"name": name}, &got); err != nil || got.Name == name {
			return err
		}
	case "change":
		return f.send("PATCH", "/api/stream/"+id, map[string]any{"name": name}, nil)
	}
	return fmt.Errorf("%s %s got %+v", request, id, got)
}

// check looks at the responses of the flood, and whether weir still stands.
func (f *flood) check(long time.Duration) {
	f.t.Helper()
	sent, answered := 0, 0
	for _, kind := range slices.Sorted(maps.Keys(f.responses)) {
		f.t.Logf("%-20s %v", kind, f.responses[kind])
		for status, n := range f.responses[kind] {
			sent += n
			if status != 0 {
				answered += n
			}
		}
	}
	f.t.Logf("%d requests in %v, %d answered", sent, long, answered)
	f.sent = sent
	if answered < sent*9/10 {
		f.t.Errorf("only %d of %d requests were answered", answered, sent)
	}
	for _, wrong := range f.wrong[:min(len(f.wrong), 20)] {
		f.t.Errorf("not a 4xx, or too long: %s", wrong)
	}
	select {
	case <-f.w.Exited:
		f.t.Fatalf("weir ended:\n%s", harness.Tail(f.w.Output.String()))
	default:
	}
	if status, _ := f.w.Do("GET", "/readyz?for=api", nil); status != http.StatusOK {
		f.t.Errorf("weir is not ready any more: %d", status)
	}
	for line := range strings.Lines(f.w.Output.String()) {
		if strings.Contains(line, "panic") || strings.Contains(line, `"level":"ERROR"`) {
			f.t.Errorf("weir says: %s", line)
			break
		}
	}
}

// checkSlow looks whether weir hung up on every slow client in time.
func (f *flood) checkSlow(patient bool) {
	f.t.Helper()
	for _, kind := range slowKinds() {
		if kind.name == "idle" && !patient {
			continue
		}
		f.t.Logf("%-24s %d times hung up on, after at most %.1f s", kind.name, f.slow.closed[kind.name], f.slow.longest[kind.name].Seconds())
		if f.slow.closed[kind.name] == 0 {
			f.t.Errorf("%s: weir hung up on none", kind.name)
		}
	}
	for err, n := range f.slow.errs {
		f.t.Errorf("%d times %s", n, err)
	}
}
