package cmaf

import (
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

func TestRetime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shown []int64
		end   int64
		want  Fragment
	}{
		{
			"B-frames of uneven length",
			[]int64{100, 190, 130, 160},
			200,
			Fragment{Start: 100, Data: []byte{0, 1, 2, 3}, Samples: []Sample{{30, 0, 1, true}, {30, 60, 1, false}, {30, -30, 1, false}, {10, -30, 1, false}}},
		},
		{
			"leading frames",
			[]int64{130, 110, 120},
			140,
			Fragment{Start: 110, Data: []byte{0, 1, 2}, Samples: []Sample{{10, 20, 1, true}, {10, -10, 1, false}, {10, -10, 1, false}}},
		},
		{
			"end not known",
			[]int64{100, 130},
			0,
			Fragment{Start: 100, Data: []byte{0, 1}, Samples: []Sample{{30, 0, 1, true}, {10, 0, 1, false}}},
		},
		{
			"before zero",
			[]int64{-20, -10},
			5,
			Fragment{Start: -20, Data: []byte{0, 1}, Samples: []Sample{{10, 0, 1, true}, {15, 0, 1, false}}},
		},
		{
			"two frames at once",
			[]int64{5, 5},
			7,
			Fragment{Start: 5, Data: []byte{0, 1}, Samples: []Sample{{0, 0, 1, true}, {2, 0, 1, false}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Retime([]Fragment{fragmentAt(0, tt.shown[0]), fragmentAt(1, tt.shown[1:]...)}, tt.end)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if f, err := Retime(nil, 0); err != nil || len(f.Samples) > 0 {
		t.Errorf("of nothing: %+v, %v", f, err)
	}
}

// However the samples come, piece by piece or all at once, the result is the same, keeps
// every presentation time, and has no gap.
func TestRetimerEqualsRetime(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		shown := disordered(rnd, 1+rnd.IntN(300))
		end := slices.Max(shown) + 1 + int64(rnd.IntN(50))
		whole, err := Retime([]Fragment{fragmentAt(0, shown...)}, end)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(whole.PTS(), shown) {
			t.Fatalf("seed %d: presentation times changed", seed)
		}
		if whole.Start != slices.Min(shown) || whole.End() != end {
			t.Fatalf("seed %d: from %d to %d, want %d to %d", seed, whole.Start, whole.End(), slices.Min(shown), end)
		}
		var r Retimer
		var joined Fragment
		join := func(f Fragment, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Samples) == 0 {
				return
			}
			if len(joined.Samples) == 0 {
				joined.Start = f.Start
			} else if f.Start != joined.End() {
				t.Fatalf("seed %d: a run starts at %d, the one before ends at %d", seed, f.Start, joined.End())
			}
			joined.Samples = append(joined.Samples, f.Samples...)
			joined.Data = append(joined.Data, f.Data...)
		}
		for at := 0; at < len(shown); {
			n := min(1+rnd.IntN(40), len(shown)-at)
			join(r.Add(fragmentAt(at, shown[at:at+n]...)))
			at += n
		}
		join(r.Finish(end))
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
	var r Retimer
	if _, err := r.Add(fragmentAt(0, shown[:150]...)); err != nil {
		t.Fatal(err)
	}
	_, err := r.Add(fragmentAt(150, shown[150:]...))
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "after its turn") {
		t.Errorf("error = %v, want one of kind invalid", err)
	}
	if _, err := Retime([]Fragment{fragmentAt(0, 0), {Start: 1 << 40, Samples: []Sample{{}}}}, 0); weir.KindOf(err) != weir.Invalid {
		t.Errorf("gap of 2^40 ticks: error = %v, want one of kind invalid", err)
	}
}

func TestCutAt(t *testing.T) {
	f := Fragment{Track: 2, Start: 0}
	for i := range 10 {
		f.Samples = append(f.Samples, Sample{Duration: 10, Size: 1})
		f.Data = append(f.Data, byte(i))
	}
	c := CutAt([]int64{25, 60, 61, 62, 100, 120})
	pieces := append(c.Add(f), c.Finish())
	var got []string
	for _, p := range pieces {
		if len(p.Samples) > 0 && p.Start != 10*int64(p.Data[0]) {
			t.Errorf("the piece of %d starts at %d", p.Data[0], p.Start)
		}
		if p.Track != 2 {
			t.Errorf("track = %d, want 2", p.Track)
		}
		var s strings.Builder
		for _, b := range p.Data {
			s.WriteByte('0' + b)
		}
		got = append(got, s.String())
	}
	if diff := cmp.Diff([]string{"012", "345", "6", "", "789"}, got); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
}

func TestCutAtSync(t *testing.T) {
	pattern := "K..KK...K..........K"
	f := Fragment{Start: 100}
	for _, c := range pattern {
		f.Samples = append(f.Samples, Sample{Duration: 10, Size: 1, Sync: c == 'K'})
		f.Data = append(f.Data, byte(c))
	}
	for _, tt := range []struct {
		name  string
		ticks int64
		bytes int
		want  []string
	}{
		{"at each", 0, 0, []string{"K..", "K", "K...", "K..........", "K"}},
		{"after 40 ticks", 40, 0, []string{"K..K", "K...", "K..........", "K"}},
		{"at most 5 bytes", 40, 5, []string{"K..K", "K...", "K....", ".....", ".K"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := CutAtSync(tt.ticks, tt.bytes)
			var got []string
			at := f.Start
			for i := range f.Samples { // one by one: a cutter does not care how they come
				for _, p := range c.Add(Fragment{Start: at, Samples: f.Samples[i : i+1], Data: f.Data[i : i+1]}) {
					got = append(got, string(p.Data))
				}
				at += 10
			}
			got = append(got, string(c.Finish().Data))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pieces (-want +got):\n%s", diff)
			}
		})
	}
}
