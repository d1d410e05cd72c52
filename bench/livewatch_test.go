//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// watcher is a player of low-latency HLS that watches the first rendition of a stream.
type watcher struct {
	client   http.Client
	master   string
	playlist *url.URL // of the rendition
}

func newWatcher(master string) (*watcher, error) {
	jar, err := cookiejar.New(nil) // some servers let nobody in without
	return &watcher{client: http.Client{Jar: jar, Transport: &http.Transport{}}, master: master}, err
}

func (w *watcher) close() { w.client.CloseIdleConnections() }

// errStatus is a response that is not 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("status %d", int(e)) }

func (w *watcher) get(ctx context.Context, address string) (body []byte, at *url.URL, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errStatus(resp.StatusCode)
	}
	return body, resp.Request.URL, err
}

// segmentList is a media playlist as far as the watcher reads it.
type segmentList struct {
	init     string
	segments []string // whole ones, without gaps
	parts    []string
	next     int64 // the segment that is not whole
	open     int   // and how many parts of it there are
}

func parseList(text []byte, at *url.URL) (l segmentList, err error) {
	whole := func(address string) string {
		u, e := at.Parse(address)
		if e != nil {
			err = e
			return ""
		}
		return u.String()
	}
	gap := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		_, attribute, _ := strings.Cut(line, `URI="`)
		attribute, _, _ = strings.Cut(attribute, `"`)
		switch {
		case strings.HasPrefix(line, "#EXT-X-MEDIA-SEQUENCE:"):
			if l.next, err = strconv.ParseInt(line[len("#EXT-X-MEDIA-SEQUENCE:"):], 10, 64); err != nil {
				return l, err
			}
		case strings.HasPrefix(line, "#EXT-X-MAP:"):
			l.init = whole(attribute)
		case strings.HasPrefix(line, "#EXT-X-PART:"):
			l.parts, l.open = append(l.parts, whole(attribute)), l.open+1
		case line == "#EXT-X-GAP":
			gap = true
		case line != "" && line[0] != '#':
			if !gap {
				l.segments = append(l.segments, whole(line))
			}
			l.next, l.open, gap = l.next+1, 0, false
		}
	}
	return l, err
}

// list loads the media playlist.
func (w *watcher) list(ctx context.Context, query url.Values) (segmentList, error) {
	if w.playlist == nil {
		text, at, err := w.get(ctx, w.master)
		if err != nil {
			return segmentList{}, err
		}
		named := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if named = named || strings.HasPrefix(line, "#EXT-X-STREAM-INF:"); named && line != "" && line[0] != '#' {
				if w.playlist, err = at.Parse(line); err != nil {
					return segmentList{}, err
				}
				break
			}
		}
		if w.playlist == nil {
			return segmentList{}, fmt.Errorf("a master playlist without a rendition")
		}
	}
	address := *w.playlist
	all := address.Query()
	for name, values := range query {
		all[name] = values
	}
	address.RawQuery = all.Encode()
	text, at, err := w.get(ctx, address.String())
	if err != nil {
		return segmentList{}, err
	}
	return parseList(text, at)
}

// first returns when a player has what it needs to begin: the playlists, the init segment
// and a whole segment. Servers answer 404 until they have them.
func (w *watcher) first(ctx context.Context) (time.Time, error) {
	for {
		err := w.begin(ctx)
		if err == nil {
			return time.Now(), nil
		}
		if sleep(ctx, 10*time.Millisecond) != nil {
			return time.Time{}, err
		}
	}
}

func (w *watcher) begin(ctx context.Context) error {
	l, err := w.list(ctx, nil)
	if err != nil {
		return err
	}
	if len(l.segments) == 0 {
		return errors.New("the playlist has no segment")
	}
	for _, address := range []string{l.init, l.segments[0]} {
		if _, _, err := w.get(ctx, address); err != nil {
			return err
		}
	}
	return nil
}

// follow waits for each part that comes, fetches it, and returns how old the frames in it
// are when they are there.
func (w *watcher) follow(ctx context.Context, length time.Duration) (ages []time.Duration, err error) {
	l, err := w.list(ctx, nil)
	if err != nil {
		return nil, err
	}
	seen := l.parts
	for end := time.Now().Add(length); time.Now().Before(end); {
		l, err = w.list(ctx, url.Values{"_HLS_msn": {strconv.FormatInt(l.next, 10)}, "_HLS_part": {strconv.Itoa(l.open)}})
		if err != nil {
			return nil, err
		}
		for _, part := range l.parts {
			if slices.Contains(seen, part) {
				continue
			}
			media, _, err := w.get(ctx, part)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", part, err)
			}
			some, err := stamps(media, time.Now())
			if err != nil {
				return nil, err
			}
			ages = append(ages, some...)
		}
		seen = l.parts
	}
	if len(ages) == 0 {
		return nil, fmt.Errorf("no frame came")
	}
	slices.Sort(ages)
	return ages, nil
}
