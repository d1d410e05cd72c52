//go:build soak

package live

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A player on a busy machine stalls for many reasons. weir is to blame for a stall if it
// answered late or wrongly in the time before, or if what the player needed was not there.
const (
	blameBefore  = 5 * time.Second
	slowResponse = time.Second
	latePart     = 500 * time.Millisecond
)

// delivery is the log of what one player asked for and when it was answered. It stands
// between the player and weir.
type delivery struct {
	url string
	mu  sync.Mutex
	all []delivered
}

// delivered is a response of weir.
type delivered struct {
	path    string
	status  int
	asked   time.Time
	begun   time.Time // with its first byte
	done    time.Time
	waited  bool // it was asked for before it was there
	dropped bool // the player had enough of it
}

func newDelivery(t *testing.T, weir string) *delivery {
	t.Helper()
	to, err := url.Parse(weir)
	if err != nil {
		t.Fatal(err)
	}
	d := &delivery{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			if r.Context().Err() == nil {
				w.WriteHeader(http.StatusBadGateway)
			}
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := delivered{path: r.URL.RequestURI(), asked: time.Now(), waited: r.URL.Query().Has("_HLS_msn") || partName.MatchString(r.URL.Path)}
		timed := &timedWriter{ResponseWriter: w}
		defer func() {
			a.status, a.begun, a.done, a.dropped = timed.status, timed.begun, time.Now(), r.Context().Err() != nil
			d.mu.Lock()
			defer d.mu.Unlock()
			d.all = append(d.all, a)
		}()
		proxy.ServeHTTP(timed, r)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

var partName = regexp.MustCompile(`/\d+\.\d+\.m4s$`)

// timedWriter notes when a response begins.
type timedWriter struct {
	http.ResponseWriter
	status int
	begun  time.Time
}

func (w *timedWriter) WriteHeader(status int) {
	w.status, w.begun = status, time.Now()
	w.ResponseWriter.WriteHeader(status)
}

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// blame says what was wrong with the responses before a stall; "" = nothing was.
func (d *delivery) blame(s stall) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.all {
		if a.asked.Before(s.at.Add(-blameBefore)) || a.asked.After(s.at) || a.dropped {
			continue
		}
		took := a.begun.Sub(a.asked)
		switch {
		case a.status >= 400 && !(a.waited && a.status == http.StatusNotFound): // a part that was promised and did not come
			return fmt.Sprintf("%s was answered with %d", a.path, a.status)
		case !a.waited && took > slowResponse:
			return fmt.Sprintf("%s was answered after %v", a.path, took)
		}
	}
	return ""
}

// taken returns the renditions that a player took something of before a stall.
func (d *delivery) taken(s stall) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string]bool{}
	for _, a := range d.all {
		if steps := strings.Split(a.path, "/"); strings.HasSuffix(a.path, ".m4s") && a.asked.After(s.at.Add(-2*blameBefore)) && a.asked.Before(s.at.Add(s.length)) {
			names[steps[len(steps)-2]] = true
		}
	}
	return names
}

// around tells what was answered around a stall.
func (d *delivery) around(s stall) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, a := range d.all {
		if a.asked.After(s.at.Add(-4*time.Second)) && a.asked.Before(s.at.Add(s.length)) {
			fmt.Fprintf(&b, "%s %s %d after %v, %v in all\n", a.asked.Format("15:04:05.000"), a.path, a.status, a.begun.Sub(a.asked).Round(time.Millisecond), a.done.Sub(a.asked).Round(time.Millisecond))
		}
	}
	return b.String()
}

// watchLog is the log of when something new was there to be had, whoever wanted it.
type watchLog struct {
	end    func()
	silent func(from, to time.Time) time.Duration // of the publisher

	mu     sync.Mutex
	parts  map[string][]appeared
	failed []appeared
}

// appeared is when a part was there, and when what is in it ended on the stream's clock.
type appeared struct {
	what         string
	ended, there time.Time
}

// newWatchLog waits for each part of renditions until the end of the test.
func newWatchLog(t *testing.T, base string, names []string, silent func(from, to time.Time) time.Duration) *watchLog {
	t.Helper()
	l := &watchLog{silent: silent, parts: map[string][]appeared{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	l.end = func() {
		cancel()
		watching.Wait()
	}
	t.Cleanup(l.end)
	for _, name := range names {
		watching.Go(func() { l.watch(ctx, base, name) })
	}
	return l
}

func (l *watchLog) watch(ctx context.Context, base, name string) {
	query := ""
	var segment int64
	part := -1 // the newest that is known
	for ctx.Err() == nil {
		list, err := fetchLive(ctx, base+name+"/index.m3u8"+query)
		if err != nil {
			l.mu.Lock()
			l.failed = append(l.failed, appeared{what: fmt.Sprintf("%s: %v", name, err), there: time.Now()})
			l.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		now := time.Now()
		for _, s := range list.segments {
			ended := s.wall
			for i, p := range s.parts {
				ended = ended.Add(time.Duration(p.seconds * float64(time.Second)))
				if s.number < segment || s.number == segment && i <= part {
					continue
				}
				if query != "" { // else it was there before anybody asked
					l.mu.Lock()
					l.parts[name] = append(l.parts[name], appeared{p.uri, ended, now})
					l.mu.Unlock()
				}
				segment, part = s.number, i
			}
		}
		n, next := list.next()
		query = fmt.Sprintf("?_HLS_msn=%d&_HLS_part=%d", n, next)
	}
}

func fetchLive(ctx context.Context, address string) (*livePlaylist, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%d %s", response.StatusCode, strings.TrimSpace(string(text)))
	}
	return parseLive(text)
}

// blame says what was late before a stall, of some renditions and by more than is usual;
// "" = nothing was.
func (l *watchLog) blame(s stall, names map[string]bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := s.at.Add(-blameBefore)
	for _, f := range l.failed {
		if f.there.After(from) && f.there.Before(s.at) {
			return f.what
		}
	}
	for name, parts := range l.parts {
		if !names[name] {
			continue
		}
		var lags []time.Duration
		for _, p := range parts {
			lags = append(lags, p.there.Sub(p.ended))
		}
		usual := slices.Sorted(slices.Values(lags))[len(lags)/2]
		for i, p := range parts {
			if late := lags[i] - usual; p.there.After(from) && p.ended.Add(usual).Before(s.at) && late > latePart && l.silent(p.ended.Add(-late), p.there) < latePart {
				return fmt.Sprintf("%s/%s was %v late", name, p.what, late)
			}
		}
	}
	return ""
}
