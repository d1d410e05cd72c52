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
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// TestFairSoak lets one account, or somebody without one, take what they can, and measures what an
// honest account gets beside them. `make soak-fair` runs it; it prints a table.
func TestFairSoak(t *testing.T) {
	table := &harness.Table{}
	t.Cleanup(func() { t.Logf("\n%s", table) })
	plain := harness.Shipped(t)
	for _, attack := range []struct {
		name string
		run  func(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool))
	}{
		{"webhooks", fairWebhooks},
		{"accounts", fairAccounts},
		{"viewers", fairViewers},
		{"gate", fairGate},
		{"JWTs", fairJWTs},
		{"clips", fairClips},
		{"media", fairMedia},
		{"disk", fairDisk},
		{"tokens", fairTokens},
		{"backup", fairBackup},
		{"quota", fairQuota},
	} {
		for _, engine := range harness.Engines() {
			t.Run(attack.name+"/"+engine, func(t *testing.T) {
				w := harness.NewWeirOn(t, engine)
				w.Binary = plain
				attack.run(t, w, func(what, quiet, attacked, limit string, ok bool) {
					table.Add(t, engine, attack.name, what, quiet, attacked, limit, ok)
				})
			})
		}
	}
}

// caller is an account with an API key.
type caller struct {
	w   *harness.Weir
	key string
}

// newAccount makes an account, which has the quotas of every account.
func newAccount(w *harness.Weir, email string) caller {
	w.T.Helper()
	w.Run("user", "create", email)
	return caller{w, harness.Match(w.T, w.Run("key", "create", "soak", "--user", email), `API key +(\S+)`)}
}

// do sends a request of the account.
func (c caller) do(method, path string, body, response any) int {
	c.w.T.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.w.T.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.w.T.Context(), method, c.w.URL+path, bytes.NewReader(text))
	if err != nil {
		c.w.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		c.w.T.Fatal(err)
	}
	defer got.Body.Close()
	text, err = io.ReadAll(got.Body)
	if err != nil {
		c.w.T.Fatal(err)
	}
	if response != nil && got.StatusCode < 300 {
		if err := json.Unmarshal(text, response); err != nil {
			c.w.T.Fatal(err)
		}
	}
	return got.StatusCode
}

// asset makes an asset that waits for its file.
func (c caller) asset() (id string) {
	c.w.T.Helper()
	var made struct{ Asset struct{ ID string } }
	if status := c.do("POST", "/api/asset/request-upload", map[string]any{"name": "of events"}, &made); status >= 300 {
		c.w.T.Fatalf("request-upload answers %d", status)
	}
	return made.Asset.ID
}

// fairWebhooks lets an account have 100 webhooks to a server that never answers, and 20 events for
// each. The deliveries of the other account must not be later for it.
func fairWebhooks(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	w.Start()
	honest, attacker := caller{w, w.Key}, newAccount(w, "attacker@example.com")
	arrivals := make(chan time.Duration, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ CreatedAt int64 }
		if err := json.NewDecoder(r.Body).Decode(&event); err == nil {
			arrivals <- time.Since(time.UnixMilli(event.CreatedAt))
		}
	}))
	t.Cleanup(receiver.Close)
	if status := honest.do("POST", "/api/webhook", hookBody(receiver.URL), nil); status != http.StatusOK {
		t.Fatalf("the webhook is answered with %d", status)
	}
	upload(w, harness.TinyClip(t), nil)
	var all []struct{ ID string }
	w.Must("GET", "/api/asset", nil, &all)
	own := all[0].ID
	for quiet := false; !quiet; { // the events of the upload
		select {
		case <-arrivals:
		case <-time.After(5 * time.Second):
			quiet = true
		}
	}
	const events = 100
	measure := func() time.Duration {
		t.Helper()
		for i := range events {
			if status := honest.do("PATCH", "/api/asset/"+own, map[string]any{"name": fmt.Sprint("change ", i)}, nil); status >= 300 {
				t.Fatalf("a change is answered with %d", status)
			}
			time.Sleep(200 * time.Millisecond)
		}
		var late []time.Duration
		for range events {
			select {
			case d := <-arrivals:
				late = append(late, d)
			case <-time.After(time.Minute):
				late = append(late, time.Minute)
			}
		}
		slices.Sort(late)
		return late[len(late)*95/100]
	}
	quiet := measure()

	tarpit := newTarpit(t)
	for i := range 100 {
		if status := attacker.do("POST", "/api/webhook", hookBody(fmt.Sprintf("%s/%d", tarpit, i)), nil); status != http.StatusOK {
			t.Fatalf("webhook %d is answered with %d", i, status)
		}
	}
	refused := attacker.do("POST", "/api/webhook", hookBody(tarpit+"/101"), nil)
	row("status of the 101st webhook", "-", fmt.Sprint(refused), "403", refused == http.StatusForbidden)
	for range 20 { // each asset is a resource of its own, so that all can be sent at once
		attacker.asset()
	}
	attacked := measure()
	row("p95 of deliveries", ms(quiet), ms(attacked), "quiet + 2 s", attacked <= quiet+2*time.Second)
	w.Stop()
}

