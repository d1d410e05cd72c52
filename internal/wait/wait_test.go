package wait

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that notes how it fails.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, values ...any) {
	f.said = fmt.Sprintf(format, values...)
	runtime.Goexit()
}

func TestWait(t *testing.T) {
	began := func() func() time.Duration {
		now := time.Now()
		return func() time.Duration { return time.Since(now) }
	}
	for _, tt := range []struct {
		name string
		wait func(testing.TB)
		want string // "" = it does not fail
	}{
		{"it holds", func(t testing.TB) { Until(t, "it holds", func() bool { return true }) }, ""},
		{"it holds later", func(t testing.TB) {
			age := began()
			Until(t, "a minute is over", func() bool { return age() > time.Minute })
		}, ""},
		{"it never holds", func(t testing.TB) { Until(t, "it holds", func() bool { return false }) }, "after 6m0s: waited in vain: it holds"},
		{"last error", func(t testing.TB) {
			tries := 0
			NoError(t, func() error {
				tries = min(tries+1, 3)
				return fmt.Errorf("%d segments", tries)
			})
		}, "after 6m0s: 3 segments"},
		{"long work", func(t testing.TB) {
			age := began()
			Progress(t, func() error {
				if age() > time.Hour {
					return nil
				}
				return fmt.Errorf("%v", age().Truncate(time.Minute))
			})
		}, ""},
		{"work that stops", func(t testing.TB) {
			age := began()
			Progress(t, func() error { return fmt.Errorf("%v", min(age().Truncate(time.Minute), time.Hour)) })
		}, "after 6m0s: 1h0m0s"},
		{"value", func(t testing.TB) {
			values := make(chan int)
			go func() { values <- 7 }()
			if got := Receive(t, "a value", values); got != 7 {
				t.Fatalf("got %d", got)
			}
		}, ""},
		{"no value", func(t testing.TB) { Receive(t, "a value", make(chan int)) }, "after 6m0s: waited in vain: a value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, done := &failing{TB: t}, make(chan struct{})
				go func() {
					defer close(done)
					tt.wait(f)
				}()
				<-done
				if f.said != tt.want {
					t.Errorf("it says %q, want %q", f.said, tt.want)
				}
			})
		})
	}
}
