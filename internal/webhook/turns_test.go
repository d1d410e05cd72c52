package webhook

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/store"
)

// due are webhooks that have deliveries to send, as store.DueWebhooks returns them.
func dueHooks(userID string, hooks, timeouts int) (all []store.DueWebhook) {
	for i := range hooks {
		all = append(all, store.DueWebhook{ID: fmt.Sprintf("%s-%d", userID, i), UserID: userID, Timeouts: timeouts})
	}
	return all
}

// take starts all that may be started, and returns the webhooks in their order.
func (t *turns) take() (started []string) {
	for {
		userID, hookID, ok := t.next()
		if !ok {
			return started
		}
		t.takeSlot(userID, hookID)
		started = append(started, hookID)
	}
}

// held returns how many slots an account has.
func (t *turns) held(userID string) int {
	if t.accounts[userID] == nil {
		return 0
	}
	return t.accounts[userID].inFlight
}

func TestAccountsTakeTurns(t *testing.T) {
	turns := newTurns(64)
	turns.setDue(slices.Concat(dueHooks("eve", 100, 0), dueHooks("ann", 1, 0), dueHooks("bob", 2, 0)))
	// One slot each, again and again.
	served := map[string]int{}
	for range 30 {
		userID, hookID, ok := turns.next()
		if !ok {
			t.Fatal("nothing is next")
		}
		turns.takeSlot(userID, hookID)
		turns.freeSlot(userID, hookID)
		served[userID]++
		served[hookID]++
	}
	if served["eve"] != 10 || served["ann"] != 10 || served["bob"] != 10 {
		t.Errorf("served %v, want each account 10 times", served)
	}
	if served["bob-0"] != 5 || served["bob-1"] != 5 || served["eve-0"] > 1 {
		t.Errorf("served %v, want the webhooks of an account in turn", served)
	}
	// Whoever has nothing to send is passed over.
	turns.setIdle("ann", "ann-0")
	for range 10 {
		userID, hookID, _ := turns.next()
		turns.takeSlot(userID, hookID)
		turns.freeSlot(userID, hookID)
		if userID == "ann" {
			t.Error("ann, who has nothing to send, is next")
		}
	}
}

// TestSlotsAreLeft checks how many slots accounts get whose webhooks never answer.
func TestSlotsAreLeft(t *testing.T) {
	turns := newTurns(64)
	turns.setDue(dueHooks("eve", 100, 0))
	if n := len(turns.take()); n != 24 {
		t.Errorf("one account got %d slots, want half of those that are not kept", n)
	}
	turns.setDue(slices.Concat(dueHooks("eve", 100, 0), dueHooks("ann", 20, 0)))
	if turns.take(); turns.held("eve") != 24 || turns.held("ann") != 12 {
		t.Errorf("eve has %d slots, ann %d; want 24 and half of the rest", turns.held("eve"), turns.held("ann"))
	}
	// With many accounts that take all they can, another one still finds as many slots.
	for _, accounts := range []int{2, 7, 31, 60} {
		turns := newTurns(64)
		var all []store.DueWebhook
		for i := range accounts {
			all = append(all, dueHooks(fmt.Sprintf("eve%d", i), 100, 0)...)
		}
		turns.setDue(all)
		turns.take()
		most := turns.held("eve0")
		turns.setDue(append(all, responding(dueHooks("ann", 100, 0))...))
		turns.take()
		if ann := turns.held("ann"); ann < 1 || ann < most/2 {
			t.Errorf("beside %d accounts with up to %d slots, another one gets %d", accounts, most, ann)
		}
	}
}

// TestSlotsOfWebhook checks that a webhook that does not answer leaves slots to others of its
// account.
func TestSlotsOfWebhook(t *testing.T) {
	turns := newTurns(64)
	turns.setDue(dueHooks("ann", 1, 0))
	if n := len(turns.take()); n != 16 {
		t.Errorf("the only webhook got %d slots, want a third of those that are not kept", n)
	}
	turns.setDue(dueHooks("ann", 2, 0))
	if started := turns.take(); len(started) != 6 || started[0] != "ann-1" {
		t.Errorf("another webhook of the account got %v, want 6 slots", started)
	}
}

