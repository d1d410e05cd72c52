package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/store"
	"weir/internal/wait"
	words "weir/internal/weir"
)

const (
	// webhookSlots is how many deliveries weir makes at once, so at most so many
	// can be cut off by a kill and be repeated.
	webhookSlots = 64
	// versions is how often each resource of the test is changed.
	versions = 5
)

// TestKill kills weir again and again while it delivers events to two webhooks,
// and looks whether each event of each change that was answered has arrived at
// both, in the order of the changes. WEIR_E2E_DELIVERIES says how many there are;
// `make soak-webhooks` runs it with 10,000, on the binary as it is shipped.
func TestKill(t *testing.T) {
	t.Parallel()
	deliveries, binary := 500, ""
	if text := os.Getenv("WEIR_E2E_DELIVERIES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 {
			t.Fatalf("WEIR_E2E_DELIVERIES: want a number of at least 100, got %q", text)
		}
		deliveries, binary = n, harness.Shipped(t)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Binary = binary
		k := &killing{t: t, w: w, to: newReceiver(t), random: rand.New(rand.NewPCG(seed, 0))}
		k.run(deliveries)
	})
}

// killing is a weir that is killed while it works.
type killing struct {
	t      *testing.T
	w      *harness.Weir
	to     *receiver
	store  *store.Store
	owner  words.User
	hooks  []string // ids
	random *rand.Rand

	base         atomic.Pointer[string] // where weir is now
	mu           sync.Mutex
	acknowledged map[string]bool // changes that were answered with 2xx, by the name that they gave
	kills        int
	resumed      []time.Duration // from a restart until something that was cut off arrived again
}

