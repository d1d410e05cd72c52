package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

// viewer watches one rendition of a live stream as low latency is meant: it waits for
// each part, fetches what it was promised before it is there, asks for what is new
// only, and minds every rule that weir breaks.
type viewer struct {
	t      *testing.T
	name   string
	path   string
	others int                     // renditions beside it; -1 = they are not looked at
	base   *atomic.Pointer[string] // where weir is now; "" = nowhere

	mu       sync.Mutex
	list     *livePlaylist
	loaded   time.Time           // when
	seen     map[int64]time.Time // when a segment was first in the list
	segments map[int64][]byte
	inits    map[string][]byte
	parts    map[string][]byte
	compared int // segments that were compared with their parts
	promised int // parts that were fetched before they were in the list
	done     chan struct{}
}

// watch starts a viewer, which goes on until the end of the stream. There are so many
// other renditions.
func (s *liveStream) watch(base *atomic.Pointer[string], name string, others int) *viewer {
	s.w.T.Helper()
	return s.watchBelow(base, "", name, others)
}

// watchBelow is watch with a viewer's token, t/<token>/.
func (s *liveStream) watchBelow(base *atomic.Pointer[string], token, name string, others int) *viewer {
	s.w.T.Helper()
	v := &viewer{
		t: s.w.T, name: name, others: others, path: "/hls/" + s.playback + "/" + token + name + "/", base: base, seen: map[int64]time.Time{},
		segments: map[int64][]byte{}, inits: map[string][]byte{}, parts: map[string][]byte{}, done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.t.Context()))
	go func() {
		defer close(v.done)
		for ctx.Err() == nil && v.step(ctx) {
		}
	}()
	v.t.Cleanup(func() {
		cancel()
		<-v.done
	})
	return v
}

// state returns the newest playlist; nil = there is none yet.
func (v *viewer) state() *livePlaylist {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.list
}

// wrong notes that weir broke a rule.
func (v *viewer) wrong(text []byte, format string, args ...any) {
	v.t.Errorf("%s: %s\n%s", v.name, fmt.Sprintf(format, args...), text)
}

// errAway says that weir was not there, and is not meant to be, or that the viewer has left.
var errAway = errors.New("weir or the viewer is away")

// fetch gets something from weir, wherever it is.
func (v *viewer) fetch(ctx context.Context, file string) (status int, body []byte, err error) {
	base := *v.base.Load()
	if base == "" {
		return 0, nil, errAway
	}
	address, err := resolve(base+v.path, file)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err == nil {
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		status = response.StatusCode
	}
	if err != nil && (ctx.Err() != nil || *v.base.Load() != base) {
		err = errAway
	}
	return status, body, err
}

// resolve returns an address in a playlist as players understand it.
func resolve(playlist, address string) (string, error) {
	base, err := url.Parse(playlist)
	if err != nil {
		return "", err
	}
	whole, err := base.Parse(address)
	if err != nil {
		return "", err
	}
	return whole.String(), nil
}

// step loads the playlist once and fetches what is new in it. It reports whether there
// will be more.
func (v *viewer) step(ctx context.Context) (more bool) {
	before, file := v.state(), "index.m3u8"
	var promise <-chan promised
	if before != nil {
		segment, part := before.next()
		file = fmt.Sprintf("index.m3u8?_HLS_msn=%d&_HLS_part=%d", segment, part)
		// What is left out is known only to those whose playlist is new enough.
		if boundary := harness.Number(before.control["CAN-SKIP-UNTIL"]); time.Since(v.loaded).Seconds() < boundary/2 {
			file += "&_HLS_skip=YES"
		}
		promise = v.prefetch(ctx, before.hint)
	}
	asked := time.Now()
	status, text, err := v.fetch(ctx, file)
	took := time.Since(asked)
	if promise != nil {
		v.keep(<-promise)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errAway) || before == nil && status == http.StatusNotFound:
		select { // until it is there
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		return true
	case err != nil || status != http.StatusOK:
		v.wrong(text, "%s: %d, %v", file, status, err)
		return false
	}
	list, err := parseLive(text)
	if err == nil {
		err = list.merge(before)
	}
	if err != nil {
		v.wrong(text, "%s: %v", file, err)
		return false
	}
	if err := list.check(v.name != "audio"); err != nil {
		v.wrong(text, "%s: %v", file, err)
	}
	if before != nil {
		if err := list.follows(before); err != nil {
			v.wrong(text, "%s: %v", file, err)
		}
		// Who has waited for three segments in vain gets what there is.
		if segment, part := before.next(); !list.ended && !list.has(segment, part) && took < time.Duration(3*list.target)*time.Second {
			v.wrong(text, "%s was answered after %v without what was waited for", file, took)
		}
	}
	v.fetchNew(ctx, list)
	v.mu.Lock()
	v.list = list
	v.mu.Unlock()
	v.loaded = asked
	return !list.ended
}

// promised is what became of a part that was asked for before it was there.
type promised struct {
	uri    string
	status int
	body   []byte
	err    error
	took   time.Duration
}

// prefetch asks for a part that a playlist promised.
func (v *viewer) prefetch(ctx context.Context, uri string) <-chan promised {
	result := make(chan promised, 1)
	asked := time.Now()
	go func() {
		status, body, err := v.fetch(ctx, uri)
		result <- promised{uri, status, body, err, time.Since(asked)}
	}()
	return result
}

