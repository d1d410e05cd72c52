package api

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10, 25)
		send := func(n int, key, account string) {
			t.Helper()
			for i := range n {
				if err := l.allow(key, account); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
		}
		refuse := func(key, account string) {
			t.Helper()
			if err := l.allow(key, account); weir.KindOf(err) != weir.Busy {
				t.Errorf("%s of %q: %v, want busy", key, account, err)
			}
		}
		send(10, "k", "ann")
		refuse("k", "ann")
		send(10, "other", "ann")
		send(5, "third", "ann")
		refuse("third", "ann") // the key may send more, the account not
		send(5, "bob's", "bob")
		send(10, "address", "")
		refuse("address", "")
		time.Sleep(time.Second)
		send(10, "k", "ann")
	})
}

func TestWrongGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0, 0)
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