// TestTroubledSlots checks that webhooks that time out share a quarter of the slots, one each.
func TestTroubledSlots(t *testing.T) {
	turns := newTurns(64)
	var all []store.DueWebhook
	for i := range 50 {
		all = append(all, dueHooks(fmt.Sprintf("eve%d", i), 100, 1+i)...)
	}
	turns.setDue(all)
	started := turns.take()
	if len(started) != 16 {
		t.Errorf("they got %d slots, want 16", len(started))
	}
	if slices.Sort(started); len(slices.Compact(started)) != 16 {
		t.Errorf("one has two slots: %v", started)
	}
	turns.setDue(append(all, dueHooks("ann", 30, 0)...))
	if turns.take(); turns.held("ann") != 16 {
		t.Errorf("ann has %d slots, want half of the other 32", turns.held("ann"))
	}
	// A webhook is in trouble as soon as one of its deliveries has timed out, and out of it with a
	// success.
	turns = newTurns(64)
	turns.setDue(dueHooks("ann", 1, 0))
	turns.take()
	turns.freeSlot("ann", "ann-0")
	turns.record("ann", "ann-0", store.Settled{More: true, Timeouts: 1})
	if started := turns.take(); len(started) != 0 {
		t.Errorf("after a time-out %v were started", started)
	}
	for range 15 {
		turns.freeSlot("ann", "ann-0")
	}
	if started := turns.take(); len(started) != 1 {
		t.Errorf("after a time-out %v were started, want one", started)
	}
	turns.freeSlot("ann", "ann-0")
	turns.record("ann", "ann-0", store.Settled{More: true})
	if started := turns.take(); len(started) != 16 {
		t.Errorf("after a success %d were started", len(started))
	}
}

// responding are webhooks whose receivers have responded to the last delivery.
func responding(all []store.DueWebhook) []store.DueWebhook {
	for i := range all {
		all[i].Responds = true
	}
	return all
}

// TestSlotsAreKept has accounts that take all they can, one after the other, and do not time out yet.
// Others whose receivers respond are not delayed, and as long as they are not too many, nor are others
// that send for the first time.
func TestSlotsAreKept(t *testing.T) {
	for _, attack := range []struct {
		accounts int
		respond  bool // theirs have responded to the last delivery, too
		newcomer bool // another one that sends for the first time gets a slot
	}{{8, false, true}, {12, false, true}, {60, false, false}, {12, true, true}} {
		turns := newTurns(64)
		var all []store.DueWebhook
		for i := range attack.accounts {
			more := dueHooks(fmt.Sprintf("eve%d", i), 100, 0)
			if attack.respond {
				more = responding(more)
			}
			all = append(all, more...)
			turns.setDue(all)
			turns.take()
		}
		for name, hooks := range map[string][]store.DueWebhook{"ann": responding(dueHooks("ann", 3, 0)), "bob": dueHooks("bob", 3, 0)} {
			want := 1
			if name == "bob" && !attack.newcomer {
				want = 0
			}
			turns.setDue(slices.Concat(all, hooks))
			if turns.take(); turns.held(name) != want {
				t.Errorf("beside %+v, %s has %d slots, want %d", attack, name, turns.held(name), want)
			}
		}
		turns.setDue(slices.Concat(all, dueHooks("carl", 3, 1)))
		if turns.take(); turns.held("carl") != 0 {
			t.Errorf("beside %+v, a webhook that has timed out has %d slots", attack, turns.held("carl"))
		}
	}
}

// TestTurnsForget checks that only webhooks that are due or in flight take memory.
func TestTurnsForget(t *testing.T) {
	turns := newTurns(8)
	turns.setDue(slices.Concat(dueHooks("ann", 1, 0), dueHooks("eve", 100, 0)))
	turns.takeSlot("ann", "ann-0")
	turns.setDue(nil)
	if len(turns.accounts) != 1 || turns.held("ann") != 1 {
		t.Errorf("%d accounts are known, want ann", len(turns.accounts))
	}
	turns.freeSlot("ann", "ann-0")
	turns.record("ann", "ann-0", store.Settled{})
	turns.setDue(nil)
	if len(turns.accounts) != 0 || turns.inFlight != 0 {
		t.Errorf("%d accounts are known, %d in flight; want none", len(turns.accounts), turns.inFlight)
	}
}
