package ffmpeg

import (
	"context"
	"math"
	"slices"
	"sync"
)

// Priority orders the requests for cores.
type Priority int

// The priorities, the lowest first. Batch has the nice value 19.
const (
	Batch       Priority = iota // for a task that can wait
	Interactive                 // somebody waits for the result: first chunk; edges of a clip, see Command.Brief
	Live                        // must keep up with real time
)

// LiveShare is the share of each core that live work may use, in thousandths.
const LiveShare = 750

// Reserve takes cores for work that must keep up with real time, without waiting. The offers are
// the costs of alternative plans, in thousandths of a core, the best first; Reserve takes the first
// one that fits beside what is reserved already. chosen is -1 when none does. A quarter of the
// machine is left for everything else. Batch work does not count: it has a lower priority in the
// kernel and gets fewer cores from now on.
func (e *Engine) Reserve(offers []int) (chosen int, release func()) {
	return e.ledger.reserve(offers)
}

// ledger counts the cores of this node that ffmpeg may use.
type ledger struct {
	cores int

	mu       sync.Mutex
	speed    float64       // of a core; see Engine.Speed
	reserved int           // thousandths of a core of speed 1
	free     int           // cores, without regard to reserved
	running  [3]int        // grants by priority
	waiting  [3][]*request // by priority, oldest first
}

// request is a waiting call of acquire.
type request struct {
	granted chan struct{} // closed when the core is taken
}

func newLedger(cores int) *ledger { return &ledger{cores: cores, free: cores, speed: 1} }

// acquire waits until a core is free and takes it; release returns it and may be called more than
// once. Requests of a priority are served in their order.
func (l *ledger) acquire(ctx context.Context, priority Priority) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	priority = min(max(priority, Batch), Live)
	r := &request{granted: make(chan struct{})}
	l.mu.Lock()
	l.waiting[priority] = append(l.waiting[priority], r)
	l.grant()
	l.mu.Unlock()

	release = sync.OnceFunc(func() { l.release(priority) })
	select {
	case <-r.granted:
		return release, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting[priority], r)
	if i >= 0 {
		l.waiting[priority] = slices.Delete(l.waiting[priority], i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		release() // granted while the context ended
	}
	return nil, context.Cause(ctx)
}

func (l *ledger) release(priority Priority) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.running[priority]--
	l.grant()
}

// grant serves waiting requests, by priority and age.
func (l *ledger) grant() {
	for priority := Live; priority >= Batch; priority-- {
		for len(l.waiting[priority]) > 0 {
			r := l.waiting[priority][0]
			// If nothing else runs, reservations do not count: a live stream may run for days.
			if l.free <= l.taken() && l.free < l.cores {
				return
			}
			l.waiting[priority] = l.waiting[priority][1:]
			l.free--
			l.running[priority]++
			close(r.granted)
		}
	}
}

func (l *ledger) reserve(offers []int) (chosen int, release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, cost := range offers {
		if l.reserved+cost > int(float64(l.cores*LiveShare)*l.speed) {
			continue
		}
		l.reserved += cost
		l.running[Live]++
		return i, sync.OnceFunc(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.reserved -= cost
			l.running[Live]--
			l.grant()
		})
	}
	return -1, func() {}
}

func (l *ledger) taken() int { return int(math.Ceil(float64(l.reserved) / l.speed / 1000)) }

func (l *ledger) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Cores: l.cores, Busy: l.cores - l.free + l.taken(), Running: l.running}
	for priority, waiting := range l.waiting {
		s.Waiting[priority] = len(waiting)
	}
	return s
}
