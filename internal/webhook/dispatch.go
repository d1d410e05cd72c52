package webhook

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
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
	flights map[store.Line]string // the lines that are claimed → the account of the webhook
	landed  chan landing
	look    bool // webhooks may be due that are not known yet
	stray   bool // this process may have claims of lines that are not in flights

	sending context.Context // of the exchanges
	cut     context.CancelFunc
}

// landing is the end of a flight.
type landing struct {
	line    store.Line
	settled store.Settled
	err     error
}

// Run sends events until ctx ends. Then it gives exchanges at most Drain to finish. The store of
// the node must run meanwhile, and until Run returns.
func (s *Sender) Run(ctx context.Context) error {
	d := &dispatcher{
		Sender: s, turns: newTurns(s.slots), flights: map[store.Line]string{}, landed: make(chan landing, s.slots), look: true,
	}
	d.renew(ctx)
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
		case l := <-d.landed:
			d.land(ctx, l)
		case <-changed:
			d.look = true
		case <-tick.C:
			d.look = true
			d.leaveStray(ctx)
		}
	}
}

// renew makes the context of the next exchanges. They outlive ctx.
func (d *dispatcher) renew(ctx context.Context) {
	d.sending, d.cut = context.WithCancel(context.WithoutCancel(ctx))
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
		d.cut()
		d.renew(ctx)
		return
	}
	if d.look {
		due, err := d.store.DueWebhooks(ctx)
		if err != nil {
			d.warn(ctx, "deliveries that are due could not be looked up", err)
			return
		}
		d.turns.found(due)
		d.look = false
	}
	for ctx.Err() == nil {
		if _, _, ok := d.turns.next(); !ok {
			return
		}
		if err := d.claimSome(ctx); err != nil {
			d.stray = true // perhaps the transaction was committed
			d.warn(ctx, "deliveries could not be claimed", err)
			return
		}
	}
}

// claimSome claims some lines in turn, and sends a delivery of each.
func (d *dispatcher) claimSome(ctx context.Context) error {
	claimed := map[store.Line]string{}
	err := d.store.Tx(ctx, func(tx *store.Tx) error {
		// On SQLite, which has one writer, others have landed while this transaction waited.
		d.landAll(ctx)
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
				d.turns.none(userID, hookID)
				continue
			}
			d.turns.start(userID, hookID)
			claimed[line] = userID
		}
		return nil
	})
	for line, userID := range claimed {
		if err != nil {
			d.turns.end(userID, line.WebhookID)
			continue
		}
		d.flights[line] = userID
		d.inFlight.Add(1)
		go d.fly(d.sending, line)
	}
	return err
}

// fly sends a delivery of a line and writes the result.
func (d *dispatcher) fly(ctx context.Context, line store.Line) {
	end := landing{line: line}
	defer func() { d.landed <- end }()
	var attempt *store.Attempt
	delivery, ok, err := d.store.NextDelivery(ctx, line)
	if err == nil && ok {
		attempt = &store.Attempt{}
		*attempt, err = d.attempt(ctx, delivery)
	}
	if err != nil {
		end.err = err
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	end.settled, end.err = d.store.SettleLine(ctx, line, attempt)
}

// landAll takes note of all flights that have ended.
func (d *dispatcher) landAll(ctx context.Context) {
	for {
		select {
		case l := <-d.landed:
			d.land(ctx, l)
		default:
			return
		}
	}
}

// land takes note of the end of a flight.
func (d *dispatcher) land(ctx context.Context, l landing) {
	userID := d.flights[l.line]
	delete(d.flights, l.line)
	d.inFlight.Add(-1)
	d.turns.end(userID, l.line.WebhookID)
	switch {
	case l.err == nil:
		d.turns.settled(userID, l.line.WebhookID, l.settled)
	case errors.Is(l.err, store.ErrLostLine), errors.Is(l.err, context.Canceled): // another node has it, or may take it
		d.stray = true
		d.log.WarnContext(ctx, "delivery was let go", "webhook", l.line.WebhookID)
	default:
		d.stray = true
		d.log.WarnContext(ctx, "delivery failed, it will be tried again", "webhook", l.line.WebhookID, "err", l.err)
	}
}

// leaveStray gives up claims that a failure has left behind, so that their deliveries are sent.
func (d *dispatcher) leaveStray(ctx context.Context) {
	if !d.stray || d.store.Lost() {
		return
	}
	if err := d.store.KeepLines(ctx, slices.Collect(maps.Keys(d.flights))); err != nil {
		d.warn(ctx, "deliveries could not be given up", err)
		return
	}
	d.stray = false
}

// drain waits for the exchanges, and ends those that take too long.
func (d *dispatcher) drain(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	defer time.AfterFunc(d.Drain, d.cut).Stop()
	for len(d.flights) > 0 {
		d.land(ctx, <-d.landed)
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	d.leaveStray(ctx)
	d.cut()
}

func (d *dispatcher) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		d.log.WarnContext(ctx, what, slog.Any("err", err))
	}
}
