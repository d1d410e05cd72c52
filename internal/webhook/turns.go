package webhook

import "weir/internal/store"

// turns decides to which webhook this node sends next. Accounts take turns, and within an account
// its webhooks do: the one that was served least recently is next.
//
// A turn is a slot for as long as the receiver takes to answer, and a receiver may take long on
// purpose. So slots are kept for those who come later:
//
//   - An account may hold at most as many slots as it leaves free, and a webhook at most as many as
//     it leaves to the other webhooks of its account. One account alone gets half of the slots; with
//     n accounts that hold all they can, the next one still finds as many slots as each of them has.
//   - A webhook that has timed out gets one slot until it answers again, and all such webhooks
//     together get a quarter of the slots. So however many accounts time out, the others share
//     three quarters.
//   - A quarter of the slots is kept for accounts that hold none, one each, and not for webhooks that
//     have timed out. Half of these are for webhooks that have responded to their last delivery. So
//     many accounts that have not timed out yet, and take what they can one after the other, do not
//     delay the first delivery of those whose receivers respond.
//
// It has no lock: one goroutine uses it.
type turns struct {
	slots    int
	inFlight int
	taken    int64 // turns so far
	accounts map[string]*account
}

type account struct {
	inFlight int
	last     int64 // its last turn
	hooks    map[string]*hook
}

type hook struct {
	inFlight int
	last     int64
	timeouts int  // in a row
	due      bool // it has deliveries to send
	responds bool // its receiver has responded to the last delivery
}

// timedOut reports whether the webhook has timed out since its last success.
func (h *hook) timedOut() bool { return h.timeouts > 0 }

func newTurns(slots int) *turns { return &turns{slots: slots, accounts: map[string]*account{}} }

// hook returns the state of a webhook.
func (t *turns) hook(userID, hookID string) (*account, *hook) {
	a := t.accounts[userID]
	if a == nil {
		a = &account{hooks: map[string]*hook{}}
		t.accounts[userID] = a
	}
	h := a.hooks[hookID]
	if h == nil {
		h = &hook{}
		a.hooks[hookID] = h
	}
	return a, h
}

// setDue says which webhooks have deliveries to send. It forgets all others to which nothing is
// being sent.
func (t *turns) setDue(due []store.DueWebhook) {
	for _, a := range t.accounts {
		for _, h := range a.hooks {
			h.due = false
		}
	}
	for _, d := range due {
		_, h := t.hook(d.UserID, d.ID)
		h.due, h.timeouts, h.responds = true, d.Timeouts, d.Responds
	}
	for userID, a := range t.accounts {
		for hookID, h := range a.hooks {
			if !h.due && h.inFlight == 0 {
				delete(a.hooks, hookID)
			}
		}
		if len(a.hooks) == 0 {
			delete(t.accounts, userID)
		}
	}
}

// next returns the webhook whose turn it is. ok is false when there is none, or no slot for it.
func (t *turns) next() (userID, hookID string, ok bool) {
	left, mayTimeOut := t.slots-t.inFlight, t.timedOutSlots() < t.slots/4
	free := left - t.slots/4 // without those that are kept
	var first *account
	for id, a := range t.accounts {
		if first != nil && a.last >= first.last {
			continue
		}
		chosen := a.next(func(h *hook) bool {
			return h.inFlight < free-a.inFlight && (!h.timedOut() || mayTimeOut && h.inFlight == 0)
		})
		if chosen == "" && a.inFlight == 0 && left > 0 {
			chosen = a.next(func(h *hook) bool { return !h.timedOut() && (h.responds || left > t.slots/8) })
		}
		if chosen != "" {
			first, userID, hookID = a, id, chosen
		}
	}
	return userID, hookID, first != nil
}

// next returns the webhook of an account whose turn it is, of those that may have a slot; "" if there
// is none.
func (a *account) next(may func(*hook) bool) (hookID string) {
	var first *hook
	for id, h := range a.hooks {
		if h.due && may(h) && (first == nil || h.last < first.last) {
			first, hookID = h, id
		}
	}
	return hookID
}

// timedOutSlots returns how many slots are held by webhooks that have timed out.
func (t *turns) timedOutSlots() (n int) {
	for _, a := range t.accounts {
		for _, h := range a.hooks {
			if h.timedOut() {
				n += h.inFlight
			}
		}
	}
	return n
}

// setIdle says that a webhook has nothing to send.
func (t *turns) setIdle(userID, hookID string) {
	_, h := t.hook(userID, hookID)
	h.due = false
}

// takeSlot takes a slot for a webhook.
func (t *turns) takeSlot(userID, hookID string) {
	a, h := t.hook(userID, hookID)
	t.taken++
	a.last, h.last = t.taken, t.taken
	t.inFlight, a.inFlight, h.inFlight = t.inFlight+1, a.inFlight+1, h.inFlight+1
}

// freeSlot gives the slot back.
func (t *turns) freeSlot(userID, hookID string) {
	a, h := t.hook(userID, hookID)
	t.inFlight, a.inFlight, h.inFlight = t.inFlight-1, a.inFlight-1, h.inFlight-1
}

// record keeps what an attempt has shown of a webhook.
func (t *turns) record(userID, hookID string, s store.Settled) {
	_, h := t.hook(userID, hookID)
	h.timeouts, h.responds, h.due = s.Timeouts, s.Responds, h.due || s.More
}
