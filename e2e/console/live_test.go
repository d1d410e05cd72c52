package console

import (
	"testing"

	"weir/e2e/harness"
)

// TestStop ends a broadcast of the page, which must not offer to take over from itself while the server
// does not know of the end.
func TestStop(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start("--webrtc", harness.FreeAddr(t))
	b := harness.NewBrowser(t, t.TempDir())
	p := firstLogIn(t, b, w)
	var stream struct{ ID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "The show", "profiles": []any{}}, &stream)
	p.open("streams/" + stream.ID + "/live")
	p.click("Start the broadcast")
	p.says("You are on air.")
	p.until(`all('.badge.live').length > 0`)
	eval[bool](p, `globalThis.offered = false;
		new MutationObserver(() => globalThis.offered ||= document.body.innerText.includes('you take over'))
			.observe(document.body, {subtree: true, childList: true, characterData: true});
		return true`)
	p.click("Stop")
	p.says("Record this broadcast") // when the server has seen the end
	if eval[bool](p, `return globalThis.offered`) {
		t.Error("after Stop the page offered to take over from itself")
	}
	p.click("Start the broadcast")
	p.says("You are on air.")
	p.until(`all('.badge.live').length > 0`)
	p.says("Stop")

	// Another page may take over.
	second := newTab(t, b, p.base)
	second.open("streams/" + stream.ID + "/live")
	second.says("If you start, you take over.")
	w.Stop()
}

// TestGoLive does what the README says: two clicks, and the page shows what viewers see and the link for
// them. A page that has no camera leaves no stream behind.
func TestGoLive(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start("--webrtc", harness.FreeAddr(t))
	b := harness.NewBrowser(t, t.TempDir())
	p := firstLogIn(t, b, w)
	streams := func() (all []struct{ ID, PlaybackID string }) {
		t.Helper()
		w.Must("GET", "/api/stream", nil, &all)
		return all
	}

	blind := newTab(t, b, p.base)
	blind.withScript(`navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('there is none', 'NotFoundError'));`)
	blind.open("")
	blind.click("Go live from this browser")
	blind.reaches("live")
	blind.until(`all('[role=alert]').length > 0`)
	if all := streams(); len(all) != 0 {
		t.Errorf("without a camera there are streams: %+v", all)
	}

	p.open("")
	p.click("Go live from this browser")
	p.reaches("live")
	p.until(`named('button', 'Start the broadcast').some((e) => !e.disabled)`)
	if all := streams(); len(all) != 0 {
		t.Errorf("before the broadcast there are streams: %+v", all)
	}
	p.click("Start the broadcast")
	p.until(moves)
	p.says("You are on air.")
	all := streams()
	if len(all) != 1 {
		t.Fatalf("there are streams: %+v", all)
	}
	p.until(`all('.under-player code').some((e) => e.textContent === args[0])`, p.base+"play/"+all[0].PlaybackID)
	p.screenshot("go-live")
	p.look(allLooks[2])
	p.screenshot("go-live-phone")
	p.look(allLooks[0])
	p.click("Stop")
	p.says("Record this broadcast")
	p.click("Start the broadcast")
	p.until(`all('.badge.live').length > 0`)
	if all := streams(); len(all) != 1 {
		t.Errorf("a second broadcast of the page made another stream: %+v", all)
	}
	w.Stop()
}