// keep takes what became of a promise.
func (v *viewer) keep(p promised) {
	switch {
	case p.err != nil:
		if !errors.Is(p.err, errAway) {
			v.wrong(nil, "%s was promised: %v", p.uri, p.err)
		}
	case p.status == http.StatusOK:
		v.parts[p.uri] = p.body
		v.promised++
	case p.status != http.StatusNotFound:
		v.wrong(p.body, "%s was promised: %d", p.uri, p.status)
	case p.took < time.Second:
		v.parts[p.uri] = nil // then it must not be in the list either
	}
}

// fetchNew fetches what is new in a playlist.
func (v *viewer) fetchNew(ctx context.Context, list *livePlaylist) {
	for _, s := range list.segments {
		if _, ok := v.seen[s.number]; !ok {
			v.seen[s.number] = time.Now()
		}
		if s.gap {
			continue // on a busy machine a rendition may have none
		}
		if v.inits[s.init] == nil {
			v.inits[s.init] = v.must(ctx, s.init)
		}
		var joined []byte
		for _, part := range s.parts {
			body, known := v.parts[part.uri]
			if known && body == nil {
				v.wrong(nil, "%s was promised, refused, and is there", part.uri)
			}
			if body == nil {
				body = v.must(ctx, part.uri)
				v.parts[part.uri] = body
			}
			joined = append(joined, body...)
		}
		if s.uri == "" || v.segments[s.number] != nil {
			continue
		}
		v.segments[s.number] = v.must(ctx, s.uri)
		if ctx.Err() != nil {
			return // the viewer has left, maybe before the segment came
		}
		if s.parts == nil {
			continue
		}
		v.compared++
		if !bytes.Equal(joined, v.segments[s.number]) {
			v.wrong(nil, "segment %d has %d bytes, its parts %d, and they are not the same", s.number, len(v.segments[s.number]), len(joined))
		}
	}
	if v.others >= 0 {
		v.checkReports(ctx, list)
	}
}

// checkReports looks whether the other renditions are as far as a playlist says.
func (v *viewer) checkReports(ctx context.Context, list *livePlaylist) {
	// At first the others may have nothing yet.
	if whole := len(list.segments) > 1; whole && !list.ended && len(list.reports) != v.others {
		v.wrong(nil, "there are %d other renditions, and reports of %v", v.others, list.reports)
	}
	for _, r := range list.reports {
		segment, _ := strconv.ParseInt(r["LAST-MSN"], 10, 64)
		part, err := strconv.Atoi(r["LAST-PART"])
		status, text, fetchErr := v.fetch(ctx, r["URI"])
		if errors.Is(fetchErr, errAway) {
			return
		}
		other, parseErr := parseLive(text)
		if err := errors.Join(err, fetchErr, parseErr); err != nil || status != http.StatusOK {
			v.wrong(text, "report %v: %d, %v", r, status, err)
			return
		}
		if !other.has(segment, part) {
			v.wrong(text, "it is reported that there is part %d of %d", part, segment)
		}
	}
}

// must fetches something that a playlist names.
func (v *viewer) must(ctx context.Context, file string) []byte {
	for ctx.Err() == nil {
		status, body, err := v.fetch(ctx, file)
		switch {
		case errors.Is(err, errAway):
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		case err != nil || status != http.StatusOK:
			v.wrong(body, "%s is in the list: %d, %v", file, status, err)
		}
		return body
	}
	return nil
}

// wait waits until the stream has ended.
func (v *viewer) wait() {
	v.t.Helper()
	harness.Eventually(v.t, func() error {
		select {
		case <-v.done:
			return nil
		default:
			return fmt.Errorf("%s does not end; the playlist is %+v", v.name, v.state())
		}
	})
}

// stretches returns what was seen, split where the playlist says that something else
// begins, each with its init segment in front.
func (v *viewer) stretches() (all []stretch) {
	v.t.Helper()
	if v.list == nil || len(v.list.segments) == 0 {
		v.t.Fatalf("%s: nothing was seen", v.name)
	}
	for i, s := range v.list.segments {
		if i == 0 || s.discontinuity {
			all = append(all, stretch{seen: v.seen[s.number], media: slices.Clone(v.inits[s.init])})
		}
		last := &all[len(all)-1]
		if i > 0 && !s.discontinuity && s.init != v.list.segments[i-1].init {
			v.t.Errorf("%s: segment %d has another init segment than the one before, without a discontinuity", v.name, s.number)
		}
		last.segments = append(last.segments, s)
		last.media = append(last.media, v.segments[s.number]...)
	}
	return all
}

// stretch are segments that go on from one to the next.
type stretch struct {
	segments []liveSegment
	seen     time.Time // when the first one was first in the list
	media    []byte
}

// list returns a playlist of the stretch alone.
func (s stretch) list() *livePlaylist { return &livePlaylist{segments: s.segments} }

// String tells which segments there are, for messages.
func (s stretch) String() string {
	var b strings.Builder
	for _, segment := range s.segments {
		fmt.Fprintf(&b, " %d (%.3f s)", segment.number, segment.seconds)
	}
	return b.String()
}
