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
