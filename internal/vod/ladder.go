package vod

import (
	"fmt"
	"math"

	"weir/internal/weir"
)

const (
	defaultQuality = 27        // of renditions without a requested quality
	unknownBitrate = 4_000_000 // of a source with an unknown bitrate
	maxBitrate     = 288_000_000
	lowBitrate     = "low-bitrate"

	// minSide is the smallest width and height that all encoders accept.
	minSide = 16

	// overSource is how many times the bits of the source a rendition may have for a pixel: that
	// reduces the loss of the second encode.
	overSource = 1.2
)

// defaultLadder returns the renditions of a request without profiles, by the display size of the
// source. Their names have the shorter side, so that a portrait video has the same ladder as a
// landscape one.
func defaultLadder(width, height, bitrate int) []weir.Profile {
	if bitrate <= 0 {
		bitrate = unknownBitrate
	}
	bitrate = min(bitrate, maxBitrate)
	short := min(width, height)

	var ladder []weir.Profile
	for _, rung := range []struct{ width, height, bitrate int }{
		{640, 360, 1_000_000},
		{1280, 720, 4_000_000},
		{1920, 1080, 8_000_000},
		{3840, 2160, 24_000_000},
	} {
		if rung.height >= short || rung.bitrate >= bitrate {
			continue
		}
		fair := overSource * float64(rung.width*rung.height) * float64(bitrate) / (float64(width) * float64(height))
		ladder = append(ladder, weir.Profile{
			Name: fmt.Sprintf("%dp0", rung.height), Width: rung.width, Height: rung.height,
			Bitrate: min(rung.bitrate, int(fair)), FPS: new(0), Quality: new(defaultQuality),
		})
	}
	size := weir.Profile{Width: evenUp(width), Height: evenUp(height), FPS: new(0), Quality: new(defaultQuality)}
	if len(ladder) == 0 {
		low := size
		low.Name, low.Bitrate = lowBitrate, bitrate/2
		if low.Bitrate < 100_000 && bitrate > 100_000 {
			low.Bitrate = 100_000
		}
		low.Bitrate = max(low.Bitrate, 5_000)
		ladder = append(ladder, low)
	}
	top := size
	top.Name = fmt.Sprintf("%dp0", evenUp(short))
	top.Bitrate = min(int(math.Round(overSource*float64(bitrate)*1e6)/1e6), maxBitrate)
	return append(ladder, top)
}

// profiles returns the profiles of a request with their names, and with the size of those that have
// only a bitrate.
func profiles(asked []weir.Profile, width, height, bitrate int) ([]weir.Profile, error) {
	if len(asked) == 0 {
		return defaultLadder(width, height, bitrate), nil
	}
	if err := weir.CheckFileProfiles(asked); err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, p := range asked {
		taken[p.Name] = true
	}
	filled := make([]weir.Profile, len(asked))
	for i, p := range asked {
		name := fmt.Sprintf("custom_%dx%d_%d", p.Width, p.Height, p.Bitrate)
		if p.Width == 0 {
			p.Width, p.Height = evenUp(width), evenUp(height)
			name = fmt.Sprintf("%dp0", min(p.Width, p.Height))
			if p.Quality == nil {
				p.Quality = new(defaultQuality)
			}
		}
		if p.Name == "" {
			p.Name = name
			for n := 2; taken[p.Name]; n++ {
				p.Name = fmt.Sprintf("%s_%d", name, n)
			}
			taken[p.Name] = true
		}
		filled[i] = p
	}
	return filled, nil
}

func evenUp(n int) int { return (n + 1) &^ 1 }
