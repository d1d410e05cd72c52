package account

import (
	"testing"
	"time"

	"weir/internal/weir"
)

// A token of a command is that of its user, and is not valid for long.
func TestCommandToken(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	token, expires, err := f.CommandToken(ann)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := f.Verify(t.Context(), token.Reveal(), now()); err != nil || id != ann.ID {
		t.Errorf("the token is %q's (%v), want %q", id, err, ann.ID)
	}
	if left := time.Until(expires); left > commandTokenLife {
		t.Errorf("the token is valid for %v", left)
	}
	_, err = f.Verify(t.Context(), token.Reveal(), expires.Add(time.Second))
	wantError(t, err, weir.Unauthenticated, "access token expired")
	ann.Suspended = true
	_, _, err = f.CommandToken(ann)
	wantError(t, err, weir.Denied, "user is suspended")
}
