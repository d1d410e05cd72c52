package cmaf

import (
	"math"
	"testing"
)

// TestEffort has pictures encoded with one quantiser, and expects that each counts as
// much as its slices weigh at another one: so the head of every slice was read right.
func TestEffort(t *testing.T) {
	const same = ":aq-mode=0:ipratio=1:pbratio=1:mbtree=0"
	for _, tt := range []struct{ name, options string }{
		{"B-frames, weights", picture + " -c:v libx264 -preset slow -pix_fmt yuv420p -x264-params qp=34:bframes=3:b-pyramid=normal:weightp=2:ref=5" + same},
		{"fades", "-f lavfi -i testsrc2=s=176x144:r=25:d=2,fade=in:0:40 -c:v libx264 -preset slow -pix_fmt yuv420p -x264-params qp=34:weightp=2:bframes=3" + same},
		{"baseline", picture + " -c:v libx264 -profile:v baseline -preset fast -pix_fmt yuv420p -x264-params qp=34:ref=3" + same},
		{"slices", picture + " -c:v libx264 -preset fast -pix_fmt yuv420p -x264-params qp=34:slices=4" + same},
		{"interlaced", "-f lavfi -i testsrc2=s=176x144:r=25:d=1 -c:v libx264 -preset fast -pix_fmt yuv420p -flags +ilme+ildct -x264-params tff=1:qp=34" + same},
		{"4:4:4", picture + " -c:v libx264 -preset fast -pix_fmt yuv444p -x264-params qp=34" + same},
		{"gray", picture + " -c:v libx264 -preset fast -pix_fmt gray -x264-params qp=34:weightp=2" + same},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tracks, fragments := readAll(t, generate(t, tt.options))
			sets := sent(tracks[0])
			e, ok := NewEffort(sets, 4)
			if !ok {
				t.Fatal("its parameter sets were not understood")
			}
			n := 0
			for _, f := range fragments[0] {
				data := f.Data
				for _, s := range f.Samples {
					sample := data[:s.Size]
					data = data[s.Size:]
					got, ok := e.Of(sample)
					if want := sliceBytes(sample) * math.Exp2(octaves*(34-ordinaryQuantiser)/6); !ok || math.Abs(got-want) > 1 {
						t.Fatalf("frame %d: effort %f, %v; want %f", n, got, ok, want)
					}
					n++
				}
			}
			if n < 20 {
				t.Errorf("only %d frames", n)
			}
		})
	}
}

// sliceBytes is what the slices of a sample weigh.
func sliceBytes(sample []byte) (bytes float64) {
	for len(sample) > 0 {
		size := int(sample[0])<<24 | int(sample[1])<<16 | int(sample[2])<<8 | int(sample[3])
		if kind := sample[4] & 0x1f; kind == 1 || kind == 5 {
			bytes += float64(size)
		}
		sample = sample[4+size:]
	}
	return bytes
}

func TestEffortOfNothing(t *testing.T) {
	if _, ok := NewEffort(nil, 4); ok {
		t.Error("no parameter sets are enough")
	}
	if _, ok := NewEffort([][]byte{someSPS, somePPS}, 5); ok {
		t.Error("lengths of five bytes are taken")
	}
	e, ok := NewEffort([][]byte{someSPS, somePPS}, 4)
	if !ok {
		t.Fatal("the parameter sets are good")
	}
	for name, sample := range map[string][]byte{"cut off": {0, 0, 0, 9, 0x65}, "half a length": {0, 0}, "an empty head": {0, 0, 0, 1, 0x65}} {
		if _, ok := e.Of(sample); ok {
			t.Errorf("%s: an effort comes out", name)
		}
	}
}

func FuzzEffort(f *testing.F) {
	tracks, fragments := readAll(f, generate(f, picture+" -c:v libx264 -preset fast -pix_fmt yuv420p"))
	sets := sent(tracks[0])
	first := fragments[0][0]
	f.Add(sets[0], sets[1], first.Data[:first.Samples[0].Size])
	f.Add(someSPS, somePPS, []byte{0, 0, 0, 2, 0x41, 0x9a})
	f.Fuzz(func(t *testing.T, sps, pps, sample []byte) {
		e, ok := NewEffort([][]byte{sps, pps}, 4)
		if !ok {
			return
		}
		if effort, ok := e.Of(sample); ok && (!(effort >= 0) || effort > 1000*float64(len(sample))) {
			t.Errorf("an effort of %f for %d bytes", effort, len(sample))
		}
	})
}
