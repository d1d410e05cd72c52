package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/store/pgtest"
)

// rig is a service on three nodes, and all who use it.
type rig struct {
	t       *testing.T
	binary  string // "" = that of the tests
	pair    *pgtest.Pair
	store   s3test.Bucket
	proxy   *toxiproxy
	nodes   []*node
	streams []*stream
	hook    *receiver
	client  *http.Client // of viewers who are in
	entry   *balancer

	in, new tally
	films   tally // new viewers of what is stored
	ledger  *ledger
	viewers []*viewer
	writers []*writer
	access  *access
	picture *picture      // nil = no browser
	turns   time.Duration // how long nodes are looked at after a fault
	limit   time.Duration // of waits for what a fault may have broken for ever
	began   time.Time
	stop    context.CancelFunc
	all     sync.WaitGroup
}

// stream is one on air.
type stream struct {
	id, key, playback string
	encoder           *encoder
	epoch             string
}

// newRig starts everything. at says which nodes viewers are at who are with one node all the time.
func newRig(t *testing.T, binary string, browser bool, turns, limit time.Duration, at []int) *rig {
	t.Helper()
	r := &rig{
		t: t, binary: binary, turns: turns, limit: limit, store: s3test.Start(t), proxy: startToxiproxy(t), hook: newReceiver(t),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		ledger: &ledger{sums: map[string][32]byte{}, from: map[string]string{}},
	}
	r.pair = pgtest.StartPair(t)
	var bases []string
	for i := range nodeNames {
		n := r.startNode(t, i)
		r.nodes, bases = append(r.nodes, n), append(bases, n.URL)
	}
	// A node that declares another one dead deletes its row.
	if err := r.pair.Exec(`CREATE TABLE rig_dead (id TEXT); CREATE FUNCTION rig_died() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO rig_dead VALUES (OLD.id); RETURN OLD; END $$;
		CREATE TRIGGER rig_died AFTER DELETE ON node FOR EACH ROW EXECUTE FUNCTION rig_died()`); err != nil {
		t.Fatal(err)
	}
	r.entry = newBalancer(t, bases)
	a := r.nodes[0]
	a.Must("POST", "/api/webhook", map[string]any{"name": "hook", "url": r.hook.url, "events": []string{"stream.started", "stream.idle"}}, nil)
	r.access = newAccess(r)
	r.goOnAir()
	r.watch(browser, at)
	return r
}

// goOnAir starts two encoders, the first at the first node, the second at the second.
func (r *rig) goOnAir() {
	r.t.Helper()
	for i := range 2 {
		var made struct{ ID, StreamKey, PlaybackID string }
		r.nodes[0].Must("POST", "/api/stream", map[string]any{
			"name": "on air", "record": true, "profiles": []any{}, "recordingSpec": map[string]any{"profiles": []any{}},
		}, &made)
		e := &encoder{t: r.t, film: film(r.t).Path, key: made.StreamKey}
		for j := range r.nodes {
			e.nodes = append(e.nodes, r.nodes[(i+j)%len(r.nodes)].rtmp)
		}
		r.streams = append(r.streams, &stream{id: made.ID, key: made.StreamKey, playback: made.PlaybackID, encoder: e})
	}
	for _, s := range r.streams {
		s.encoder.start()
	}
	for _, s := range r.streams {
		for _, n := range r.nodes {
			harness.Eventually(r.t, func() error {
				g := fetch(r.t.Context(), http.DefaultClient, n.URL+"/hls/"+s.playback+"/source/index.m3u8")
				if g.status != http.StatusOK || !strings.Contains(string(g.body), "#EXTINF") {
					return fmt.Errorf("node %s: %d %s %v; the encoder: %v", n.name, g.status, g.body, g.err, s.encoder)
				}
				return nil
			})
		}
		harness.Eventually(r.t, func() error { return r.hook.has(s.id, "stream.started", 1) })
	}
}

