package codec

import (
	"bytes"
	"math"
	"os/exec"
	"strings"
	"testing"
)

// video is an input of ffmpeg: three seconds of moving video.
const video = "-f lavfi -i testsrc2=s=160x90:r=25:d=3"

// ffmpeg returns what ffmpeg makes of an input, as a stream of a format.
func ffmpeg(t testing.TB, options, format string) []byte {
	t.Helper()
	var said bytes.Buffer
	args := strings.Fields("-v error -nostdin -threads 1 " + options + " -f " + format + " pipe:1")
	cmd := exec.CommandContext(t.Context(), "ffmpeg", args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Fatalf("ffmpeg %s: %v\n%s", strings.Join(args, " "), err, &said)
	}
	return out
}

// unitsOf returns the NAL units of an Annex B stream.
func unitsOf(t testing.TB, stream []byte) (units [][]byte) {
	t.Helper()
	for unit, err := range Units(FromAnnexB(stream), 4) {
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, unit)
	}
	return units
}

// setsOf returns the first parameter sets of a stream, one of each type.
func setsOf(units [][]byte, kind func([]byte) NAL, types ...NAL) (sets [][]byte) {
	for _, want := range types {
		sets = append(sets, ParameterSets{Units: units}.find(want, kind))
	}
	return sets
}

// h264 returns a stream of H.264 in access units, and its parameter sets.
func h264Stream(t testing.TB, options string) (sets ParameterSets, samples [][]byte) {
	t.Helper()
	units := unitsOf(t, ffmpeg(t, options+" -bsf:v h264_metadata=aud=insert", "h264"))
	for _, unit := range units {
		if H264NAL(unit) == NALDelimiter {
			samples = append(samples, nil)
		}
		last := len(samples) - 1
		samples[last] = AppendUnit(samples[last], unit)
	}
	return ParameterSets{LengthSize: 4, Units: setsOf(units, H264NAL, NALSPS, NALPPS)}, samples
}

// TestComplexity has frames encoded with one quantizer, and expects that each counts as much
// as its slices weigh at another one: so the header of every slice was read right.
func TestComplexity(t *testing.T) {
	const same = ":aq-mode=0:ipratio=1:pbratio=1:mbtree=0"
	for _, tt := range []struct{ name, options string }{
		{"B-frames, weights", video + " -c:v libx264 -preset slow -pix_fmt yuv420p -x264-params qp=34:bframes=3:b-pyramid=normal:weightp=2:ref=5" + same},
		{"fades", "-f lavfi -i testsrc2=s=176x144:r=25:d=2,fade=in:0:40 -c:v libx264 -preset slow -pix_fmt yuv420p -x264-params qp=34:weightp=2:bframes=3" + same},
		{"baseline", video + " -c:v libx264 -profile:v baseline -preset fast -pix_fmt yuv420p -x264-params qp=34:ref=3" + same},
		{"slices", video + " -c:v libx264 -preset fast -pix_fmt yuv420p -x264-params qp=34:slices=4" + same},
		{"interlaced", "-f lavfi -i testsrc2=s=176x144:r=25:d=1 -c:v libx264 -preset fast -pix_fmt yuv420p -flags +ilme+ildct -x264-params tff=1:qp=34" + same},
		{"4:4:4", video + " -c:v libx264 -preset fast -pix_fmt yuv444p -x264-params qp=34" + same},
		{"gray", video + " -c:v libx264 -preset fast -pix_fmt gray -x264-params qp=34:weightp=2" + same},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sets, samples := h264Stream(t, tt.options)
			c, ok := NewComplexity(sets)
			if !ok {
				t.Fatal("its parameter sets were not understood")
			}
			for n, sample := range samples {
				got, ok := c.Of(sample)
				if want := sliceBytes(sample) * math.Exp2(octaves*(34-normalQuantizer)/6); !ok || math.Abs(got-want) > 1 || want == 0 {
					t.Fatalf("frame %d: complexity %f, %v; want %f", n, got, ok, want)
				}
			}
			if len(samples) < 20 {
				t.Errorf("only %d frames", len(samples))
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

func TestComplexityOfNothing(t *testing.T) {
	some := ParameterSets{LengthSize: 4, Units: [][]byte{someSPS, somePPS}}
	if _, ok := NewComplexity(ParameterSets{LengthSize: 4}); ok {
		t.Error("no parameter sets are enough")
	}
	if _, ok := NewComplexity(ParameterSets{LengthSize: 5, Units: some.Units}); ok {
		t.Error("lengths of five bytes are taken")
	}
	c, ok := NewComplexity(some)
	if !ok {
		t.Fatal("the parameter sets are good")
	}
	for name, sample := range map[string][]byte{"cut off": {0, 0, 0, 9, 0x65}, "half a length": {0, 0}, "an empty header": {0, 0, 0, 1, 0x65}} {
		if _, ok := c.Of(sample); ok {
			t.Errorf("%s: a complexity comes out", name)
		}
	}
}

func FuzzComplexity(f *testing.F) {
	sets, samples := h264Stream(f, video+" -c:v libx264 -preset fast -pix_fmt yuv420p")
	f.Add(sets.Units[0], sets.Units[1], samples[0])
	f.Add(someSPS, somePPS, []byte{0, 0, 0, 2, 0x41, 0x9a})
	f.Fuzz(func(t *testing.T, sps, pps, sample []byte) {
		c, ok := NewComplexity(ParameterSets{LengthSize: 4, Units: [][]byte{sps, pps}})
		if !ok {
			return
		}
		if got, ok := c.Of(sample); ok && (!(got >= 0) || got > 1000*float64(len(sample))) {
			t.Errorf("a complexity of %f for %d bytes", got, len(sample))
		}
	})
}
