package access

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

func newTokens(t testing.TB) *tokens {
	t.Helper()
	var keys tokens
	if err := keys.use([]byte("0123456789abcdef0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	return &keys
}

// The same viewer gets the same addresses again, others get others.
func TestTokensAreStable(t *testing.T) {
	t.Parallel()
	keys := newTokens(t)
	title := &Title{PlaybackID: "p", Policy: &weir.PlaybackPolicy{Type: weir.PolicyJWT}, Length: time.Minute}
	now := time.Date(2030, 1, 1, 12, 1, 0, 0, time.UTC)
	by := Decision{KeyID: "key"}
	first := keys.issue(title, by, "", "ann", now)
	var all []string
	for _, token := range []*Token{
		first, keys.issue(title, by, "", "bob", now), keys.issue(title, Decision{}, "", "ann", now),
		keys.issue(title, by, "", "ann", now.Add(rounded)),
	} {
		if slices.Contains(all, token.Text) {
			t.Error("two tokens are the same")
		}
		all = append(all, token.Text)
	}
	if again := keys.issue(title, by, "", "ann", now.Add(10*time.Minute)); again.Text != first.Text {
		t.Error("a viewer who comes back gets another token")
	}
	for after, ok := range map[time.Duration]bool{0: true, storedLife - rounded: true, storedLife: false} {
		token, err := keys.open(title, first.Text)
		if err != nil || ok == token.expired(now.Add(after)) || token.key != by.KeyID || token.Viewer != first.Viewer {
			t.Errorf("after %s: %+v, %v", after, token, err)
		}
	}
	for _, length := range []time.Duration{0, time.Hour, 3 * time.Hour, 4 * time.Hour, 10 * time.Hour} {
		for minutes := range 60 {
			start := now.Add(time.Duration(minutes) * time.Minute)
			title.Length = length
			life := keys.issue(title, by, "", "ann", start).ends.Sub(start)
			if life < length || life > max(6*time.Hour, 2*length) {
				t.Errorf("the token of a video of %s is valid for %s", length, life)
			}
		}
	}
}

// The longest access key fits into a token.
func TestLongAccessKey(t *testing.T) {
	t.Parallel()
	keys := newTokens(t)
	title := &Title{PlaybackID: "p", Policy: &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}, Stream: true}
	long := strings.Repeat("k", maxAccessKey)
	token := keys.issue(title, Decision{}, long, "ann", time.Now())
	if opened, err := keys.open(title, token.Text); err != nil || opened.accessKey.Reveal() != long {
		t.Errorf("the longest access key that a token can have: %v", err)
	}
}

// No text opens a title but one that was issued for it.
func FuzzToken(f *testing.F) {
	keys := newTokens(f)
	titles := []Title{
		{PlaybackID: "p", Policy: &weir.PlaybackPolicy{Type: weir.PolicyJWT}},
		{PlaybackID: "p", Stream: true, Policy: &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}},
	}
	good := make([]*Token, len(titles))
	for i := range titles {
		good[i] = keys.issue(&titles[i], Decision{KeyID: "key", Expires: time.Now().Add(time.Hour)}, "access key", "viewer", time.Now())
		text := good[i].Text
		for _, seed := range []string{"", "x", text, text[1:], text + "A", text + "=", strings.ToUpper(text)} {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i := range titles {
			token, err := keys.open(&titles[i], text)
			if (err == nil) != (text == good[i].Text) {
				t.Errorf("open(%q) = %+v, %v", text, token, err)
			}
			if err != nil && weir.KindOf(err) != weir.Denied {
				t.Errorf("open(%q): %v", text, err)
			}
		}
	})
}