func (k *killing) run(deliveries int) {
	k.restart()
	k.store = k.w.OpenStore()
	var err error
	if k.owner, err = k.store.FirstUser(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	k.acknowledged = map[string]bool{}
	for _, name := range []string{"one", "two"} {
		var hook struct{ ID string }
		k.w.Must("POST", "/api/webhook", map[string]any{
			"name": name, "url": k.to.url + "/" + name, "events": []string{"asset.created", "asset.updated"}, "sharedSecret": "s",
		}, &hook)
		k.hooks = append(k.hooks, hook.ID)
	}
	assets := seedAssets(k.t, k.store, deliveries/len(k.hooks)/versions)
	began := time.Now()
	stopWriting := k.write(assets)
	k.killAll(deliveries)
	stopWriting()
	events := k.events()
	k.arrive(events)
	took := time.Since(began)
	k.check(events)
	k.w.Stop() // and with it what the race detector has to say
	k.t.Logf("%d events to %d webhooks in %.1f s, %d kills, %d repeats; after a restart the first of what was cut off arrived again within: %v",
		len(events), len(k.hooks), took.Seconds(), k.kills, len(k.to.all())-len(events)*len(k.hooks), k.resumed)
}

func (k *killing) restart() {
	k.t.Helper()
	k.w.Start("--max-pending-tasks", "1000000")
	k.base.Store(new(k.w.URL))
}

// seedAssets writes assets that are ready: only those can be changed over the API,
// and only media engines make them.
func seedAssets(t *testing.T, st *store.Store, n int) []string {
	t.Helper()
	ctx, now := t.Context(), words.At(time.Now())
	owner, err := st.FirstUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, n)
	err = st.Tx(ctx, func(tx *store.Tx) error {
		for i := range ids {
			id := words.NewID()
			ids[i] = id
			if err := tx.CreateAsset(ctx, &words.Asset{
				ID: id, Name: "seeded", PlaybackID: words.NewPlaybackID(id), UserID: owner.ID, ProjectID: owner.DefaultProjectID,
				CreatedAt: now, Source: words.AssetSource{Type: words.SourceDirectUpload},
				Status: words.AssetStatus{Phase: words.AssetReady, UpdatedAt: now},
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// write changes the assets, several at a time and each in order, while weir is
// killed and started. The returned function waits for the end of it.
func (k *killing) write(assets []string) (wait func()) {
	ctx, cancel := context.WithCancel(k.t.Context())
	todo := make(chan string)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for asset := range todo {
				for version := range versions {
					k.change(ctx, asset, version)
				}
			}
		})
	}
	wg.Go(func() {
		defer close(todo)
		for _, asset := range assets {
			select {
			case todo <- asset:
			case <-ctx.Done():
				return
			}
		}
	})
	k.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return wg.Wait
}

// change changes an asset, again and again until that is answered.
func (k *killing) change(ctx context.Context, asset string, version int) {
	name := fmt.Sprintf("%s/%d", asset, version)
	k.send(ctx, http.MethodPatch, "/api/asset/"+asset, name, map[string]string{"name": name})
}

// create makes an asset in the same way, one that waits for its bytes: work on it
// would make events of its own, at any time.
func (k *killing) create(ctx context.Context) {
	name := words.NewID()
	k.send(ctx, http.MethodPost, "/api/asset/request-upload", name, map[string]string{"name": name})
}

// send sends a request until it is answered; the event of it has the name.
func (k *killing) send(ctx context.Context, method, path, name string, body map[string]string) {
	for ctx.Err() == nil {
		status, err := k.try(ctx, method, path, body)
		switch {
		case err != nil: // weir is dead, or died before it could answer
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		case status >= 300:
			k.t.Errorf("%s %s: %d", method, path, status)
		default:
			k.mu.Lock()
			k.acknowledged[name] = true
			k.mu.Unlock()
		}
		return
	}
}

func (k *killing) try(ctx context.Context, method, path string, body map[string]string) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, *k.base.Load()+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+k.w.Key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// killAll kills weir at random points of the way, in the three ways, each twice,
// and starts it again each time.
func (k *killing) killAll(deliveries int) {
	k.t.Helper()
	ways := []func(){k.killAnytime, k.killHolding, k.killAfterResponse, k.killAnytime, k.killHolding, k.killAfterResponse}
	points := make([]int, len(ways))
	for i := range points {
		points[i] = 1 + k.random.IntN(deliveries*9/10)
	}
	slices.Sort(points)
	for i, way := range ways {
		k.wait("the next point", func(arrivals []arrival, _ int) bool { return len(arrivals) >= points[i] })
		way()
		k.restart()
	}
}

func (k *killing) kill() {
	k.w.Kill()
	k.kills++
}

// wait waits as long as something more arrives.
func (k *killing) wait(what string, done func(arrivals []arrival, held int) bool) {
	k.t.Helper()
	reached := false
	defer func() {
		if !reached {
			k.explain()
		}
	}()
	wait.Progress(k.t, func() error { return k.to.check(what, done) })
	reached = true
}

// explain prints what weir and the database say about deliveries that do not arrive.
func (k *killing) explain() {
	out := k.t.Output()
	ctx := context.WithoutCancel(k.t.Context())
	left, err := k.store.PendingDeliveries(ctx)
	fmt.Fprintf(out, "after %d kills %d are left (%v)\n", k.kills, left, err)
	due, err := k.store.DueWebhooks(ctx)
	fmt.Fprintf(out, "due: %+v (%v)\n", due, err)
	for _, id := range k.hooks {
		hook, err := k.store.Webhook(ctx, id)
		status, _ := json.Marshal(hook.Status)
		fmt.Fprintf(out, "webhook %s: %s (%v)\n", id, status, err)
	}
	fmt.Fprintf(out, "weir says:\n%s\nits goroutines:\n%s\n", harness.Tail(harness.WithoutRequests(k.w.Output.String())), k.w.Dump())
}

// killAnytime kills weir while it does whatever it does.
func (k *killing) killAnytime() { k.kill() }

// killHolding kills weir while deliveries wait for responses of the receiver, and sees to
// it that those are taken up again.
func (k *killing) killHolding() {
	k.t.Helper()
	before := len(k.to.all())
	k.to.holdResponses()
	assets := seedAssets(k.t, k.store, 8) // so that there is something to hold, even at the end
	for _, asset := range assets {
		k.change(k.t.Context(), asset, 0)
	}
	// On a busy machine the first of them time out, and then weir sends one at a time to each webhook.
	k.wait("some are held", func(_ []arrival, held int) bool { return held >= len(k.hooks) })
	k.kill()
	k.wait("all connections are closed", func(_ []arrival, held int) bool { return held == 0 }) // the kernel has told the receiver
	cutOff := map[string]bool{}
	arrivals := k.to.all()
	for _, a := range arrivals[before:] {
		cutOff[a.hook+a.event] = true
	}
	// What arrived before and was answered may be among them, when it arrived
	// between the look at the receiver and the hold; a repeat of it counts as well.
	k.to.release()
	again := time.Now()
	k.restart()
	k.wait("what was cut off arrives again", func(now []arrival, _ int) bool {
		i := slices.IndexFunc(now[len(arrivals):], func(a arrival) bool { return cutOff[a.hook+a.event] })
		if i < 0 {
			return false
		}
		k.resumed = append(k.resumed, now[len(arrivals)+i].at.Sub(again).Round(time.Millisecond))
		return true
	})
	k.kill() // and once more, while it takes up
}

// killAfterResponse kills weir the moment it has answered a change.
func (k *killing) killAfterResponse() {
	k.t.Helper()
	asset := seedAssets(k.t, k.store, 1)[0]
	k.create(k.t.Context())
	k.change(k.t.Context(), asset, 0)
	k.kill()
}

// events returns every event that the webhooks want.
func (k *killing) events() []words.Event {
	k.t.Helper()
	var wanted []words.Event
	for after := int64(0); ; {
		page, err := k.store.Events(k.t.Context(), k.owner.ID, k.owner.DefaultProjectID, after, 1000)
		if err != nil {
			k.t.Fatal(err)
		}
		if len(page) == 0 {
			return wanted
		}
		for _, e := range page {
			if e.Name == words.AssetCreated || e.Name == words.AssetUpdated {
				wanted = append(wanted, e)
			}
			after = e.Seq
		}
	}
}

// arrive waits until every event has arrived at every webhook, and until weir
// knows it.
func (k *killing) arrive(events []words.Event) {
	k.t.Helper()
	k.wait("everything arrives", func(arrivals []arrival, _ int) bool {
		if len(arrivals) < len(events)*len(k.hooks) {
			return false
		}
		seen := map[string]bool{}
		for _, a := range arrivals {
			seen[a.hook+a.event] = true
		}
		for _, e := range events {
			for _, hook := range k.hooks {
				if !seen[hook+e.ID] {
					return false
				}
			}
		}
		return true
	})
	harness.Eventually(k.t, func() error {
		left, err := k.store.PendingDeliveries(k.t.Context())
		if err == nil && left > 0 {
			err = fmt.Errorf("%d deliveries are left although all have arrived", left)
		}
		return err
	})
}

// check compares what arrived with what was written and answered.
func (k *killing) check(events []words.Event) {
	k.t.Helper()
	resource, number := map[string]string{}, map[string]int64{}
	for _, e := range events {
		resource[e.ID], number[e.ID] = e.Resource, e.Seq
	}
	arrived := map[string]bool{} // by webhook and name
	first := map[string]bool{}   // by webhook and event
	last := map[string]int64{}   // by webhook and resource, the number of the last new event
	repeats := 0
	for _, a := range k.to.all() {
		arrived[a.hook+a.name] = true
		if number[a.event] == 0 {
			k.t.Errorf("event %s arrived and was never written", a.event)
		}
		if first[a.hook+a.event] {
			repeats++
			continue
		}
		first[a.hook+a.event] = true
		line := a.hook + resource[a.event]
		if number[a.event] < last[line] {
			k.t.Errorf("event %s of %s arrived after a later one", a.event, resource[a.event])
		}
		last[line] = number[a.event]
	}
	for name := range k.acknowledged {
		for _, hook := range k.hooks {
			if !arrived[hook+name] {
				k.t.Errorf("change %s was answered and its event never arrived at webhook %s", name, hook)
			}
		}
	}
	if limit := k.kills * webhookSlots; repeats > limit {
		k.t.Errorf("%d repeats; only what was being sent at a kill may be repeated, which is at most %d", repeats, limit)
	}
}
