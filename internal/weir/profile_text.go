package weir

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// knownHeights are common heights with their usual width and bitrate.
var knownHeights = map[int]struct{ width, bitrate int }{
	2160: {3840, 16_000_000}, 1440: {2560, 10_000_000}, 1080: {1920, 6_000_000},
	720: {1280, 3_000_000}, 540: {960, 2_000_000}, 480: {854, 1_600_000},
	360: {640, 800_000}, 240: {426, 400_000}, 144: {256, 200_000},
}

var (
	heightText  = regexp.MustCompile(`^([0-9]{3,4})p$`)
	sizeText    = regexp.MustCompile(`^([0-9]{3,4})x([0-9]{3,4})$`)
	bitrateText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kM]?)$`)
	qualityText = regexp.MustCompile(`^crf([0-9]{1,2})$`)
)

// ParseProfile reads a rendition like 720p:3M or 1280x720:2500k:hevc, in the form
// NAME[:BITRATE][:CODEC][:crfN]. The default bitrate is the usual one of that size.
func ParseProfile(text string) (Profile, error) {
	options := strings.Split(text, ":")
	p := Profile{Name: options[0]}
	if m := heightText.FindStringSubmatch(p.Name); m != nil {
		p.Height, _ = strconv.Atoi(m[1])
		p.Width = usualWidth(p.Height)
	} else if m := sizeText.FindStringSubmatch(p.Name); m != nil {
		p.Width, _ = strconv.Atoi(m[1])
		p.Height, _ = strconv.Atoi(m[2])
	} else {
		return p, Errorf(Invalid, "%q is not a size; write it like 720p or 1280x720", p.Name)
	}
	if p.Width < 128 || p.Height < 128 {
		return p, Errorf(Invalid, "%dx%d is too small; both sides need at least 128 pixels", p.Width, p.Height)
	}
	for _, option := range options[1:] {
		if err := p.setOption(option); err != nil {
			return p, err
		}
	}
	if p.Bitrate == 0 {
		p.Bitrate = usualBitrate(p.Width, p.Height)
	}
	return p, nil
}

// setOption sets the bitrate, the quality or the codec.
func (p *Profile) setOption(option string) error {
	if m := bitrateText.FindStringSubmatch(option); m != nil {
		value, err := strconv.ParseFloat(m[1], 64)
		value *= map[string]float64{"": 1, "k": 1e3, "M": 1e6}[m[2]]
		if err != nil || value < 400 || value > 1e9 {
			return Errorf(Invalid, "%s is not a usable bitrate; write it like 3M or 800k", option)
		}
		p.Bitrate = int(math.Round(value))
		return nil
	}
	if m := qualityText.FindStringSubmatch(option); m != nil {
		quality, _ := strconv.Atoi(m[1])
		if quality > 44 {
			return Errorf(Invalid, "%s is out of range; use crf1 (best) to crf44", option)
		}
		p.Quality = &quality
		return nil
	}
	if !slices.Contains([]string{"h264", "hevc", "vp9", "av1"}, strings.ToLower(option)) {
		return Errorf(Invalid, "%q is neither a bitrate (3M, 800k), nor a codec (h264, hevc, vp9, av1), nor a quality (crf23)", option)
	}
	p.Encoder = option
	p.normalizeEncoder()
	return nil
}

// usualWidth returns the width of a video of that height, in 16:9.
func usualWidth(height int) int {
	if known, ok := knownHeights[height]; ok {
		return known.width
	}
	return even(height * 16 / 9)
}

// usualBitrate returns the bitrate of the smallest known height that has as many pixels.
func usualBitrate(width, height int) int {
	best := knownHeights[2160].bitrate
	for h, known := range knownHeights {
		if known.width*h >= width*height && known.bitrate < best {
			best = known.bitrate
		}
	}
	return best
}
