package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// members enters members into a pool and notes who was evicted.
type members struct {
	*testing.T
	pool    *Pool
	places  map[string]*Place
	evicted []string
}

func newMembers(t *testing.T, l Limits) *members {
	return &members{T: t, pool: NewPool(l), places: map[string]*Place{}}
}

// enter enters a member; the address is the first letter of its name, the port its digit.
func (m *members) enter(name string) error {
	m.Helper()
	port := uint16(0)
	if len(name) > 1 {
		port = uint16(name[1])
	}
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, name[0]}), port)
	place, err := m.pool.Enter(from, func() { m.evicted = append(m.evicted, name) })
	if err == nil {
		m.places[name] = place
	}
	return err
}

func (m *members) all(names string) {
	m.Helper()
	for name := range strings.FieldsSeq(names) {
		if err := m.enter(name); err != nil {
			m.Fatalf("%s gets no place: %v", name, err)
		}
	}
}

func (m *members) check(evicted string) {
	m.Helper()
	if diff := cmp.Diff(strings.Fields(evicted), m.evicted, cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
		m.Errorf("evicted (-want +got):\n%s", diff)
	}
	m.evicted = nil
}

// The oldest idle member makes room, of the address that has most of them.
func TestOldestIdle(t *testing.T) {
	m := newMembers(t, Limits{Members: 4})
	m.all("a1 b1 c1 d1")
	m.check("")
	m.all("e1")
	m.check("a1")
	m.places["d1"].Idle() // it has what it came for
	m.places["c1"].Idle()
	m.all("f1 g1")
	m.check("d1 c1")
	m.places["b1"].Busy()
	m.all("h1")
	m.check("e1")
	m.places["b1"].Idle()
	m.places["f1"].Active()
	m.all("i1 j1")
	m.check("b1 g1")
	m.all("k1 l1") // f1 is older than the rest, but they do less
	m.check("h1 i1")
	for _, name := range []string{"j1", "k1", "l1"} {
		m.places[name].Busy()
	}
	m.all("m1")
	m.check("f1")
	m.places["m1"].Busy()
	if err := m.enter("n1"); !errors.Is(err, ErrFull) {
		t.Errorf("a member where all are busy: %v", err)
	}
	m.places["k1"].Leave()
	m.places["k1"].Leave()
	m.all("n1")
	m.check("")
	if got, want := m.pool.Stats(), (PoolStats{Members: 4, Refused: 1, Evicted: 9}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

// An address that fills the pool evicts its own members, not those of others.
func TestFairness(t *testing.T) {
	m := newMembers(t, Limits{Members: 8})
	m.all("x1 a1 a2 a3 a4 y1 a5 a6")
	m.all("a7 a8 a9 z1 y2")
	m.check("a1 a2 a3 a4 a5")
	if len(m.pool.addresses) != 4 {
		t.Errorf("%d addresses are kept, want 4", len(m.pool.addresses))
	}
}

func TestPerAddress(t *testing.T) {
	m := newMembers(t, Limits{Members: 8, PerAddress: 2})
	m.all("a1 a2 b1 a3")
	m.check("a1")
	m.places["a2"].Busy()
	m.places["a3"].Busy()
	if err := m.enter("a4"); !errors.Is(err, ErrAddress) {
		t.Errorf("a third member of an address whose members are busy: %v", err)
	}
	m.all("b2 c1")
	m.check("")

	one := newMembers(t, Limits{Members: 8, PerAddress: 1})
	one.all("a1 a2")
	one.check("a1")
}

// Each connection of a proxy counts as an address of its own.
func TestExempt(t *testing.T) {
	m := newMembers(t, Limits{Members: 6, PerAddress: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.112/32")}}) // p
	m.all("p1 p2 p3 p4 a1 a2")
	m.check("")
	m.all("b1")
	m.check("a1")
	m.all("b2") // all have one
	m.check("p1")
}

// Members that are not busy are refused where that is wanted: each costs something.
func TestMaxWaiting(t *testing.T) {
	m := newMembers(t, Limits{Members: 4, Waiting: 1})
	m.all("a1")
	if err := m.enter("a2"); !errors.Is(err, ErrAddress) {
		t.Errorf("a second idle member of an address: %v", err)
	}
	m.places["a1"].Busy()
	m.all("a2 b1")
	m.check("")
}

// Too many busy members stay active.
func TestMaxBusy(t *testing.T) {
	m := newMembers(t, Limits{Members: 3, Busy: 1})
	m.all("a1 b1 c1")
	m.places["b1"].Busy()
	m.places["b1"].Busy()
	m.places["a1"].Busy()
	m.places["c1"].Busy()
	m.all("d1 e1 f1")
	m.check("a1 d1 e1")
	m.places["b1"].Idle()
	m.places["f1"].Busy()
	m.all("g1")
	m.check("b1")
}

// A new member waits for one that has just begun, but not for one that has what it came for.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(t, Limits{Members: 2, Grace: time.Second})
		m.all("a1 a2")
		began := time.Now()
		m.all("c1")
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited %v, want a second", took)
		}
		m.places["c1"].Idle()
		m.all("d1")
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for an idle one, %v", took)
		}
		m.places["a2"].Active()
		m.places["d1"].Busy()
		m.all("e1")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it waited %v, want two seconds", took)
		}
		m.check("a1 c1 a2")
	})
}

// Members without an end are never evicted.
func TestPermanent(t *testing.T) {
	p := NewPool(Limits{Members: 1})
	place, err := p.Enter(netip.AddrPort{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	place.Idle()
	if _, err := p.Enter(netip.AddrPort{}, nil); err == nil {
		t.Error("a second member got a place")
	}
	place.Leave()
	if _, err := p.Enter(netip.AddrPort{}, nil); err != nil {
		t.Error(err)
	}
	var none *Place
	none.Busy()
	none.Leave()
}

// Whatever members do, the numbers add up.
func TestPoolAtRandom(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	l := Limits{Members: 20, PerAddress: 6, Waiting: 4, Busy: 12}
	p := NewPool(l)
	var all []*Place
	for step := range 20_000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(8))}), 1)
		var place *Place
		if len(all) > 0 {
			place = all[random.IntN(len(all))]
		}
		switch random.IntN(5) {
		case 0, 1:
			entered, err := p.Enter(from, func() { all = slices.DeleteFunc(all, func(t *Place) bool { return t.left }) })
			if err == nil {
				all = append(all, entered)
			}
		case 2:
			place.Busy()
		case 3:
			place.Idle()
		case 4:
			place.Leave()
			all = slices.DeleteFunc(all, func(t *Place) bool { return t == place })
		}
		if problem := p.problem(); problem != "" || p.members != len(all) {
			t.Fatalf("seed %d, step %d: %d members, %d kept: %s", seed, step, p.members, len(all), problem)
		}
	}
}

// problem returns what is wrong with the numbers of a pool, or nothing.
func (p *Pool) problem() string {
	members, open := 0, 0
	for who, s := range p.addresses {
		members += s.members
		open += s.waiting()
		if s.members < 1 || s.members > p.limits.PerAddress || s.waiting() > s.members {
			return fmt.Sprintf("%v has %d members, %d that wait", who, s.members, s.waiting())
		}
	}
	if members != p.members || members > p.limits.Members || open+p.busy != members || p.busy > p.limits.Busy {
		return fmt.Sprintf("%d members of addresses, %d in total, %d open, %d busy", members, p.members, open, p.busy)
	}
	return ""
}
