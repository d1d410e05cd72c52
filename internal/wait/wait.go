// Package wait is how tests wait: for a condition, a check without an error, or a channel. A wait
// ends when the event has come. How long that took says how busy the machine was, so no test
// judges it: Limit only ends a test that hangs.
package wait

import (
	"fmt"
	"testing"
	"time"
)

// Limit ends waits in vain. It is the same everywhere, also for contexts and connections of tests, and
// longer than the longest pause that weir makes by itself: 5 minutes, after ten time-outs of a webhook.
const Limit = 6 * time.Minute

// NoError calls check until it returns nil. Its error says what is waited for and what was seen.
func NoError(t testing.TB, check func() error) {
	t.Helper()
	repeat(t, check, false)
}

// Progress is NoError for work that may take longer than Limit: each time that the error has
// changed, it has that long again.
func Progress(t testing.TB, check func() error) {
	t.Helper()
	repeat(t, check, true)
}

func repeat(t testing.TB, check func() error, progress bool) {
	t.Helper()
	end, before := time.Now().Add(Limit), ""
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if now := time.Now(); progress && err.Error() != before {
			end, before = now.Add(Limit), err.Error()
		} else if now.After(end) {
			t.Fatalf("after %v: %v", Limit, err)
		}
		time.Sleep(pause)
	}
}

// Until waits until something holds, which what names, such as "the stream is on air".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	NoError(t, func() error {
		if holds() {
			return nil
		}
		return fmt.Errorf("waited in vain: %s", what)
	})
}

// Receive waits for a value of a channel, or for its end, which what names.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Limit):
		t.Fatalf("after %v: waited in vain: %s", Limit, what)
		panic("not reached")
	}
}
