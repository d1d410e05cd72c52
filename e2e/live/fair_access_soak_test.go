//go:build soak

package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

// attackTime is how long attacks on access control last.
const attackTime = 12 * time.Second

// clientAt returns a client with an address of this machine.
func clientAt(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// sendAt sends a request and returns the status of its response; 0 = there was none.
func sendAt(c *http.Client, method, url, key, body string) int {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// until runs something again and again, several at once, until a time, and returns what ends when all have.
func until(end time.Time, atOnce int, do func()) *sync.WaitGroup {
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for time.Now().Before(end) {
				do()
			}
		})
	}
	return &all
}

// fairGate lets one address without a key ask the gate about wrong access keys as fast as it can. The
// owner's server gets as many requests as one viewer may cause. Beside it, a crowd of a thousand viewers with
// an address each gets in, and one of a thousand whom a media server asks about.
func fairGate(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	var wrong atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		text, _ := io.ReadAll(r.Body)
		if bytes.Contains(text, []byte(`"accessKey":"right`)) {
			return
		}
		wrong.Add(1)
		a.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(receiver.Close)
	w.Start()
	var hook struct{ ID string }
	w.Must("POST", "/api/webhook", map[string]any{"name": "gate", "url": receiver.URL, "events": []string{}}, &hook)
	gated := upload(w, harness.TinyClip(t), map[string]any{"playbackPolicy": map[string]any{"type": "webhook", "webhookId": hook.ID}})
	ask := func(c *http.Client, key, accessKey string) int {
		body, err := json.Marshal(map[string]any{"type": "accessKey", "stream": gated, "accessKey": accessKey})
		if err != nil {
			t.Error(err)
		}
		return sendAt(c, http.MethodPost, w.URL+"/api/access-control/gate", key, string(body))
	}

	attacker := clientAt(t, "127.0.0.9")
	attack := until(time.Now().Add(attackTime), 8, func() { ask(attacker, "", random()) })
	const viewers = 1000
	var refused, refusedByServer atomic.Int64
	var honest sync.WaitGroup
	for i := range viewers {
		c := clientAt(t, fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250))
		honest.Go(func() {
			if sendAt(c, http.MethodGet, fmt.Sprintf("%s/hls/%s/index.m3u8?accessKey=right%d", w.URL, gated, i), "", "") != http.StatusOK {
				refused.Add(1)
			}
			c.CloseIdleConnections()
		})
	}
	server, next := clientAt(t, "127.0.0.8"), time.NewTicker(10*time.Millisecond) // fewer than --rate-limit
	defer next.Stop()
	for i := range viewers {
		<-next.C
		honest.Go(func() {
			if ask(server, w.Key, fmt.Sprint("right of the server ", i)) != http.StatusOK {
				refusedByServer.Add(1)
			}
		})
	}
	honest.Wait()
	attack.Wait()
	row("requests to the owner in 12 s", "-", fmt.Sprint(wrong.Load()), "113", wrong.Load() <= 113)
	row("refused of 1,000 viewers", "-", fmt.Sprint(refused.Load()), "0", refused.Load() == 0)
	row("refused of 1,000 at a media server", "-", fmt.Sprint(refusedByServer.Load()), "0", refusedByServer.Load() == 0)
	w.Stop()
}

// fairJWTs lets a script send wrong JWTs from the address of an honest viewer, of whom none is refused.
func fairJWTs(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	w.Start()
	ours, theirs := newSigner(w), newSigner(w)
	theirs.public = ours.public // the signature does not fit
	policy := map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}
	video := upload(w, harness.TinyClip(t), policy)
	play := func(c *http.Client, jwt string) int {
		return sendAt(c, http.MethodGet, w.URL+"/hls/"+video+"/index.m3u8?jwt="+jwt, "", "")
	}
	honest, script := clientAt(t, "127.0.0.7"), clientAt(t, "127.0.0.7")
	measure := func() (refused, all int, p95 time.Duration) {
		t.Helper()
		var took []time.Duration
		life := time.Hour
		for end := time.Now().Add(attackTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			life += time.Second // another JWT each time
			jwt, began := ours.permit(video, life), time.Now()
			if play(honest, jwt) != http.StatusOK {
				refused++
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return refused, len(took), took[len(took)*95/100]
	}
	quietRefused, quietAll, quiet := measure()

	wrongSignature := theirs.permit(video, time.Hour)
	theirs.public = "unknown"
	wrongKey := theirs.permit(video, time.Hour)
	var sent atomic.Int64
	attack := until(time.Now().Add(attackTime+time.Second), 8, func() {
		jwt := wrongSignature
		if sent.Add(1)%2 == 0 {
			jwt = wrongKey
		}
		play(script, jwt)
	})
	time.Sleep(time.Second) // it has used up what an address may send
	refused, all, attacked := measure()
	attack.Wait()
	row(fmt.Sprintf("valid JWTs refused beside %d wrong ones", sent.Load()), fmt.Sprintf("%d of %d", quietRefused, quietAll), fmt.Sprintf("%d of %d", refused, all), "0", refused == 0)
	row("p95 of the playlist with a valid JWT", ms(quiet), ms(attacked), "quiet + 500 ms", attacked <= quiet+500*time.Millisecond)
	w.Stop()
}

// fairClips lets two addresses without a key ask for clips of a stream that end in half a minute. The owner's
// clips are not refused for it.
func fairClips(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--public-clips")
	s := newStream(w, rtmp)
	e := s.send(liveClip(t))
	t.Cleanup(e.kill)
	body := func(from, to time.Duration) map[string]any {
		now := time.Now()
		return map[string]any{"playbackId": s.playback, "startTime": now.Add(from).UnixMilli(), "endTime": now.Add(to).UnixMilli()}
	}
	owner := caller{w, w.Key}
	// One clip of the owner's is in progress at a time.
	measure := func() (refused, all int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			var made struct{ Task struct{ ID string } }
			all++
			if owner.do(http.MethodPost, "/api/clip", body(-4*time.Second, -2*time.Second), &made) != http.StatusOK {
				refused++
				continue
			}
			w.Ended(made.Task.ID)
		}
		return refused, all
	}
	harness.Eventually(t, func() error {
		if status := owner.do(http.MethodPost, "/api/clip", body(-4*time.Second, -2*time.Second), nil); status != http.StatusOK {
			return fmt.Errorf("a clip is answered with %d", status)
		}
		return nil
	})
	quietRefused, quietAll := measure()
	var made atomic.Int64
	var attackers []*sync.WaitGroup
	for _, address := range []string{"127.0.0.5", "127.0.0.6"} {
		c := clientAt(t, address)
		attackers = append(attackers, until(time.Now().Add(31*time.Second), 1, func() {
			text, err := json.Marshal(body(-2*time.Second, 29*time.Second))
			if err != nil {
				t.Error(err)
			}
			if sendAt(c, http.MethodPost, w.URL+"/api/clip", "", string(text)) == http.StatusOK {
				made.Add(1)
			}
			time.Sleep(200 * time.Millisecond)
		}))
	}
	time.Sleep(time.Second)
	refused, all := measure()
	for _, a := range attackers {
		a.Wait()
	}
	row(fmt.Sprintf("the owner's clips refused beside %d of viewers", made.Load()), fmt.Sprintf("%d of %d", quietRefused, quietAll), fmt.Sprintf("%d of %d", refused, all), "0", refused == 0)
	e.stop()
	w.Stop()
}
