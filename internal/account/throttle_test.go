package account

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// wait tries and returns how long to wait; 0 = the try began.
func wait(t *testing.T, th *throttle, key string) time.Duration {
	t.Helper()
	err := th.attempt(key, 3, time.Now())
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind != weir.Busy || e.RetryAfter <= 0 {
		t.Fatalf("error %#v, want Busy with a time", err)
	}
	return e.RetryAfter
}

func TestThrottleDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		var waits []time.Duration
		for range 13 {
			for {
				d := wait(t, th, "a")
				if d == 0 {
					break
				}
				waits = append(waits, d)
				time.Sleep(d)
			}
		}
		var want []time.Duration
		for s := time.Second; s < maxDelay; s *= 2 {
			want = append(want, s)
		}
		want = append(want, maxDelay)
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		if d := wait(t, th, "b"); d != 0 {
			t.Errorf("another key waits %v", d)
		}
	})
}

func TestThrottleForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		for range 3 {
			wait(t, th, "a")
		}
		if wait(t, th, "a") == 0 {
			t.Error("no wait after the free tries")
		}
		th.forget("a")
		for range 3 {
			if d := wait(t, th, "a"); d != 0 {
				t.Errorf("waits %v after it was forgotten", d)
			}
		}
		time.Sleep(forgetAfter + time.Second)
		for range 3 {
			if d := wait(t, th, "a"); d != 0 {
				t.Errorf("waits %v after a long time", d)
			}
		}
		// A try that succeeds does not count, and clears nothing else.
		for range 10 {
			if d := wait(t, th, "b"); d != 0 {
				t.Errorf("waits %v though every try succeeded", d)
			}
			th.succeeded("b")
		}
		if len(th.tried) != 1 {
			t.Errorf("%d keys are remembered, want only the one that failed", len(th.tried))
		}
	})
}

// Many tries at once are many tries, not one.
func TestThrottleTogether(t *testing.T) {
	th := newThrottle()
	now := time.Now()
	var began atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if th.attempt("a", 3, now) == nil {
				began.Add(1)
			}
		})
	}
	wg.Wait()
	if began.Load() != 3 {
		t.Errorf("%d of 50 tries began, want the 3 free ones", began.Load())
	}
}

func TestThrottleIsBounded(t *testing.T) {
	th := newThrottle()
	now := time.Now()
	for range 3 {
		_ = th.attempt("guessed at", 3, now)
	}
	for i := range 3 * maxTried {
		if err := th.attempt(fmt.Sprint(i), 3, now); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(th.tried); n > maxTried {
		t.Errorf("%d keys are remembered, want at most %d", n, maxTried)
	}
	if th.attempt("guessed at", 3, now) == nil {
		t.Error("a flood of others made the throttle forget the one that is guessed at")
	}
	if err := th.attempt("new", 3, now.Add(2*forgetAfter)); err != nil {
		t.Fatal(err)
	}
}

func TestAddressKey(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::ffff:2", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
	} {
		if got := addressKey(netip.MustParseAddr(tt.a)) == addressKey(netip.MustParseAddr(tt.b)); got != tt.same {
			t.Errorf("%s and %s count together: %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
}

func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Millisecond: "1 second", 1500 * time.Millisecond: "2 seconds", 2 * time.Minute: "120 seconds", 2*time.Minute + 1: "3 minutes",
	} {
		if got := inWords(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
