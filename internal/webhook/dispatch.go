package webhook

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/store"
)

const (
	// slots is how many deliveries a node sends at once. They only wait, each with a connection.
	slots = 64
	// claimAtOnce bounds how long a transaction that claims takes.
	claimAtOnce = 32
	// lookEvery is the interval of checks for retries that are due and for pauses that have ended.
	// New events are noticed at once.
	lookEvery = time.Second
	// settleTimeout bounds the writing of a result.
	settleTimeout = 10 * time.Second
)

// dispatcher is the part of a Sender that sends events: it claims lines of deliveries in turn and
// sends one delivery of each.
type dispatcher struct {
	*Sender
	turns   *turns
	claimed map[store.Line]*claim // the lines of which a delivery is being sent
	results chan result
	look    bool // webhooks may be due that are not known yet
	unused  bool // this process may have claims of lines that are not in claimed

	sending context.Context // of the exchanges
	cancel  context.CancelFunc
}

// claim is a line of which this process sends a delivery.
type claim struct {
	userID   string      // the account of the webhook
	settling atomic.Bool // the result is being written, which leaves the line
}

// result is what became of the delivery of a line.
type result struct {
	line    store.Line
	claim   *claim
	settled store.Settled
	err     error
}

// newDispatcher returns a dispatcher whose exchanges outlive ctx.
func (s *Sender) newDispatcher(ctx context.Context) *dispatcher {
	d := &dispatcher{
		Sender: s, turns: newTurns(s.slots), claimed: map[store.Line]*claim{}, results: make(chan result, s.slots), look: true,
	}
	d.renew(ctx)
	return d
}

// Run sends events until ctx ends. Then it gives exchanges at most Drain to finish. The store of
// the node must run meanwhile, and until Run returns.
func (s *Sender) Run(ctx context.Context) error {
	d := s.newDispatcher(ctx)
	if !d.awaitRegistration(ctx) {
		return nil
	}
	changed, stop := s.store.Watch(store.TopicEvent)
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		d.claim(ctx)
		select {
		case <-ctx.Done():
			d.drain(ctx)
			return nil
		case r := <-d.results:
			d.handle(ctx, r)
		case <-changed:
			d.look = true
		case <-tick.C:
			d.look = true
			d.releaseUnused(ctx)
		}
	}
}

// renew makes the context of the next exchanges. They outlive ctx.
func (d *dispatcher) renew(ctx context.Context) {
	d.sending, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
}

// awaitRegistration waits until claims of this node are valid, or ctx ends.
func (d *dispatcher) awaitRegistration(ctx context.Context) bool {
	for {
		if ok, err := d.store.Registered(ctx); err == nil && ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookEvery / 20):
		}
	}
}

// claim fills the free slots.
func (d *dispatcher) claim(ctx context.Context) {
	if d.store.Lost() {
		// Other nodes will send what this one has claimed.
		d.cancel()
		d.renew(ctx)
		return
	}
	if d.look {
		due, err := d.store.DueWebhooks(ctx)
		if err != nil {
			d.warn(ctx, "due deliveries could not be read", err)
			return
		}
		d.turns.setDue(due)
		d.look = false
	}
	for ctx.Err() == nil {
		if _, _, ok := d.turns.next(); !ok {
			return
		}
		if err := d.claimSome(ctx); err != nil {
			d.unused = true // perhaps the transaction was committed
			d.warn(ctx, "deliveries could not be claimed", err)
			return
		}
	}
}

// claimSome claims some lines in turn, and sends a delivery of each.
func (d *dispatcher) claimSome(ctx context.Context) error {
	claimed := map[store.Line]*claim{}
	err := d.store.Tx(ctx, func(tx *store.Tx) error {
		// On SQLite, which has one writer, other deliveries have ended while this transaction waited.
		d.handleAll(ctx)
		for range claimAtOnce {
			userID, hookID, ok := d.turns.next()
			if !ok {
				return nil
			}
			line, ok, err := tx.ClaimLine(ctx, hookID)
			if err != nil {
				return err
			}
			if !ok {
				d.turns.setIdle(userID, hookID)
				continue
			}
			// A line that was left is free before its result is handled. One that is still being sent
			// was free because the claim was void for a while: the end of the exchange leaves it.
			if before := d.claimed[line]; before != nil && !before.settling.Load() {
				continue
			}
			d.turns.takeSlot(userID, hookID)
			claimed[line] = &claim{userID: userID}
		}
		return nil
	})
	for line, c := range claimed {
		if err != nil {
			d.turns.freeSlot(c.userID, line.WebhookID)
			continue
		}
		d.claimed[line] = c
		d.inFlight.Add(1)
		go d.send(d.sending, line, c)
	}
	return err
}

// send sends a delivery of a line and writes the result.
func (d *dispatcher) send(ctx context.Context, line store.Line, c *claim) {
	r := result{line: line, claim: c}
	defer func() { d.results <- r }()
	var attempt *store.Attempt
	delivery, ok, err := d.store.NextDelivery(ctx, line)
	if err == nil && ok {
		attempt = &store.Attempt{}
		*attempt, err = d.attempt(ctx, delivery)
	}
	if err != nil {
		r.err = err
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	c.settling.Store(true)
	r.settled, r.err = d.store.SettleLine(ctx, line, attempt)
}

// handleAll handles the results that have come in.
func (d *dispatcher) handleAll(ctx context.Context) {
	for {
		select {
		case r := <-d.results:
			d.handle(ctx, r)
		default:
			return
		}
	}
}

// handle frees the slot of a delivery, and keeps what its result says about the webhook.
func (d *dispatcher) handle(ctx context.Context, r result) {
	userID := r.claim.userID
	if d.claimed[r.line] == r.claim { // else the line was claimed again meanwhile
		delete(d.claimed, r.line)
	}
	d.inFlight.Add(-1)
	d.turns.freeSlot(userID, r.line.WebhookID)
	switch {
	case r.err == nil:
		d.turns.record(userID, r.line.WebhookID, r.settled)
	case errors.Is(r.err, store.ErrLostLine), errors.Is(r.err, context.Canceled): // another node has it, or may take it
		d.unused = true
		d.log.WarnContext(ctx, "delivery interrupted: another node may send it", "webhook", r.line.WebhookID)
	default:
		d.unused = true
		d.log.WarnContext(ctx, "result of a delivery is unknown; it is sent again", "webhook", r.line.WebhookID, "err", r.err)
	}
}

// releaseUnused releases claims that a failure has left behind, so that their deliveries are sent.
func (d *dispatcher) releaseUnused(ctx context.Context) {
	if !d.unused || d.store.Lost() {
		return
	}
	if err := d.store.ReleaseOtherLines(ctx, slices.Collect(maps.Keys(d.claimed))); err != nil {
		d.warn(ctx, "unused claims of deliveries could not be released; retrying", err)
		return
	}
	d.unused = false
}

// drain waits for the exchanges, and ends those that take too long.
func (d *dispatcher) drain(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	defer time.AfterFunc(d.Drain, d.cancel).Stop()
	for d.inFlight.Load() > 0 {
		d.handle(ctx, <-d.results)
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	d.releaseUnused(ctx)
	d.cancel()
}

func (d *dispatcher) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		d.log.WarnContext(ctx, what, slog.Any("err", err))
	}
}
