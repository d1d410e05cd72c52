package faults

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/e2e/harness"
	"weir/internal/hls"
)

// tally counts what viewers of a kind got.
type tally struct {
	mu       sync.Mutex
	requests int
	bad      map[string]int // 5xx by status, and "none": no response, or one that broke off
	missing  int            // 404 for what a playlist names
	examples []string
}

// got notes a response.
func (c *tally) got(what string, g got) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	kind := ""
	switch {
	case g.err != nil:
		kind = "none"
	case g.status >= 500:
		kind = fmt.Sprint(g.status)
	case g.status == http.StatusNotFound:
		c.missing++
		return
	default:
		return
	}
	if c.bad == nil {
		c.bad = map[string]int{}
	}
	c.bad[kind]++
	if len(c.examples) < 5 {
		c.examples = append(c.examples, fmt.Sprintf("%s after %v: %d %v %.200s", what, g.took.Round(time.Millisecond), g.status, g.err, g.body))
	}
}

// String says what was bad.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bad) == 0 {
		return "0"
	}
	var kinds []string
	for kind, n := range c.bad {
		kinds = append(kinds, fmt.Sprintf("%d×%s", n, kind))
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " ")
}

// failed is how many responses were bad.
func (c *tally) failed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.bad {
		n += of
	}
	return n
}

// said returns some of what was bad, and reset forgets all.
func (c *tally) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.examples)
}

func (c *tally) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.missing, c.bad, c.examples = 0, 0, nil, nil
}

// got is what came of a request.
type got struct {
	status int
	header http.Header
	body   []byte
	err    error
	took   time.Duration
}

// patience is how long a client waits for a response: longer than weir makes players wait.
const patience = 10 * time.Second

// fetch sends a request.
func fetch(ctx context.Context, c *http.Client, address string) (g got) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return got{err: err}
	}
	response, err := c.Do(r)
	if err == nil {
		defer response.Body.Close()
		g.status, g.header = response.StatusCode, response.Header
		g.body, err = io.ReadAll(response.Body)
	}
	g.err, g.took = err, time.Since(began)
	return g
}

// ledger knows the bytes behind each name, for all viewers at all nodes.
type ledger struct {
	mu        sync.Mutex
	sums      map[string][sha256.Size]byte
	from      map[string]string
	conflicts []string
}

