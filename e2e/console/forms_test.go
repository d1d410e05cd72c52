package console

import (
	"fmt"
	"testing"

	"weir/e2e/harness"
)

type policy struct{ Type, WebhookID string }

// TestAccessWebhook gives streams and uploads the webhook that decides who may watch, in their forms.
func TestAccessWebhook(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	p := openConsole(t, w)
	p.open("streams?create=1")
	p.says("make a webhook for playback.accessControl")
	var deciding, other struct{ ID string }
	w.Must("POST", "/api/webhook", map[string]any{"name": "my shop", "url": "http://127.0.0.1:9/hook", "events": []string{"playback.accessControl"}}, &deciding)
	w.Must("POST", "/api/webhook", map[string]any{"name": "elsewhere", "url": "http://127.0.0.1:9/other", "events": []string{"stream.started"}}, &other)

	p.open("streams?create=1")
	p.fill("Name", "For customers")
	p.fill("Renditions", "none")
	p.fill("Who may watch", "webhook:"+deciding.ID)
	if texts := eval[[]string](p, `return [...field('Who may watch').options].map((o) => o.textContent)`); len(texts) != 3 {
		t.Errorf("the form offers %q", texts)
	}
	p.look(allLooks[2])
	p.screenshot("policy-phone")
	p.look(allLooks[0])
	p.screenshot("policy")
	p.click("Create the stream")
	id := p.reaches("streams/")
	has := func(want policy) {
		t.Helper()
		harness.Eventually(t, func() error {
			var stream struct{ PlaybackPolicy *policy }
			w.Must("GET", "/api/stream/"+id, nil, &stream)
			return differs(stream.PlaybackPolicy, want)
		})
	}
	has(policy{"webhook", deciding.ID})
	p.says("Send to it")
	p.click("Edit")
	p.fill("Who may watch", "jwt")
	p.click("Save")
	has(policy{Type: "jwt"})
	p.open("streams/" + id)
	p.click("Edit")
	p.fill("Who may watch", "webhook:"+deciding.ID)
	p.click("Save")
	has(policy{"webhook", deciding.ID})

	p.open("assets")
	p.click("Import from a URL")
	p.fill("URL of the file", harness.NewOrigin(t, harness.TinyClip(t)).URL+"/film.mp4")
	p.fill("Who may play it", "webhook:"+deciding.ID)
	p.click("Import")
	asset := p.reaches("assets/")
	var made struct{ PlaybackPolicy *policy }
	w.Must("GET", "/api/asset/"+asset, nil, &made)
	if err := differs(made.PlaybackPolicy, policy{"webhook", deciding.ID}); err != nil {
		t.Error(err)
	}
	w.Stop()
}

func differs(got *policy, want policy) error {
	if got == nil || *got != want {
		return fmt.Errorf("the policy is %+v, want %+v", got, want)
	}
	return nil
}

// broadcast sends three seconds to a stream and ends.
func broadcast(t *testing.T, rtmp, key string) {
	t.Helper()
	harness.FFmpeg(t, append(append([]string{"-re"}, harness.Pictures("160x90", 25, 3)...),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-c:a", "aac", "-f", "flv", "rtmp://"+rtmp+"/live/"+key)...)
}

// TestEvents opens the events of a stream after a broadcast, and leaves them open during the next one.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	p := openConsole(t, w)
	var stream struct{ ID, StreamKey string }
	w.Must("POST", "/api/stream", map[string]any{"name": "The show", "profiles": []any{}}, &stream)
	p.open("streams/" + stream.ID + "?tab=events")
	p.says("Nothing has happened yet")
	p.open("streams")
	broadcast(t, rtmp, stream.StreamKey)
	shows := `all('.events code').filter((e) => e.textContent === args[0]).length === args[1]`
	p.open("streams/" + stream.ID + "?tab=events")
	p.until(shows, "stream.started", 1)
	p.until(shows, "stream.idle", 1)
	broadcast(t, rtmp, stream.StreamKey)
	p.until(shows, "stream.started", 2)
	p.until(shows, "stream.idle", 2)
	p.screenshot("events")
	p.look(allLooks[2])
	p.screenshot("events-phone")
	w.Stop()
}

// TestLastSeen looks for the administrator who is logged in on the page of the users.
func TestLastSeen(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	p := openConsole(t, w)
	harness.Eventually(t, func() error {
		p.open("users")
		seen := eval[string](p, `return squeeze(all('td[data-label="Last seen"]')[0].textContent)`)
		if seen == "never" {
			return fmt.Errorf("the administrator was last seen %s", seen)
		}
		return nil
	})
	w.Stop()
}

// TestFrame looks at what surrounds the pages: the log-out is in sight, also in a low window and on a
// phone, and no e-mail address is broken.
func TestFrame(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	w.Run("user", "create", "somebody.with-a-long-name@department.example.com")
	p := openConsole(t, w)
	p.open("users")
	inSight := func(name string) {
		t.Helper()
		p.until(`(() => {
			const e = named('button', 'Log out')[0]?.getBoundingClientRect();
			return e && e.top >= 0 && e.bottom <= innerHeight;
		})()`)
		p.screenshot(name)
	}
	p.look(look{"low", 1100, 600, "light"})
	inSight("frame-low")
	if broken := eval[[]string](p, `return all('td .whole').filter((e) => e.getClientRects().length > 1 || e.offsetHeight > 30).map((e) => e.textContent)`); len(broken) > 0 {
		t.Errorf("these are broken: %q", broken)
	}
	if over := eval[float64](p, `return all('table')[0].getBoundingClientRect().right - all('.card')[0].getBoundingClientRect().right`); over > 0 {
		t.Errorf("the table is %.0f px wider than its card", over)
	}
	if n := eval[int](p, `return all('td .whole').length`); n != 2 {
		t.Errorf("there are %d e-mail addresses", n)
	}
	p.look(allLooks[2])
	p.screenshot("users-phone")
	p.click("Menu")
	inSight("frame-phone")
	w.Stop()
}

// TestUninvited opens a film that is not for everybody.
func TestUninvited(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	var made struct {
		Asset madeAsset
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{
		"name": "For members", "url": harness.NewOrigin(t, harness.TinyClip(t)).URL + "/film.mp4", "playbackPolicy": map[string]any{"type": "jwt"},
	}, &made)
	w.Completed(made.Task.ID)
	p := newTab(t, harness.NewBrowser(t, t.TempDir()), w.URL+"/")
	p.navigate(w.URL + "/play/" + made.Asset.PlaybackID)
	p.says("This video is not open to everybody")
	p.says("You need a link that lets you in.")
	if n := eval[int](p, `return named('button', 'Try again').length`); n != 0 {
		t.Error("somebody without a link may try again")
	}
	p.look(allLooks[2])
	p.screenshot("uninvited-phone")
	p.look(allLooks[0])
	p.screenshot("uninvited")
	p.navigate(w.URL + "/play/" + made.Asset.PlaybackID + "?jwt=e.e.e")
	p.says("Your link does not let you in, or no longer.")
	w.Stop()
}