// watch starts ten viewers, newcomers and writers.
func (r *rig) watch(browser bool, at []int) {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	r.stop = stop
	r.t.Cleanup(func() {
		stop()
		r.all.Wait()
		r.client.CloseIdleConnections()
	})
	for i, s := range r.streams {
		for _, j := range at {
			r.viewers = append(r.viewers, r.viewer(fmt.Sprintf("stream %d at %s", i, r.nodes[j].name), r.nodes[j].URL, s.playback, "source"))
		}
		for len(r.viewers) < 4*(i+1) {
			r.viewers = append(r.viewers, r.viewer(fmt.Sprintf("stream %d at the balancer", i), r.entry.url, s.playback, "source"))
		}
		r.viewers = append(r.viewers, r.viewer(fmt.Sprintf("audio of %d at the balancer", i), r.entry.url, s.playback, "audio"))
	}
	for _, v := range r.viewers {
		r.all.Go(func() { v.watch(ctx) })
	}
	for _, j := range at {
		n := r.nodes[j]
		r.all.Go(func() { r.comeNew(ctx, "node "+n.name, n.URL) })
		r.all.Go(func() { r.access.ask(ctx, n) })
	}
	r.all.Go(func() { r.comeNew(ctx, "the balancer", r.entry.url) })
	for _, n := range r.nodes {
		var made struct{ ID string }
		n.Must("POST", "/api/stream", map[string]any{"name": "written to"}, &made)
		w := &writer{n: n, stream: made.ID, failed: map[int]int{}}
		r.writers = append(r.writers, w)
		r.all.Go(func() { w.run(ctx) })
	}
	for _, v := range r.viewers {
		harness.Eventually(r.t, func() error {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.last.IsZero() {
				return fmt.Errorf("%s has seen nothing: %v", v.name, v.tally)
			}
			return nil
		})
	}
	if browser {
		r.picture = r.show(ctx, r.streams[0])
	}
}