// add notes what somebody got under a name, which must be what everybody gets.
func (l *ledger) add(name, who string, body []byte) {
	sum := sha256.Sum256(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.sums[name]; !known {
		l.sums[name], l.from[name] = sum, who
	} else if before != sum {
		l.conflicts = append(l.conflicts, fmt.Sprintf("%s is %x for %s and was %x for %s", name, sum[:4], who, before[:4], l.from[name]))
	}
}

// viewer watches one rendition of a stream at one address: it waits for each part and fetches all that is
// named.
type viewer struct {
	name, base, path string
	balanced         bool
	client           *http.Client
	tally            *tally
	ledger           *ledger

	mu      sync.Mutex
	marked  bool          // the fault has begun
	last    time.Time     // when something new came last
	still   time.Duration // the longest time without, since the mark
	fell    []string      // what went back
	frames  []int         // numbers of the frames that came, in order
	names   map[string]bool
	inits   map[string][]byte
	before  *hls.Media
	segment int64 // what comes next
	part    int
}

// watch watches until ctx ends.
func (v *viewer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if !v.step(ctx) {
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	}
}

// step loads the playlist once and fetches what is new in it. It reports whether there was something.
func (v *viewer) step(ctx context.Context) bool {
	file := "index.m3u8"
	if v.before != nil {
		file += fmt.Sprintf("?_HLS_msn=%d&_HLS_part=%d", v.segment, v.part)
	}
	g := fetch(ctx, v.client, v.base+v.path+file)
	if ctx.Err() != nil {
		return false
	}
	v.tally.got(v.name+": "+file, g)
	if g.err != nil || g.status != http.StatusOK {
		return false
	}
	_, list, err := hls.Parse(g.body)
	if err != nil || list == nil {
		v.wrong("%s is no playlist: %v", file, err)
		return false
	}
	if b := v.before; b != nil && (list.Sequence < b.Sequence || list.DiscontinuitySequence < b.DiscontinuitySequence) {
		v.wrong("the media sequence went from %d to %d, that of discontinuities from %d to %d",
			b.Sequence, list.Sequence, b.DiscontinuitySequence, list.DiscontinuitySequence)
	}
	v.before = list
	return v.take(ctx, list)
}

// take fetches what is new in a playlist.
func (v *viewer) take(ctx context.Context, list *hls.Media) (more bool) {
	segment, part := list.Sequence+int64(list.Skipped), 0
	for i, s := range list.Segments {
		number := list.Sequence + int64(list.Skipped) + int64(i)
		if s.Gap {
			segment, part = number+1, 0
			continue
		}
		if s.Map != nil && v.inits[s.Map.URI] == nil {
			v.inits[s.Map.URI] = v.file(ctx, s.Map.URI)
		}
		parts := false // of this segment, which were read
		for _, p := range s.Parts {
			if v.names[p.URI] {
				parts = true
				continue
			}
			if body := v.file(ctx, p.URI); body != nil {
				more, parts = true, true
				v.names[p.URI] = true
				v.count(s.Map, body)
			}
		}
		if !s.Open && !v.names[s.URI] {
			if body := v.file(ctx, s.URI); body != nil {
				more = true
				v.names[s.URI] = true
				if !parts {
					v.count(s.Map, body)
				}
			}
		}
		if segment, part = number+1, 0; s.Open {
			segment, part = number, len(s.Parts)
		}
	}
	// Behind a balancer, one node may be a part behind another one.
	if !v.balanced && (segment < v.segment || segment == v.segment && part < v.part) {
		v.wrong("next was part %d of %d, now it is part %d of %d", v.part, v.segment, part, segment)
	}
	v.segment, v.part = segment, part
	if more {
		v.moved()
	}
	return more
}

// file fetches something that the playlist names.
func (v *viewer) file(ctx context.Context, name string) []byte {
	g := fetch(ctx, v.client, v.base+v.path+name)
	if ctx.Err() != nil {
		return nil
	}
	v.tally.got(v.name+": "+name, g)
	if g.err != nil || g.status != http.StatusOK {
		return nil
	}
	v.ledger.add(v.path+name, v.name, g.body)
	return g.body
}

// count notes which frames came.
func (v *viewer) count(init *hls.File, media []byte) {
	if init == nil || !strings.HasSuffix(v.path, "/source/") {
		return
	}
	frames, err := harness.SegmentFrames(append(slices.Clone(v.inits[init.URI]), media...), time.Time{}, false)
	if err != nil {
		v.wrong("media can't be read: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range frames {
		v.frames = append(v.frames, f.Number)
	}
}

func (v *viewer) moved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.marked {
		v.still = max(v.still, now.Sub(v.last))
	}
	v.last = now
}

// mark begins to measure how long the viewer stands still.
func (v *viewer) mark() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.marked, v.still, v.last = true, 0, time.Now()
}

// unmark ends that.
func (v *viewer) unmark() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.still, v.marked = max(v.still, time.Since(v.last)), false
}

func (v *viewer) wrong(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.fell) < 20 {
		v.fell = append(v.fell, v.name+": "+fmt.Sprintf(format, args...))
	}
}

// viewer returns a viewer of a rendition of a stream.
func (r *rig) viewer(name, base, playback, rendition string) *viewer {
	return &viewer{
		name: name, base: base, balanced: base == r.entry.url, path: "/hls/" + playback + "/" + rendition + "/", client: r.client, tally: &r.in, ledger: r.ledger,
		names: map[string]bool{}, inits: map[string][]byte{},
	}
}

// newcomer plays something that the node knows, as somebody who was not there before: the master playlist,
// that of its first rendition, and the newest segment.
func (r *rig) newcomer(ctx context.Context, c *tally, what, master string) (first got) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	next := func(base *url.URL, uri string) (*url.URL, got) {
		at, err := base.Parse(uri)
		if err != nil {
			return base, got{err: err}
		}
		g := fetch(ctx, client, at.String())
		if ctx.Err() == nil && c != nil {
			c.got(what+" "+at.Path, g)
		}
		return at, g
	}
	at, g := next(&url.URL{}, master)
	first = g
	if g.err != nil || g.status != http.StatusOK {
		return first
	}
	variants, _, err := hls.Parse(g.body)
	if err != nil || variants == nil || len(variants.Variants) == 0 {
		return first
	}
	at, g = next(at, variants.Variants[0].URI)
	if g.err != nil || g.status != http.StatusOK {
		return first
	}
	_, list, err := hls.Parse(g.body)
	if err != nil || list == nil {
		return first
	}
	for _, s := range slices.Backward(list.Segments) {
		if s.URI != "" && !s.Gap {
			if file, g := next(at, s.URI); g.status == http.StatusOK && g.err == nil {
				r.ledger.add(file.Path, what, g.body)
			}
			break
		}
	}
	return first
}
