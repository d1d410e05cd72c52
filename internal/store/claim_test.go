package store

import (
	"errors"
	"testing"
	"time"

	"weir/internal/weir"
)

// testLostLine has a line that a has claimed, makes the claim void, and checks that the line is b's
// then, whatever a does.
func testLostLine(t *testing.T, a, b *Store, lose func() error) {
	t.Helper()
	ctx := t.Context()
	if err := a.register(ctx); err != nil {
		t.Fatal(err)
	}
	hook := hookOfAssets(t, a)
	e := emit(t, a, "asset/1")
	before := take(t, a, hook, &e)
	claimLine(t, b, hook, nil)
	if err := lose(); err != nil {
		t.Fatal(err)
	}
	after := take(t, b, hook, &e)
	line := Line{hook.ID, e.Resource}
	if _, err := a.SettleLine(ctx, line, sent(before, over)); !errors.Is(err, ErrLostLine) {
		t.Errorf("SettleLine of the node that lost the line = %v", err)
	}
	if err := a.ReleaseOtherLines(ctx, nil); err != nil {
		t.Fatal(err)
	}
	claimLine(t, a, hook, nil)
	settle(t, b, sent(after, over), false)
	if n := logged(t, b, hook); n != 1 || pending(t, b) != 0 {
		t.Errorf("%d attempts logged, %d deliveries left; want 1 and none", n, pending(t, b))
	}
}

// TestClaimOfDeadNode shows that the deliveries of a node that is silent go to another.
func TestClaimOfDeadNode(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		testLostLine(t, a, b, func() error {
			if err := b.heartbeat(t.Context()); err != nil {
				return err
			}
			claimLine(t, b, weir.Webhook{ID: firstHook(t, b)}, nil) // the node still lives
			if _, err := a.conn.exec(t.Context(), "UPDATE node SET seen_at = 0 WHERE id = 'node-a'"); err != nil {
				return err
			}
			inTouch(t, b, time.Now())
			return b.heartbeat(t.Context())
		})
	})
}

func firstHook(t *testing.T, st *Store) string {
	t.Helper()
	id, err := one(t.Context(), st.conn, scanText, "SELECT id FROM webhook")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestClaimOfFormerBoot shows that a node sends again what it was sending when it was killed.
func TestClaimOfFormerBoot(t *testing.T) {
	eachPair(t, "node-a", "node-a", func(t *testing.T, a, b *Store) {
		testLostLine(t, a, b, func() error { return b.register(t.Context()) })
	})
}

// TestClaimKeepsItsPlace shows that what a node was sending when it was killed is sent before what
// has waited for less long.
func TestClaimKeepsItsPlace(t *testing.T) {
	eachPair(t, "node-a", "node-a", func(t *testing.T, a, b *Store) {
		if err := a.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		hook := hookOfAssets(t, a)
		e1, e2 := emit(t, a, "asset/1"), emit(t, a, "asset/2")
		for i, e := range []weir.Event{e1, e2} { // so that the order does not depend on the clock's steps
			if _, err := a.conn.exec(t.Context(), "UPDATE delivery_line SET due_at = $2 WHERE resource = $1", e.Resource, time.Now().UnixMilli()-int64(10-i)*60_000); err != nil {
				t.Fatal(err)
			}
		}
		take(t, a, hook, &e1)
		if err := b.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(t, b, hook, &e1)
		take(t, b, hook, &e2)
	})
}

// TestClaimOfNodeThatLeft shows that a claim does not outlive a node that has signed off.
func TestClaimOfNodeThatLeft(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		testLostLine(t, a, b, func() error { return errors.Join(a.unregister(t.Context()), b.heartbeat(t.Context())) })
	})
}

// TestReleaseOtherLines checks that a node can give up claims that it has lost track of.
func TestReleaseOtherLines(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		hook := hookOfAssets(t, a)
		e1, e2, e3 := emit(t, a, "asset/1"), emit(t, a, "asset/2"), emit(t, a, "asset/3")
		kept := claimLine(t, a, hook, &e1)
		claimLine(t, a, hook, &e2)
		claimLine(t, b, hook, &e3)
		if err := a.ReleaseOtherLines(t.Context(), []Line{kept}); err != nil {
			t.Fatal(err)
		}
		claimLine(t, b, hook, &e2)
		claimLine(t, b, hook, nil)
	})
}
