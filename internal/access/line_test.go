package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
)

// queue lets requests enter one line, and notes in which order they get their turns.
type queue struct {
	*testing.T
	l      lines
	ctx    context.Context
	all    sync.WaitGroup
	mu     sync.Mutex
	turns  []string
	failed []string
	open   map[string]chan struct{} // closed when a request is to leave
}

func newQueue(t *testing.T, l *lines) *queue {
	return &queue{T: t, l: lines{AtOnce: l.AtOnce, OfNetwork: l.OfNetwork, Waiting: l.Waiting, Timeout: l.Timeout}, ctx: t.Context(), open: map[string]chan struct{}{}}
}

func networkOf(name string) netip.Prefix {
	return weir.Network(netip.AddrFrom4([4]byte{192, 0, 2, name[0]}))
}

// enter lets requests come one after the other; the first letter of a name is its network.
func (q *queue) enter(names ...string) {
	q.Helper()
	for _, name := range names {
		leave := make(chan struct{})
		q.open[name] = leave
		q.all.Go(func() {
			done, err := q.l.enter(q.ctx, "k", networkOf(name))
			q.mu.Lock()
			if err != nil {
				q.failed = append(q.failed, name)
			} else {
				q.turns = append(q.turns, name)
			}
			q.mu.Unlock()
			if err == nil {
				<-leave
				done()
			} else if weir.KindOf(err) != weir.Busy && !errors.Is(err, context.Canceled) {
				q.Errorf("%s: %v", name, err)
			}
		})
		synctest.Wait()
	}
}

func (q *queue) leave(names ...string) {
	for _, name := range names {
		close(q.open[name])
		synctest.Wait()
	}
}

func (q *queue) had(turns, failed string) {
	q.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if a, b := strings.Join(q.turns, " "), strings.Join(q.failed, " "); a != turns || b != failed {
		q.Errorf("turns %q, failed %q, want %q and %q", a, b, turns, failed)
	}
	q.turns, q.failed = nil, nil
}

// Networks take turns, and none has all places.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, &lines{AtOnce: 3, OfNetwork: 2, Waiting: 100, Timeout: time.Minute})
		q.enter("a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1")
		q.had("a1 a2 b1", "")
		q.leave("a1")
		q.had("a3", "") // it was there before b2
		q.leave("a2", "a3")
		q.had("b2 c1", "")
		q.leave("b1", "b2", "c1")
		q.had("a4 a5", "")
		q.leave("a4", "a5")
		q.all.Wait()
		if len(q.l.lines) != 0 {
			t.Errorf("%d lines are left", len(q.l.lines))
		}
	})
}

// When too many wait, those lose their place who are many. Who does not wait any more leaves the line.
func TestLineIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, &lines{AtOnce: 1, OfNetwork: 1, Waiting: 3, Timeout: time.Minute})
		q.enter("a1", "a2", "a3", "a4", "a5")
		q.had("a1", "a5")
		q.enter("b1", "c1")
		q.had("", "a4 a3")
		q.enter("d1") // every network has one
		q.had("", "d1")
		q.leave("a1")
		q.had("a2", "")
		time.Sleep(time.Minute)
		synctest.Wait()
		q.mu.Lock()
		slices.Sort(q.failed)
		q.mu.Unlock()
		q.had("", "b1 c1")
		q.leave("a2")
		q.all.Wait()
		if len(q.l.lines) != 0 {
			t.Errorf("%d lines are left", len(q.l.lines))
		}

		ctx, cancel := context.WithCancel(t.Context())
		q.ctx = ctx
		q.enter("a6", "a7")
		cancel()
		synctest.Wait()
		q.had("a6", "a7")
		q.leave("a6")
		q.all.Wait()
		if len(q.l.lines) != 0 {
			t.Errorf("%d lines are left", len(q.l.lines))
		}
	})
}

// No place is lost, whoever comes and goes.
func TestLineUnderLoad(t *testing.T) {
	t.Parallel()
	l := &lines{AtOnce: 4, OfNetwork: 2, Waiting: 20, Timeout: time.Minute}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for k := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+k)%3 == 0 {
					go cancel()
				}
				if leave, err := l.enter(ctx, fmt.Sprint(k%2), networkOf(string(rune('a'+i%5)))); err == nil {
					leave()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if len(l.lines) != 0 {
		t.Errorf("%d lines are left: %+v", len(l.lines), l.lines)
	}
}
