package live

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// minRate is the lowest frame rate of a rung that is reduced to save CPU.
const minRate = 12

// ladderPlan is a way to encode a ladder, with the issues that it has for the owner of the stream.
type ladderPlan struct {
	encode ffmpeg.LiveEncode
	rungs  []int // positions in the profiles of the stream, in the order of encode.Rungs
	issues []string
}

// ladderPlans returns the plans for a source with a frame rate, the best first. Each one costs less
// CPU: first by faster presets, then by half the frames, then by fewer rungs. There are none when the
// source is smaller than all profiles.
func ladderPlans(profiles []weir.Profile, source cmaf.Track, rate float64) []ladderPlan {
	across, down := source.DisplaySize()
	width, height := int(math.Round(across)), int(math.Round(down))
	whole := ladderPlan{encode: ffmpeg.LiveEncode{Video: formatOf(source), Rate: rate, Timescale: int64(source.Timescale)}}
	for i, p := range profiles {
		if p.Enlarges(width, height) {
			continue
		}
		whole.rungs = append(whole.rungs, i)
		whole.encode.Rungs = append(whole.encode.Rungs, liveRung(p, width, height, rate))
	}
	if len(whole.rungs) == 0 {
		return nil
	}
	const (
		quick  = "the renditions have a lower quality: this server is busy and encodes with a faster preset"
		halved = "the renditions have half the frame rate: this server is busy"
	)
	faster, fastest := whole.at(ffmpeg.PresetFast), whole.at(ffmpeg.PresetFastest)
	fastest.issues = []string{quick}
	plans := []ladderPlan{whole.at(ffmpeg.PresetBest), faster, fastest}
	if slower := fastest.slower(); slower.encode.Cost() < fastest.encode.Cost() {
		slower.issues = []string{quick, halved}
		plans = append(plans, slower)
	}
	for fewer := plans[len(plans)-1]; len(fewer.rungs) > 1; {
		fewer = fewer.without(profiles)
		plans = append(plans, fewer)
	}
	return plans
}

// formatOf returns the properties of a source that ffmpeg's filters need.
func formatOf(source cmaf.Track) ffmpeg.VideoFormat {
	display := source.Config().Display()
	p := ffmpeg.VideoFormat{Width: source.Width, Height: source.Height, Interlaced: display.Interlaced}
	p.Primaries, p.Transfer, p.Matrix = ffmpeg.ColourNames(display.Primaries, display.Transfer, display.Matrix)
	if display.FullRange {
		p.Range = "pc"
	}
	return p
}

// liveRung returns the encoder settings of a profile.
func liveRung(p weir.Profile, width, height int, rate float64) ffmpeg.LiveRung {
	r := ffmpeg.LiveRung{Profile: p.Profile, Bitrate: p.Bitrate}
	r.Width, r.Height = p.Fit(width, height)
	if p.FPS != nil && *p.FPS > 0 {
		// A rate above that of the source has no effect.
		if asked := float64(*p.FPS) / float64(max(p.FPSDen, 1)); asked < rate*0.99 {
			r.Rate = asked
		}
	}
	if p.Quality != nil {
		r.Quality = float64(*p.Quality)
	}
	switch seconds, err := strconv.ParseFloat(p.GOP, 64); {
	case strings.EqualFold(p.GOP, "intra"):
		r.GOP = 1
	case err == nil && seconds > 0:
		shown := rate
		if r.Rate > 0 {
			shown = r.Rate
		}
		r.GOP = max(int(math.Round(seconds*shown)), 1)
	}
	return r
}

// at returns the plan with a preset for all rungs.
func (p ladderPlan) at(preset string) ladderPlan {
	p.encode.Rungs = slices.Clone(p.encode.Rungs)
	for i := range p.encode.Rungs {
		p.encode.Rungs[i].Preset = preset
	}
	return p
}

// slower returns the plan with half the frames of all rungs that have enough of them.
func (p ladderPlan) slower() ladderPlan {
	p.encode.Rungs = slices.Clone(p.encode.Rungs)
	for i, r := range p.encode.Rungs {
		rate := r.FrameRate(p.encode)
		if rate/2 >= minRate {
			p.encode.Rungs[i].Rate = rate / 2
		}
	}
	return p
}

// without returns the plan without its largest rung.
func (p ladderPlan) without(profiles []weir.Profile) ladderPlan {
	largest := 0
	for i, r := range p.encode.Rungs {
		if top := p.encode.Rungs[largest]; r.Width*r.Height > top.Width*top.Height {
			largest = i
		}
	}
	p.issues = append(slices.Clip(p.issues), fmt.Sprintf("the rendition %s is left out: this server is busy", profiles[p.rungs[largest]].Name))
	p.encode.Rungs = slices.Delete(slices.Clone(p.encode.Rungs), largest, largest+1)
	p.rungs = slices.Delete(slices.Clone(p.rungs), largest, largest+1)
	return p
}

// frameRate returns the frame rate, measured by the times of some frames.
func frameRate(shown []time.Duration) float64 {
	shown = slices.Clone(shown)
	slices.Sort(shown)
	var lengths []time.Duration
	for i := 1; i < len(shown); i++ {
		if d := shown[i] - shown[i-1]; d > 0 {
			lengths = append(lengths, d)
		}
	}
	if len(lengths) == 0 {
		return 30
	}
	slices.Sort(lengths)
	// Times in milliseconds are rounded: the mean of the middle ones is not.
	middle := lengths[len(lengths)/4 : len(lengths)-len(lengths)/4]
	var sum time.Duration
	for _, d := range middle {
		sum += d
	}
	rate := float64(time.Second) * float64(len(middle)) / float64(sum)
	for _, usual := range []float64{10, 12, 15, 20, 24, 25, 30, 48, 50, 60, 120} {
		if math.Abs(rate-usual) < 0.021*usual {
			return usual
		}
	}
	return min(max(rate, 1), 240)
}
