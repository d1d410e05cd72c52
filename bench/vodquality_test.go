//go:build bench

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What is promised of the quality, against plain ffmpeg at the same bitrate.
const (
	vodMaxSSIMLoss   = 0.002
	vodMaxBitrateOff = 0.05
)

// TestVODFilms holds what weir makes of films of different kinds against what plain ffmpeg makes of
// them: quality and bitrate, not time.
func TestVODFilms(t *testing.T) {
	b := newVODBench(t)
	c := vodCase{name: "kinds", height: 540, ladder: []rung{
		{"540p", 960, 540, 2_000_000}, {"270p", 480, 270, 600_000},
	}}
	fmt.Printf("limits: SSIM at most %.3f below plain ffmpeg, bitrate within %.0f %%, all frames\n",
		vodMaxSSIMLoss, 100*vodMaxBitrateOff)
	for _, k := range b.kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			film := k.film(t, b)
			plain, weir := b.runPlain(t, c, workers{}, film), b.runWeir(t, c, workers{}, film)
			for _, d := range b.compare(t, film, c, plain, weir) {
				fmt.Printf("%-10s %v\n", k.name, d)
				d.check(t, k.name)
			}
			b.remove(t, plain, weir)
		})
	}
}

// rendered is what became of a rendition.
type rendered struct {
	ssim, bitrate float64
	frames        int
}

// difference is a rendition as both made it.
type difference struct {
	rendition   string
	plain, weir rendered
}

func (d difference) ssim() float64    { return d.weir.ssim - d.plain.ssim }
func (d difference) bitrate() float64 { return d.weir.bitrate/d.plain.bitrate - 1 }

func (d difference) String() string {
	return fmt.Sprintf("%-6s plain: SSIM %.5f  %7.1f kbit/s   weir: SSIM %.5f (%+.5f)"+
		"  %7.1f kbit/s (%+.1f %%)", d.rendition, d.plain.ssim, d.plain.bitrate/1000,
		d.weir.ssim, d.ssim(), d.weir.bitrate/1000, 100*d.bitrate())
}

// check holds the difference against what is promised.
func (d difference) check(t *testing.T, of string) {
	t.Helper()
	if d.ssim() < -vodMaxSSIMLoss {
		t.Errorf("%s, %s: SSIM %+.5f, want at most %.3f less",
			of, d.rendition, d.ssim(), vodMaxSSIMLoss)
	}
	if off := d.bitrate(); math.Abs(off) > vodMaxBitrateOff {
		t.Errorf("%s, %s: bitrate %+.1f %%, want it within %.0f %%",
			of, d.rendition, 100*off, 100*vodMaxBitrateOff)
	}
	if d.weir.frames != d.plain.frames {
		t.Errorf("%s, %s: %d frames, plain ffmpeg has %d",
			of, d.rendition, d.weir.frames, d.plain.frames)
	}
}

// compare measures the encoded renditions of two runs against the film, scaled to their sizes. The
// film is decoded once for all of them.
func (b *vodBench) compare(
	t *testing.T, film string, c vodCase, plain, weir measured,
) []difference {
	t.Helper()
	encoded := c.encoded()
	args := []string{"-nostdin", "-v", "info", "-i", film}
	graph, outputs := fmt.Sprintf("[0:v]split=%d", len(encoded)), []string{}
	for i := range encoded {
		graph += fmt.Sprintf("[film%d]", i)
	}
	// Frames are compared by their numbers, because times are rounded. That no frame is missing is
	// checked too.
	const numbered = "settb=1/24,setpts=N"
	found := make([]difference, len(encoded))
	for i, r := range encoded {
		d := &found[i]
		d.rendition = r.name
		graph += fmt.Sprintf(";[film%d]scale=%d:%d:flags=bicubic,%s,"+
			"split[forplain%[1]d][forweir%[1]d]", i, r.width, r.height, numbered)
		for _, side := range []struct {
			name, folder string
			got          *rendered
		}{{"plain", plain.mp4, &d.plain}, {"weir", weir.mp4, &d.weir}} {
			file := filepath.Join(side.folder, r.name+".mp4")
			*side.got = b.probe(t, file)
			args = append(args, "-i", file)
			name := fmt.Sprintf("%s%d", side.name, i)
			graph += fmt.Sprintf(";[%d:v]%s[%s];[%[3]s][for%[3]s]ssim@%[3]s[out%[3]s]",
				len(outputs)/2+1, numbered, name)
			outputs = append(outputs, "-map", "[out"+name+"]")
		}
	}
	args = append(append(args, "-filter_complex", graph), outputs...)
	args = append(args, "-fps_mode", "passthrough", "-f", "null", "-")
	text := command(t, b.out, "ffmpeg", args...)
	for i := range found {
		found[i].plain.ssim = ssimIn(t, text, fmt.Sprintf("plain%d", i))
		found[i].weir.ssim = ssimIn(t, text, fmt.Sprintf("weir%d", i))
	}
	return found
}

// ssimIn finds what a filter has said at the end.
func ssimIn(t *testing.T, text, filter string) float64 {
	t.Helper()
	all := regexp.MustCompile(`\[ssim@` + filter + ` .*All:([0-9.]+)`).FindStringSubmatch(text)
	if all == nil {
		t.Fatalf("no SSIM of %s:\n%s", filter, text)
	}
	ssim, err := strconv.ParseFloat(strings.TrimSpace(all[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return ssim
}

// probe reads the bitrate and the frames of a file's video.
func (b *vodBench) probe(t *testing.T, file string) rendered {
	t.Helper()
	var probe struct {
		Streams []struct {
			BitRate string `json:"bit_rate"`
			Frames  string `json:"nb_read_packets"`
		} `json:"streams"`
	}
	text := command(t, b.out, "ffprobe", "-v", "error", "-select_streams", "v:0", "-count_packets",
		"-show_entries", "stream=bit_rate,nb_read_packets", "-of", "json", file)
	if err := json.Unmarshal([]byte(text), &probe); err != nil || len(probe.Streams) != 1 {
		t.Fatalf("%s: %v, %s", file, err, text)
	}
	bitrate, err1 := strconv.ParseFloat(probe.Streams[0].BitRate, 64)
	frames, err2 := strconv.Atoi(probe.Streams[0].Frames)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return rendered{bitrate: bitrate, frames: frames}
}

// checkPassed checks that the source passed through in both runs: if it was encoded in one of them,
// they did not do the same.
func (b *vodBench) checkPassed(t *testing.T, film string, runs ...measured) {
	t.Helper()
	source := b.probe(t, film)
	for _, m := range runs {
		file := filepath.Join(m.mp4, ladder[0].name+".mp4")
		got := b.probe(t, file)
		off := math.Abs(got.bitrate/source.bitrate - 1)
		if got.frames != source.frames || off > 0.01 {
			t.Fatalf("%s is not the source: %.0f bit/s and %d frames, not %.0f and %d",
				file, got.bitrate, got.frames, source.bitrate, source.frames)
		}
	}
}