func hookBody(url string) map[string]any {
	return map[string]any{"name": "soak", "url": url, "events": []string{"asset.created", "asset.updated"}}
}

// newTarpit returns the URL of a server that takes requests and never answers.
func newTarpit(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// fairTokens lets Livepeer's player play a video of five minutes with a JWT of one, to its end, and a
// stream, which it must lose when the JWT has expired.
func fairTokens(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	s := newStream(w, rtmp)
	signer := newSigner(w)
	policy := map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}
	w.Must("PATCH", "/api/stream/"+s.id, policy, nil)
	clip := harness.MakeClip(t, "five-minutes.mp4", append(harness.Pictures("320x180", 25, 300),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-b:v", "300k", "-c:a", "aac", "-b:a", "64k")...)
	video := upload(w, clip, policy)
	p := newOfficial(t)

	began := time.Now()
	p.play(w, video, signer.permit(video, time.Minute))
	wait.Progress(t, func() error {
		if now := p.state(); len(now.Fatal) > 0 || !now.Ended {
			return fmt.Errorf("the player does not play to the end: %+v", now)
		}
		return nil
	})
	played := p.state()
	row("player plays 300 s with a JWT of 60 s, to", "-", fmt.Sprintf("%.1f s", played.At), "300 s", played.At > 299 && played.Ended && time.Since(began) > 4*time.Minute)

	e := s.send(liveClip(t))
	s.w.T.Cleanup(e.kill)
	ends := time.Now().Add(time.Minute)
	jwt := signer.permit(s.playback, time.Until(ends))
	harness.Eventually(t, func() error {
		if status, _ := get(t, s.url("index.m3u8?jwt="+jwt)); status != http.StatusOK {
			return fmt.Errorf("the stream does not play: %d", status)
		}
		return nil
	})
	_, master := get(t, s.url("index.m3u8?jwt="+jwt))
	variant := s.url(harness.Match(t, master, `(?m)^(t/\S+index\.m3u8)`))
	var out time.Time
	harness.Eventually(t, func() error {
		if status, _ := get(t, variant); status == http.StatusOK {
			return fmt.Errorf("a playlist is answered with %d", status)
		}
		out = time.Now()
		return nil
	})
	late := out.Sub(ends.Truncate(time.Second)) // exp has whole seconds
	row("a live viewer is out after exp", "-", fmt.Sprintf("%.1f s", late.Seconds()), "0 to 5 s", late >= 0 && late <= 5*time.Second)
	e.stop()
	w.Stop()
}

// fairDisk sends two streams of 20 Mbit/s to a disk of 160 MB for five minutes.
func fairDisk(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	began := time.Now()
	promised, recorded := fullDisk(t, w, "160m", "16MB", 20, func(*poller, string) {
		time.Sleep(time.Until(began.Add(5 * time.Minute)))
	})
	row("answers 500, damage of the database", "-", "none", "none", !t.Failed())
	row("frames of the recording that was promised", fmt.Sprint(promised), fmt.Sprint(recorded), "all", recorded >= promised && !t.Failed())
}

// fairBackup restores a backup on another machine that was made while two recordings ran. On PostgreSQL
// the database has its own backup.
func fairBackup(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	if engineOf(w) != "sqlite" {
		t.Skip("weir backs up SQLite only")
	}
	backupWhileRecording(t, w)
	row("open recordings finish and play elsewhere", "-", "2", "2", !t.Failed())
}
