package ffmpeg

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// listPackets returns the packets of tracks of a file.
func listPackets(t *testing.T, file string, tracks ...int) (list []Packet) {
	t.Helper()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := ReadPackets(r, func(p Packet) error {
			list = append(list, p)
			return nil
		})
		r.CloseWithError(err)
		done <- err
	}()
	remux := Remux{Input: file, Packets: tracks}
	err := engine(t, Require).Run(t.Context(), Command{Args: remux.Args(), Read: []string{file}, Outputs: []io.Writer{w}})
	w.CloseWithError(err)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestPackets(t *testing.T) {
	file := clip(t, "packets.mkv", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=2", "-f", "lavfi", "-i", "sine=d=2:r=48000",
		"-vf", "setpts='PTS+gte(T,1)*36000/TB'", "-fps_mode", "passthrough", "-c:v", "libx264", "-bf", "0", "-c:a", "libopus")
	list := listPackets(t, file, 1, 0)
	var starts []time.Duration
	last := Packet{}
	for _, p := range list {
		if p.Track == 1 { // the second of those that are listed
			starts = append(starts, p.Start)
		} else {
			last = p
		}
	}
	if len(starts) != 20 || starts[9]-starts[0] != 900*time.Millisecond || starts[10]-starts[0] != 10*time.Hour+time.Second {
		t.Errorf("the packets of the video start at %v", starts)
	}
	if end := last.Start + last.Duration; end < 1990*time.Millisecond || end > 2050*time.Millisecond || last.Duration == 0 {
		t.Errorf("the last packet of the audio is %+v", last)
	}
	if !slices.IsSortedFunc(list, func(a, b Packet) int { return int(a.Start-b.Start) / int(time.Second) }) {
		t.Error("the packets are not in the order of their times")
	}
}

func TestReadPackets(t *testing.T) {
	const text = "#extradata 0:  5, 0x1\n#software: Lavf\n#tb 0: 1/48000\n#tb 1: 1001/24000\n#media_type 0: audio\n" +
		"0,  -1024,  -1024,  1024,  64, 0xc7c3188a, F=0x5, S=1, 10\n1,  24,  25,  1,  46, 0x86831ad3\n1, 9223372036854775807, 0, 1, 1, 0x0\n"
	var got []Packet
	see := func(p Packet) error { got = append(got, p); return nil }
	if err := ReadPackets(strings.NewReader(text), see); err != nil {
		t.Fatal(err)
	}
	want := []Packet{
		{0, -21333333 * time.Nanosecond, 21333333 * time.Nanosecond, 64},
		{1, 1001 * time.Millisecond, 41708333 * time.Nanosecond, 46},
		{1, maxTime, 41708333 * time.Nanosecond, 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("packets = %v, want %v", got, want)
	}
	for _, bad := range []string{"0, 1, 2, 3, 4, 5\n", "#tb 0: 1/5\n1, 1, 2, 3, 4, 5\n", "#tb 0: 1/0\n0, 1, 2, 3, 4, 5\n", "#tb 0: 1/5\n0, x, 2, 3, 4, 5\n", "#tb 0: 1/5\n0, 1\n"} {
		if err := ReadPackets(strings.NewReader(bad), see); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if err := ReadPackets(strings.NewReader(text), func(Packet) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the caller", err)
	}
}

func FuzzReadPackets(f *testing.F) {
	f.Add("#tb 0: 1/48000\n0,  -1024,  -1024,  1024,  64, 0xc7c3188a, F=0x5\n")
	f.Add("#tb 0: 1/1\n#tb 1: 2147483647/1\n1, 9223372036854775807, 0, -9223372036854775808, 5, 6\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = ReadPackets(strings.NewReader(text), func(p Packet) error {
			if p.Track < 0 || p.Start.Abs() > maxTime || p.Duration < 0 || p.Duration > maxTime {
				t.Errorf("packet %+v", p)
			}
			return nil
		})
	})
}
