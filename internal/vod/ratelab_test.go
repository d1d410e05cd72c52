package vod

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"weir/internal/ffmpeg"
)

type labSet struct {
	Name          string
	Bitrate       int
	Width, Height int
	Crfs          []float64
	Bits, SSIM    [][]float64
	Weights       []int64
	A, ASSIM      []float64
	F             float64
}

func (s labSet) at(rows [][]float64, k int, c float64, log bool) float64 {
	i := 0
	for i < len(s.Crfs)-2 && s.Crfs[i+1] < c {
		i++
	}
	t := (c - s.Crfs[i]) / (s.Crfs[i+1] - s.Crfs[i])
	a, b := rows[i][k], rows[i+1][k]
	if log {
		return math.Exp(math.Log(a) + (math.Log(b)-math.Log(a))*t)
	}
	return a + (b-a)*t
}

func TestRateLab(t *testing.T) {
	data, err := os.ReadFile("/dev/shm/plab/sets.json")
	if err != nil {
		t.Skip()
	}
	var sets []labSet
	if err := json.Unmarshal(data, &sets); err != nil {
		t.Fatal(err)
	}
	var square, worst, low, sum float64
	bad := 0
	for i, s := range sets {
		p := Plan{Timescale: 24, Rate: ffmpeg.Ratio{Num: 24, Den: 1}, End: 1440, Weights: s.Weights, Renditions: []Rendition{{Codec: ffmpeg.H264, Width: s.Width, Height: s.Height, Bitrate: s.Bitrate, GOP: 2}, {Codec: ffmpeg.H264, Width: s.Width, Height: s.Height, Bitrate: s.Bitrate, GOP: 2}}}
		p.Source.Video = &SourceVideo{Stream: ffmpeg.Stream{Width: 1920, Height: 1080}}
		for k := range 10 {
			p.Starts = append(p.Starts, int64(k*144))
			p.Frames = append(p.Frames, 144)
		}
		p.planChunks(2)
		var stats []ChunkStats
		var total, atotal, ssim, assim float64
		text := ""
		for n := range p.Chunks {
			rate := p.Rates(n, stats[:p.Needs(n)])[0]
			one := EncodeStats{Quality: rate.Quality, Bitrate: rate.Bitrate, Frames: 144}
			bits, q := s.A[n], s.ASSIM[n]
			if rate.Quality > 0 {
				bits, q = min(s.at(s.Bits, n, rate.Quality, true), 9.3*float64(s.Bitrate)), s.at(s.SSIM, n, rate.Quality, false)
			} else {
				one.Factor = s.F
				if n > 0 {
					bits = float64(rate.Bitrate) * 6
					text += "ABR "
				}
			}
			one.Bytes = int64(bits / 8)
			stats = append(stats, ChunkStats{Renditions: []EncodeStats{one, one}})
			total, atotal, ssim, assim = total+bits, atotal+s.A[n], ssim+q/10, assim+s.ASSIM[n]/10
			text += fmt.Sprintf("%.1f:%d/%d ", rate.Quality, int(bits/6000), int(s.A[n]/6000))
		}
		e, d := total/atotal-1, ssim-assim
		square += e * e
		worst, low, sum = max(worst, math.Abs(e)), min(low, d), sum+d
		if math.Abs(e) > 0.03 || d < -0.001 {
			bad++
		}
		if i%15 == 0 || os.Getenv("ALL") != "" {
			t.Logf("%s %+.2f%% %+.5f  %s", s.Name, 100*e, d, text)
		}
	}
	t.Logf("rms %.2f%% worst %.2f%% ssim min %+.5f mean %+.5f bad %d/%d", 100*math.Sqrt(square/float64(len(sets))), 100*worst, low, sum/float64(len(sets)), bad, len(sets))
}
