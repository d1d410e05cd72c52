package api

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10)
		for i := range 10 {
			if err := l.allow("k"); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		err := l.allow("k")
		if weir.KindOf(err) != weir.Busy {
			t.Errorf("request 11: %v, want busy", err)
		}
		if err := l.allow("other"); err != nil {
			t.Errorf("another key: %v", err)
		}
		time.Sleep(time.Second)
		if err := l.allow("k"); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

func TestWrongGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0)
		for range wrongAtOnce {
			if err := l.guess("192.0.2.1"); err != nil {
				t.Fatal(err)
			}
			l.wrongGuess("192.0.2.1")
		}
		if err := l.guess("192.0.2.1"); weir.KindOf(err) != weir.Busy {
			t.Errorf("after %d wrong guesses: %v, want busy", wrongAtOnce, err)
		}
		if err := l.guess("192.0.2.2"); err != nil {
			t.Errorf("another address: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := l.guess("192.0.2.1"); err != nil {
			t.Errorf("two seconds later: %v", err)
		}
	})
}
