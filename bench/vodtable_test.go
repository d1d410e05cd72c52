//go:build bench

package bench

import (
	"fmt"
	"math"
	"testing"
)

// What is promised, as ratios to plain ffmpeg unless it says otherwise.
const (
	vodMaxCPU         = 1.05
	vodMaxWallShort   = 1.05 // of films up to shortFilm
	vodMaxWallLong    = 1.0
	vodMaxFirst       = 1.0 / 3 // until all renditions have a segment, of all its time
	vodMaxSourceFirst = 2.0     // seconds until a source that passes through has a segment
	vodMinThroughput  = 1.0     // of many short files

	shortFilm = 60        // seconds
	firstFilm = wholeFilm // seconds of the film for which vodMaxFirst is promised
)

// vodRow is a row of the table: what is measured, and how both did.
type vodRow struct {
	seconds     int
	files       int // short ones at once; 0 = it is a film
	c           vodCase
	workers     workers
	plain, weir []measured
	quality     []difference
}

func (r *vodRow) name() string {
	return fmt.Sprintf("%d s, %s, %v", r.seconds, r.c.name, r.workers)
}

// report prints the table and holds it against what is promised.
func report(t *testing.T, rows []*vodRow, rounds int) {
	t.Helper()
	printHead(rounds)
	for _, r := range rows {
		fmt.Println(r)
	}
	for _, r := range rows {
		r.check(t)
	}
}

// printHead prints the limits and the names of the columns.
func printHead(rounds int) {
	fmt.Printf(`
Medians of %d rounds. Plain is one ffmpeg command that makes the same.
Limits: CPU at most %.2f; wall at most %.2f up to %d s and %.2f above, on all cores of the machine;
SSIM at most %.3f lower; bitrate within %.0f %%; all frames; first segment of all renditions of the
film of %d s after at most %.2f of plain's wall time, of a source that passes through after %.0f s.

`, rounds, vodMaxCPU, vodMaxWallShort, shortFilm, vodMaxWallLong,
		vodMaxSSIMLoss, 100*vodMaxBitrateOff, firstFilm, vodMaxFirst, vodMaxSourceFirst)
	fmt.Printf("%33s | %-21s | %-21s | %-19s | %5s | %-23s | %s\n", "", "wall, s", "CPU, s",
		"first of all, s", "any,s", "worst, weir - plain", "memory, MB")
	fmt.Printf("%5s %-5s %-4s %7s %8s | %6s %7s %6s | %6s %7s %6s | %5s %5s %7s | %5s | "+
		"%8s %7s %6s | %5s %5s\n",
		"film", "case", "pass", "encoded", "workers", "plain", "weir", "ratio",
		"plain", "weir", "ratio", "plain", "weir", "of wall", "weir",
		"SSIM", "bitrate", "frames", "plain", "weir")
}

func (r *vodRow) String() string {
	if r.files > 0 {
		return r.throughput()
	}
	passes := map[bool]string{true: "yes", false: "no"}[r.c.passes]
	ssim, bitrate, frames := r.worst()
	text := fmt.Sprintf("%3d s %-5s %-4s %7d %8v | %6.1f %7.1f %6.3f | %6.1f %7.1f %6.3f |"+
		" %5.1f %5.1f %7.3f | %5.2f | %+8.5f %+5.1f %% %6s | %5.0f %5.0f",
		r.seconds, r.c.name, passes, len(r.c.encoded()), r.workers,
		median(r.plain, wallOf), median(r.weir, wallOf), r.wallRatio(),
		median(r.plain, cpuTimeOf), median(r.weir, cpuTimeOf), r.cpuRatio(),
		median(r.plain, begunOf), median(r.weir, begunOf), r.firstShare(),
		median(r.weir, playableOf), ssim, 100*bitrate, frames,
		median(r.plain, peakOf), median(r.weir, peakOf))
	if r.workers.nodes {
		text += fmt.Sprintf(" | PostgreSQL and S3: CPU %.1f s", median(r.weir, besideOf))
	}
	return text
}

// throughput tells how both did with many short files.
func (r *vodRow) throughput() string {
	return fmt.Sprintf("\n%d files of %d s at once: plain, two at a time, %.1f s; weir %.1f s; "+
		"throughput %.3f (at least %.1f)\nCPU %.1f s and %.1f s (%.3f), with thumbnails; "+
		"memory %.0f MB and %.0f MB",
		r.files, r.seconds, median(r.plain, wallOf), median(r.weir, wallOf),
		1/r.wallRatio(), vodMinThroughput,
		median(r.plain, cpuTimeOf), median(r.weir, cpuTimeOf), r.cpuRatio(),
		median(r.plain, peakOf), median(r.weir, peakOf))
}

// check holds a row against what is promised.
func (r *vodRow) check(t *testing.T) {
	t.Helper()
	atMost := func(what string, got, limit float64) {
		if got > limit {
			t.Errorf("%s: %s %.3f, want at most %.3f", r.name(), what, got, limit)
		}
	}
	if got := 1 / r.wallRatio(); r.files > 0 {
		if got < vodMinThroughput {
			t.Errorf("%d files: throughput %.3f, want at least %.1f", r.files, got, vodMinThroughput)
		}
		return
	}
	atMost("CPU ratio", r.cpuRatio(), vodMaxCPU)
	if r.workers.whole() {
		limit := vodMaxWallLong
		if r.seconds <= shortFilm {
			limit = vodMaxWallShort
		}
		atMost("wall ratio", r.wallRatio(), limit)
	}
	if r.seconds == firstFilm && r.workers.whole() {
		atMost("first segment of all renditions, of plain's wall,", r.firstShare(), vodMaxFirst)
	}
	if r.c.passes {
		atMost("seconds to the source's first segment", median(r.weir, sourceOf), vodMaxSourceFirst)
	}
	for _, d := range r.quality {
		d.check(t, r.name())
	}
}

func wallOf(m measured) float64     { return m.wall.Seconds() }
func cpuTimeOf(m measured) float64  { return m.cpu.Seconds() }
func begunOf(m measured) float64    { return m.begun().Seconds() }
func playableOf(m measured) float64 { return m.playable().Seconds() }
func peakOf(m measured) float64     { return m.peak / 1e6 }
func besideOf(m measured) float64   { return m.beside.Seconds() }

// sourceOf is when the first segment of the source that passes through was complete.
func sourceOf(m measured) float64 { return m.segment[ladder[0].name].Seconds() }

func (r *vodRow) wallRatio() float64 { return median(r.weir, wallOf) / median(r.plain, wallOf) }
func (r *vodRow) cpuRatio() float64 {
	return median(r.weir, cpuTimeOf) / median(r.plain, cpuTimeOf)
}

// firstShare is how much of the time of plain ffmpeg has passed when every rendition of weir has a
// segment.
func (r *vodRow) firstShare() float64 { return median(r.weir, begunOf) / median(r.plain, wallOf) }

// worst returns the largest loss of SSIM, and the bitrate that is farthest off.
func (r *vodRow) worst() (ssim, bitrate float64, frames string) {
	ssim, frames = 1, "same"
	for _, d := range r.quality {
		ssim = min(ssim, d.ssim())
		if math.Abs(d.bitrate()) > math.Abs(bitrate) {
			bitrate = d.bitrate()
		}
		if d.plain.frames != d.weir.frames {
			frames = "other"
		}
	}
	return ssim, bitrate, frames
}
