package access

import (
	"errors"
	"testing"
	"time"

	"weir/internal/weir"
)

// Only what was wrong counts as wrong.
func TestGuesses(t *testing.T) {
	t.Parallel()
	wrong := weir.Errorf(weir.Denied, "no")
	for name, tt := range map[string]struct {
		request Request
		err     error
		free    bool
	}{
		"a right one":               {err: nil, free: true},
		"a wrong one":               {err: wrong},
		"of no content":             {err: errNoContent()},
		"the webhook is broken":     {err: weir.Errorf(weir.Upstream, "no")},
		"the webhook was not asked": {err: weir.TooMany(time.Second, "no"), free: true},
		"our own failure":           {err: errors.New("no"), free: true},
		"a viewer with a token":     {request: Request{known: true}, err: wrong, free: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuesses()
			g.viewers.PerSecond = 0
			r := tt.request
			r.From = networkOf("a")
			for range wrongAtOnce {
				if err := g.try(content{}, r, func() error { return tt.err }); !errors.Is(err, tt.err) {
					t.Fatalf("%v, want %v", err, tt.err)
				}
			}
			if free := g.viewers.Allows(r.From, time.Now()); free != tt.free {
				t.Errorf("another one may be sent: %v, want %v", free, tt.free)
			}
		})
	}
	g := newGuesses()
	server := Request{From: networkOf("a"), ServerOf: "ann"}
	for range wrongAtOnce + 1 {
		if err := g.count(content{userID: "ann"}, server, wrong); !errors.Is(err, wrong) {
			t.Fatalf("a media server of the owner: %v", err)
		}
	}
	for i := range wrongAtOnce + 1 {
		want := weir.Denied
		if i == wrongAtOnce {
			want = weir.Busy
		}
		if err := g.count(content{userID: "bob"}, server, wrong); weir.KindOf(err) != want {
			t.Fatalf("one of another account, %d: %v, want %s", i, err, want)
		}
	}
}
