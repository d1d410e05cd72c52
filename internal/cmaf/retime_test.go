package cmaf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// fragmentAt makes a fragment whose samples are decoded every 10 ticks from 1000 on
// and shown at the given times, each of one byte, its number.
func fragmentAt(first int, shown ...int64) Fragment {
	f := Fragment{Start: 1000 + 10*int64(first)}
	for i, at := range shown {
		decoded := f.Start + 10*int64(i)
		f.Samples = append(f.Samples, Sample{Duration: 10, Offset: int32(at - decoded), Size: 1, Sync: first+i == 0})
		f.Data = append(f.Data, byte(first+i))
	}
	return f
}

// retime puts fragments of one track into weir's form, as one fragment.
func retime(frags ...Fragment) (all Fragment, err error) {
	var r Retimer
	for i := 0; i <= len(frags) && err == nil; i++ {
		var settled Fragment
		if i < len(frags) {
			settled, err = r.Add(frags[i])
		} else {
			settled, err = r.Finish()
		}
		if len(all.Samples) == 0 {
			all.Start = settled.Start
		} else if len(settled.Samples) > 0 && settled.Start != all.End() {
			return all, fmt.Errorf("a run starts at %d, the one before it ends at %d", settled.Start, all.End())
		}
		all.Samples, all.Data = append(all.Samples, settled.Samples...), append(all.Data, settled.Data...)
	}
	return all, err
}

func TestRetimer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shown []int64
		want  Fragment
	}{
		{
			"B-frames of uneven length",
			[]int64{100, 190, 130, 160},
			Fragment{Start: 100, Data: []byte{0, 1, 2, 3}, Samples: []Sample{{30, 0, 1, true}, {30, 60, 1, false}, {30, -30, 1, false}, {10, -30, 1, false}}},
		},
		{
			"leading frames",
			[]int64{130, 110, 120},
			Fragment{Start: 110, Data: []byte{0, 1, 2}, Samples: []Sample{{10, 20, 1, true}, {10, -10, 1, false}, {10, -10, 1, false}}},
		},
		{
			"before zero",
			[]int64{-20, -10},
			Fragment{Start: -20, Data: []byte{0, 1}, Samples: []Sample{{10, 0, 1, true}, {10, 0, 1, false}}},
		},
		{
			"two frames at once",
			[]int64{5, 5},
			Fragment{Start: 5, Data: []byte{0, 1}, Samples: []Sample{{0, 0, 1, true}, {10, 0, 1, false}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := retime(fragmentAt(0, tt.shown[0]), fragmentAt(1, tt.shown[1:]...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if f, err := retime(); err != nil || len(f.Samples) > 0 {
		t.Errorf("of nothing: %+v, %v", f, err)
	}
}

// However the samples come, one by one or all at once, the result is the same, keeps
// every presentation time, and has no gap.
func TestRetimerTakesRunsOfAnyLength(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		shown := disordered(rnd, 1+rnd.IntN(300))
		whole, err := retime(fragmentAt(0, shown...))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(whole.PTS(), shown) {
			t.Fatalf("seed %d: presentation times changed", seed)
		}
		if end := slices.Max(shown) + 10; whole.Start != slices.Min(shown) || whole.End() != end {
			t.Fatalf("seed %d: from %d to %d, want %d to %d", seed, whole.Start, whole.End(), slices.Min(shown), end)
		}
		var runs []Fragment
		for at := 0; at < len(shown); {
			n := min(1+rnd.IntN(40), len(shown)-at)
			runs = append(runs, fragmentAt(at, shown[at:at+n]...))
			at += n
		}
		joined, err := retime(runs...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(whole, joined); diff != "" {
			t.Fatalf("seed %d (-whole +piecewise):\n%s", seed, diff)
		}
	}
}

// disordered makes presentation times in a decode order that a decoder with up to 16
// frames of delay can play.
func disordered(rnd *rand.Rand, n int) []int64 {
	times := make([]int64, n)
	at := int64(rnd.IntN(1000)) - 500
	for i := range times {
		times[i] = at
		at += int64(rnd.IntN(100))
	}
	for i := 0; i < n; i += 17 {
		group := times[i:min(i+17, n)]
		rnd.Shuffle(len(group), func(a, b int) { group[a], group[b] = group[b], group[a] })
	}
	return times
}

func TestRetimerRefusesDisorder(t *testing.T) {
	var shown []int64
	for i := range 200 {
		shown = append(shown, 1000+int64(i))
	}
	shown[199] = 1001
	_, err := retime(fragmentAt(0, shown[:150]...), fragmentAt(150, shown[150:]...))
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "after it must be shown") {
		t.Errorf("error = %v, want one of kind invalid", err)
	}
	if _, err := retime(fragmentAt(0, 0), Fragment{Start: 1 << 40, Samples: []Sample{{}}}); weir.KindOf(err) != weir.Invalid {
		t.Errorf("gap of 2^40 ticks: error = %v, want one of kind invalid", err)
	}
}
