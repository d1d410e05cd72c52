package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// liveOfficial lets Livepeer's own player play a stream, a clip of it and a video, each public and with
// a JWT: clips and the video to their end, the gated stream until the JWT has expired.
func liveOfficial(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	s := newStream(w, rtmp)
	signer := newSigner(w)
	policy := map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}
	e := s.send(liveClip(t))
	public, gatedVideo := upload(w, harness.TinyClip(t), nil), upload(w, harness.TinyClip(t), policy)
	p := newOfficial(t)

	p.ends(w, public, "")
	p.ends(w, gatedVideo, signer.permit(gatedVideo, time.Hour))

	p.play(w, s.playback, "")
	p.moves()
	p.ends(w, clipOf(w, s.playback), "")

	w.Must("PATCH", "/api/stream/"+s.id, policy, nil)
	gated := clipOf(w, s.playback)
	p.play(w, gated, "")
	harness.Eventually(t, func() error {
		if now := p.state(); len(now.Fatal) == 0 || now.Frames > 0 {
			return fmt.Errorf("the player gets the gated clip without a JWT: %+v", now)
		}
		return nil
	})
	p.ends(w, gated, signer.permit(gated, time.Hour))

	// A machine that is too busy shows nothing of the stream in that time: then the JWT lasts longer.
	var ends time.Time
	var jwt string
	for life, moved := 30*time.Second, false; !moved; life *= 2 {
		ends, jwt = time.Now().Add(life).Truncate(time.Second), signer.permit(s.playback, life)
		p.play(w, s.playback, jwt)
		harness.Eventually(t, func() error {
			now := p.state()
			if moved = now.Frames >= 25; moved || time.Now().After(ends) {
				return nil
			}
			return p.goOn(now)
		})
	}
	harness.Eventually(t, func() error {
		if err := e.running(); err != nil {
			t.Fatal(err)
		}
		now := p.state()
		if status, text := get(t, s.url("index.m3u8?jwt="+jwt)); status != http.StatusOK && time.Until(ends) > time.Second {
			t.Fatalf("%v before the JWT expires: %d %s", time.Until(ends), status, text)
		}
		if time.Now().Before(ends) {
			return p.goOn(now)
		}
		if len(now.Fatal) == 0 {
			return fmt.Errorf("the player still plays after the JWT has expired: %+v", now)
		}
		return nil
	})
	e.stop()
	w.Stop()
}

// clipOf cuts the last two seconds out of a stream on air, and returns the playback id of the clip.
func clipOf(w *harness.Weir, playbackID string) string {
	w.T.Helper()
	now := time.Now()
	var made struct {
		Asset struct{ PlaybackID string }
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/clip", map[string]any{"playbackId": playbackID, "startTime": now.Add(-3 * time.Second).UnixMilli(), "endTime": now.Add(-time.Second).UnixMilli()}, &made)
	w.Completed(made.Task.ID)
	return made.Asset.PlaybackID
}

// official is Livepeer's player in a browser.
type official struct {
	*harness.Browser
	request string // what it plays
}

func newOfficial(t *testing.T) *official {
	t.Helper()
	files := t.TempDir()
	harness.Bundle(t, "official.js", files)
	return &official{Browser: harness.NewBrowser(t, files)}
}

// officialState is what the player tells of what it plays.
type officialState struct {
	Fatal             []string
	Source            string // hls, webrtc or video
	At, Duration      float64
	Ended             bool
	Frames, Corrupted int
}

// play lets the player play what is under a playback id.
func (p *official) play(w *harness.Weir, playbackID, jwt string) {
	p.T.Helper()
	request, err := json.Marshal(map[string]string{"info": w.URL + "/api/playback/" + playbackID, "jwt": jwt})
	if err != nil {
		p.T.Fatal(err)
	}
	p.request = string(request)
	p.reload()
}

// reload begins anew with what the player plays.
func (p *official) reload() {
	p.T.Helper()
	if err := chromedp.Do(p.Ctx, chromedp.Navigate(p.URL+"/official.html")); err != nil {
		p.T.Fatal(err)
	}
	if _, err := chromedp.Run(p.Ctx, chromedp.Evaluate[any]("official("+p.request+")", chromedp.EvalAwaitPromise)); err != nil {
		p.T.Fatal(err)
	}
}

// moves waits until a second of pictures was shown.
func (p *official) moves() {
	p.T.Helper()
	harness.Eventually(p.T, func() error {
		if now := p.state(); now.Frames < 25 {
			return p.goOn(now)
		}
		return nil
	})
}

// ends plays to the end.
func (p *official) ends(w *harness.Weir, playbackID, jwt string) {
	p.T.Helper()
	p.play(w, playbackID, jwt)
	harness.Eventually(p.T, func() error {
		if now := p.state(); len(now.Fatal) > 0 || !now.Ended {
			return p.goOn(now)
		}
		return nil
	})
}

// goOn lets a player that gave up begin anew, as its viewer would, and returns how it goes.
func (p *official) goOn(now officialState) error {
	p.T.Helper()
	if len(now.Fatal) > 0 {
		p.T.Logf("the player gave up: %+v: %s", now, p.Text("said()"))
		p.reload()
	}
	return fmt.Errorf("the player does not play as it should: %+v", now)
}

// state returns how that goes. The player does not try a request again: one that takes 10 s on a busy
// machine ends it, and it begins anew.
func (p *official) state() officialState {
	p.T.Helper()
	state := p.watched()
	if len(state.Fatal) == 0 {
		return state
	}
	said := p.Text("said()")
	if !strings.Contains(said, "TimeOut") {
		return state
	}
	p.T.Logf("the player waited too long: %s", said)
	p.reload()
	return p.watched()
}

// watched returns what the page tells.
func (p *official) watched() officialState {
	p.T.Helper()
	state, err := chromedp.Run(p.Ctx, chromedp.Evaluate[officialState]("watched()"))
	if err != nil {
		p.T.Fatal(err)
	}
	return state
}

// upload sends a file and returns its playback id when it is ready.
func upload(w *harness.Weir, file string, settings map[string]any) (playbackID string) {
	w.T.Helper()
	body := map[string]any{"name": "a video"}
	for name, value := range settings {
		body[name] = value
	}
	var made struct {
		URL   string
		Asset struct{ ID, PlaybackID string }
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/request-upload", body, &made)
	f, err := os.Open(file)
	if err != nil {
		w.T.Fatal(err)
	}
	defer f.Close()
	r, err := http.NewRequestWithContext(w.T.Context(), http.MethodPut, made.URL, f)
	if err != nil {
		w.T.Fatal(err)
	}
	r.ContentLength = harness.FileSize(w.T, file)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		w.T.Fatalf("the upload is answered with %d", response.StatusCode)
	}
	w.Completed(made.Task.ID)
	return made.Asset.PlaybackID
}
