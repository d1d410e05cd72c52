package codec

import (
	"bytes"
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