// comeNew lets viewers come who were not there before, one after the other.
func (r *rig) comeNew(ctx context.Context, who, base string) {
	for ctx.Err() == nil {
		r.newcomer(ctx, &r.films, "new at "+who+": a film:", base+"/hls/"+r.access.open+"/index.m3u8")
		for _, s := range r.streams {
			r.newcomer(ctx, &r.new, "new at "+who+": a stream:", base+"/hls/"+s.playback+"/index.m3u8")
		}
		r.newcomer(ctx, &r.films, "new at "+who+" with a JWT:", base+"/hls/"+r.access.gated+"/index.m3u8?jwt="+url.QueryEscape(r.access.permit(time.Hour)))
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// report is what came of a fault.
type report struct {
	fault                string
	in, new, films       string
	failed               int   // responses, of all viewers
	missing              int   // 404 of names in playlists
	none                 int64 // requests of the balancer that found no node
	access               []string
	events               []string // that were false
	dead                 []string
	taken                []string // streams that changed their owner
	writes               string   // when the API took writes again, after the end of the fault
	refused              string   // writes, by status
	gone                 []string // goroutines
	still, page          time.Duration
	lost, ends, wrong    int // frames, in recordings
	unseen               int // frames that a viewer did not get, the worst of them
	names, fell          []string
	failures, complaints []string
}

// fail lets a fault happen, and looks what viewers and nodes make of it.
func (r *rig) fail(f fault) (p report) {
	r.t.Helper()
	p.fault = f.name
	var before []map[string]int
	for _, n := range r.nodes {
		before = append(before, n.steady(r.t, 4))
	}
	r.epochs()
	if err := r.pair.Exec("DELETE FROM rig_dead"); err != nil {
		r.t.Fatal(err)
	}
	told := map[*stream]int{}
	for _, s := range r.streams {
		told[s] = len(r.hook.of(s.id))
	}
	r.in.reset()
	r.new.reset()
	r.films.reset()
	r.access.begin()
	for _, v := range r.viewers {
		v.mark()
	}
	if r.picture != nil {
		r.picture.mark()
	}
	r.began = time.Now()
	f.do(r)
	ended := time.Now()
	r.access.end()
	r.t.Logf("%s lasted %v", f.name, ended.Sub(r.began))
	var back time.Duration
	for _, w := range r.writers {
		if w.n == r.killed(f) {
			continue
		}
		if err := r.eventually(func() error {
			at := w.since(ended)
			if at.IsZero() {
				return fmt.Errorf("node %s takes no writes: %v", w.n.name, w.failed)
			}
			back = max(back, at.Sub(ended))
			return nil
		}); err != nil {
			p.failures = append(p.failures, err.Error())
			back = r.limit
		}
	}
	p.writes = fmt.Sprintf("%.1f s", back.Seconds())
	r.t.Logf("%s: the API takes writes", f.name)
	p.failures = append(p.failures, r.settle(ended)...)
	for _, v := range r.viewers {
		v.unmark()
		p.still = max(p.still, v.still)
	}
	if r.picture != nil {
		p.page = r.picture.unmark()
	}
	p.taken = r.epochs()
	p.gone = r.backAgain(f, before)
	for i, s := range r.streams {
		if more := r.hook.of(s.id)[told[s]:]; len(more) > 0 {
			p.events = append(p.events, fmt.Sprintf("stream %d: %s", i, strings.Join(more, " ")))
		}
	}
	var err error
	if p.dead, err = r.pair.Query("SELECT id FROM rig_dead"); err != nil {
		p.failures = append(p.failures, err.Error())
	}
	p.in, p.new, p.films, p.missing = r.in.String(), r.new.String(), r.films.String(), r.in.missing
	p.failed, p.complaints = r.in.failed()+r.new.failed(), append(r.in.said(), r.new.said()...)
	if !f.noFilms {
		p.failed, p.complaints = p.failed+r.films.failed(), append(p.complaints, r.films.said()...)
	}
	p.access, p.none = r.access.wrong(), r.entry.none.Swap(0)
	failed := map[int]int{}
	for _, w := range r.writers {
		for status, n := range w.refused() {
			failed[status] += n
		}
	}
	p.refused = strings.TrimPrefix(fmt.Sprint(failed), "map")
	return p
}

// settle waits until what a fault leaves behind has shown: every viewer has seen something new, and sweeps of
// nodes and streams have had their turns.
func (r *rig) settle(ended time.Time) (failures []string) {
	r.t.Helper()
	harness.Eventually(r.t, func() error {
		if since := time.Since(ended); since < r.turns {
			return fmt.Errorf("it is over for %v", since)
		}
		return nil
	})
	shown := time.Now()
	for _, v := range r.viewers {
		if err := r.eventually(func() error {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.last.Before(shown) {
				return fmt.Errorf("%s stands still since %v; %v; the encoder: %v", v.name, v.last, v.tally.examples, r.streams[0].encoder)
			}
			return nil
		}); err != nil {
			failures = append(failures, err.Error())
		}
	}
	return failures
}

// eventually is harness.Eventually for what a fault may have broken for ever. Once something was, it does
// not wait for anything else.
func (r *rig) eventually(check func() error) (err error) {
	for end := time.Now().Add(r.limit); ; time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
		if time.Now().After(end) {
			r.limit = 0
			return err
		}
	}
}

// backAgain returns which goroutines do not come back.
func (r *rig) backAgain(f fault, before []map[string]int) (list []string) {
	r.t.Helper()
	leader, limit := ofLeader(before), r.limit
	defer func() { r.limit = limit }()
	_ = r.eventually(func() error {
		list = nil
		var now []map[string]int
		for _, n := range r.nodes {
			count, err := n.loops(r.t.Context())
			if err != nil && n != r.killed(f) {
				list = append(list, err.Error())
			}
			now = append(now, count)
		}
		list = append(list, gone(leader, ofLeader(now))...)
		for i, n := range r.nodes {
			if n == r.killed(f) {
				continue
			}
			for _, what := range gone(before[i], now[i]) {
				list = append(list, n.name+": "+what)
			}
		}
		if len(list) > 0 {
			return errors.New(strings.Join(list, "; "))
		}
		return nil
	})
	slices.Sort(list)
	return list
}

// killed returns the node that a fault leaves dead; nil = none.
func (r *rig) killed(f fault) *node {
	if f.killed == 0 {
		return nil
	}
	return r.nodes[f.killed-1]
}

// epochs notes who owns the streams, and returns which have changed since the last time.
func (r *rig) epochs() (changed []string) {
	r.t.Helper()
	for i, s := range r.streams {
		now, err := r.pair.Query("SELECT node || ' ' || epoch FROM live WHERE stream_id = '" + s.id + "'")
		if err != nil || len(now) != 1 {
			r.t.Fatalf("the owner of stream %d: %q, %v", i, now, err)
		}
		if s.epoch != "" && s.epoch != now[0] {
			changed = append(changed, fmt.Sprintf("stream %d", i))
		}
		s.epoch = now[0]
	}
	return changed
}

// finish ends the streams and reads their recordings.
func (r *rig) finish(p *report) {
	r.t.Helper()
	for _, s := range r.streams {
		s.encoder.stop()
	}
	at := r.nodes[1]
	for i, s := range r.streams {
		err := r.eventually(func() error {
			status, text := at.Do("DELETE", "/api/stream/"+s.id+"/terminate", nil)
			if status >= 300 && status != http.StatusConflict && status != http.StatusNotFound {
				return fmt.Errorf("end stream %d: %d %s", i, status, text)
			}
			return nil
		})
		err = errors.Join(err, r.eventually(func() error {
			now := r.hook.of(s.id)
			if last := now[len(now)-1]; last != "stream.idle" || len(now)%2 != 0 {
				return fmt.Errorf("stream %d has ended, and its events are %q", i, now)
			}
			return nil
		}))
		if err != nil {
			p.failures = append(p.failures, err.Error())
		}
	}
	r.stop()
	r.all.Wait()
	for i, s := range r.streams {
		middle, ends, wrong, err := r.recording(at, s)
		if err != nil {
			p.failures = append(p.failures, fmt.Sprintf("recording of stream %d: %v", i, err))
		}
		p.lost, p.ends, p.wrong = p.lost+middle, p.ends+ends, p.wrong+wrong
	}
	for _, v := range r.viewers {
		if len(v.frames) > 0 {
			i := slices.IndexFunc(r.streams, func(s *stream) bool { return strings.Contains(v.path, s.playback) })
			middle, _, _ := missing(v.frames, r.streams[i].encoder.connections(), v.frames[0])
			p.unseen = max(p.unseen, middle)
		}
		p.fell = append(p.fell, v.fell...)
	}
	p.names = r.ledger.conflicts
}

// recording waits for the recording of a stream and returns what is missing in it.
func (r *rig) recording(at *node, s *stream) (middle, ends, wrong int, err error) {
	r.t.Helper()
	var sessions []struct{ ID, RecordingStatus, RecordingURL string }
	err = r.eventually(func() error {
		status, text := at.Do("GET", "/api/stream/"+s.id+"/sessions?record=true", nil)
		if err := json.Unmarshal(text, &sessions); err != nil || status != http.StatusOK {
			return fmt.Errorf("its sessions: %d %s, %w", status, text, err)
		}
		for _, one := range sessions {
			if one.RecordingStatus == "waiting" {
				return fmt.Errorf("the recordings are %+v", sessions)
			}
		}
		if len(sessions) == 0 {
			return errors.New("there is no recording")
		}
		return nil
	})
	if err != nil {
		return 0, 0, 0, err
	}
	var numbers []int
	for _, one := range slices.Backward(sessions) { // the newest is the first
		if one.RecordingStatus != "ready" {
			err = fmt.Errorf("the recordings are %+v", sessions)
			continue
		}
		list := strings.Replace(one.RecordingURL, "index.m3u8", "source/index.m3u8", 1)
		if unread := r.eventually(func() error {
			if g := fetch(r.t.Context(), http.DefaultClient, list); g.err != nil || g.status != http.StatusOK {
				return fmt.Errorf("%s: %d %s %w", list, g.status, g.body, g.err)
			}
			return nil
		}); unread != nil {
			return 0, 0, 0, unread
		}
		for _, f := range harness.Frames(r.t, list, false) {
			numbers = append(numbers, f.Number)
		}
	}
	if err == nil && len(sessions) > 1 {
		err = fmt.Errorf("there are %d sessions of one broadcast", len(sessions))
	}
	middle, ends, wrong = missing(numbers, s.encoder.connections(), 0)
	return middle, ends, wrong, err
}
