// Package wait is how tests wait: for a condition, a check without an error, or a channel. A wait
// ends when the event has come. How long that took says how busy the machine was, so no test
// judges it: Limit only ends a test that hangs.
package wait

import (
	"fmt"
	"testing"
	"time"
)

// Limit ends waits in vain. It is the same everywhere, also for contexts and connections of tests.
const Limit = 2 * time.Minute

// NoError calls check until it returns nil. Its error says what is waited for and what was seen.
func NoError(t testing.TB, check func() error) {
	t.Helper()
	end := time.Now().Add(Limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", Limit, err)
		}
		time.Sleep(pause)
	}
}

// Until waits until something holds. what says it as it should be, such as "the stream is on air".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	NoError(t, func() error {
		if holds() {
			return nil
		}
		return fmt.Errorf("not so: %s", what)
	})
}

// Receive waits for a value of a channel, or for its end. what is what comes.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Limit):
		t.Fatalf("after %v: not received: %s", Limit, what)
		panic("not reached")
	}
}
