package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// liveOfficial lets Livepeer's own player play a video and a stream that need a JWT: the video to
// its end, the stream until the JWT has expired.
func liveOfficial(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	s := newStream(w, rtmp)
	signer := newSigner(w)
	policy := map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}
	w.Must("PATCH", "/api/stream/"+s.id, policy, nil)
	e := s.send(liveClip(t))
	video := upload(w, harness.SmallClip(t), policy)
	p := newOfficial(t)

	p.play(w, video, signer.permit(video, time.Hour))
	harness.Eventually(t, func() error {
		if now := p.state(); len(now.Fatal) > 0 || !now.Ended {
			return fmt.Errorf("the player does not play to the end: %+v", now)
		}
		return nil
	})

	ends := time.Now().Add(20 * time.Second)
	p.play(w, s.playback, signer.permit(s.playback, time.Until(ends)))
	harness.Eventually(t, func() error {
		if now := p.state(); now.Frames < 25 {
			return fmt.Errorf("the player does not play: %+v", now)
		}
		return nil
	})
	harness.Eventually(t, func() error {
		if err := e.running(); err != nil {
			t.Fatal(err)
		}
		now := p.state()
		if early := time.Until(ends); early > time.Second && len(now.Fatal) > 0 {
			t.Fatalf("the player stopped %v before the JWT expired: %+v", early, now)
		}
		if len(now.Fatal) == 0 {
			return fmt.Errorf("the player still plays after the JWT has expired: %+v", now)
		}
		return nil
	})
	e.stop()
	w.Stop()
}

// official is Livepeer's player in a browser.
type official struct{ *harness.Browser }

func newOfficial(t *testing.T) official {
	t.Helper()
	files := t.TempDir()
	harness.Bundle(t, "official.js", files)
	return official{harness.NewBrowser(t, files)}
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
func (p official) play(w *harness.Weir, playbackID, jwt string) {
	p.T.Helper()
	if err := chromedp.Do(p.Ctx, chromedp.Navigate(p.URL+"/official.html")); err != nil {
		p.T.Fatal(err)
	}
	request, err := json.Marshal(map[string]string{"info": w.URL + "/api/playback/" + playbackID, "jwt": jwt})
	if err != nil {
		p.T.Fatal(err)
	}
	if _, err := chromedp.Run(p.Ctx, chromedp.Evaluate[any]("official("+string(request)+")", chromedp.EvalAwaitPromise)); err != nil {
		p.T.Fatal(err)
	}
}

// state returns how that goes.
func (p official) state() officialState {
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
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		w.T.Fatalf("the upload is answered with %d", answer.StatusCode)
	}
	w.Completed(made.Task.ID)
	return made.Asset.PlaybackID
}
