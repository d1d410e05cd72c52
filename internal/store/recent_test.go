package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/weir"
)

// A result is read once while it is fresh, also an error that another attempt would have too.
func TestRecent(t *testing.T) {
	t.Parallel()
	c := Recent[int]{Max: 10}
	reads, now := 0, time.Now()
	fails := weir.ErrNotFound()
	for _, tt := range []struct {
		name  string
		key   string
		after time.Duration
		err   error
		reads int
	}{
		{"the first time", "a", 0, nil, 1},
		{"again", "a", Fresh - 1, nil, 1},
		{"another key", "b", 0, nil, 2},
		{"when it is not fresh", "a", Fresh, nil, 3},
		{"what does not exist", "c", 0, fails, 4},
		{"again", "c", 0, fails, 4},
		{"an error of the moment", "d", 0, errors.New("broken"), 5},
		{"again", "d", 0, errors.New("broken"), 6},
	} {
		got, err := c.Get(t.Context(), tt.key, now.Add(tt.after), func(context.Context) (int, error) {
			reads++
			return 7, tt.err
		})
		if got != 7 || fmt.Sprint(err) != fmt.Sprint(tt.err) || reads != tt.reads {
			t.Errorf("%s (%s): %d, %v after %d reads, want %v after %d", tt.name, tt.key, got, err, reads, tt.err, tt.reads)
		}
	}
	c.Forget("b")
	if _, ok := c.results["b"]; ok || len(c.results) != 2 {
		t.Errorf("results %v, want those of a and c", c.results)
	}
	for i := range 10 * c.Max {
		_, err := c.Get(t.Context(), fmt.Sprint(i), now, func(context.Context) (int, error) { return 0, nil })
		if err != nil || len(c.results) > c.Max {
			t.Fatalf("%d results are kept, error %v", len(c.results), err)
		}
	}
}

// A read does not end with the first of those who wait for it.
func TestRecentIsShared(t *testing.T) {
	t.Parallel()
	c := Recent[string]{Max: 1}
	ctx, cancel := context.WithCancel(t.Context())
	begun, goOn, now := make(chan struct{}), make(chan struct{}), time.Now()
	load := func(ctx context.Context) (string, error) {
		close(begun) // panics the second time
		<-goOn
		return "read", ctx.Err()
	}
	var wg sync.WaitGroup
	get := func(ctx context.Context) {
		if got, err := c.Get(ctx, "a", now, load); got != "read" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	wg.Go(func() { get(ctx) })
	<-begun
	for range 5 {
		wg.Go(func() { get(t.Context()) })
	}
	cancel()
	close(goOn)
	wg.Wait()
}
