package vod

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
)

// recordedFilm is a video in pieces, as x264 encoded it.
type recordedFilm struct {
	Name          string
	Bitrate       int
	Width, Height int
	Seconds       []int       // of each piece; nothing = six
	Source        []int64     // bytes of each piece in the source
	Efforts       []int64     // of each piece in the source; nothing = not known
	Qualities     []float64   // that it was encoded with
	Bits          [][]float64 // of each piece, for each of the qualities
	SSIM          [][]float64 // and what they look like; nothing = not known
	Factor        float64     // that one encode at Bitrate had reached after the first piece
	First         float64     // bits of that piece; 0 = as in Continuous

	Continuous     []float64 // bits of each piece in one encode at Bitrate
	ContinuousSSIM []float64
}

func (f recordedFilm) seconds(k int) int {
	if len(f.Seconds) == 0 {
		return 6
	}
	return f.Seconds[k]
}

// between returns where a quality is among those recorded.
func (f recordedFilm) between(quality float64) (i int, part float64) {
	for i < len(f.Qualities)-2 && f.Qualities[i+1] < quality {
		i++
	}
	return i, (quality - f.Qualities[i]) / (f.Qualities[i+1] - f.Qualities[i])
}

// bits returns what piece k comes to at a quality.
func (f recordedFilm) bits(k int, quality float64) float64 {
	i, part := f.between(quality)
	a, b := math.Log(f.Bits[i][k]), math.Log(f.Bits[i+1][k])
	return min(math.Exp(a+(b-a)*part), (1.5*float64(f.seconds(k))+0.6)*float64(f.Bitrate))
}

// qualityOf returns the quality at which piece k has so many bits.
func (f recordedFilm) qualityOf(k int, bits float64) float64 {
	low, high := 1.0, 51.0
	for range 30 {
		if quality := (low + high) / 2; f.bits(k, quality) > bits {
			low = quality
		} else {
			high = quality
		}
	}
	return low
}

// ssim returns what piece k looks like with so many bits.
func (f recordedFilm) ssim(k int, bits float64) float64 {
	i, part := f.between(f.qualityOf(k, bits))
	return f.SSIM[i][k] + part*(f.SSIM[i+1][k]-f.SSIM[i][k])
}

func (f recordedFilm) plan(workers int) Plan {
	r := Rendition{Name: "a", Codec: ffmpeg.H264, Width: f.Width, Height: f.Height, Bitrate: f.Bitrate, GOP: 2}
	p := Plan{Timescale: 24, Rate: ffmpeg.Ratio{Num: 24, Den: 1}, Weights: f.Source, Renditions: []Rendition{r, r}}
	for n := range f.Source {
		p.Starts, p.Frames = append(p.Starts, p.End), append(p.Frames, 24*f.seconds(n))
		p.End += int64(24 * f.seconds(n))
	}
	if len(f.Efforts) > 0 {
		p.Weights, p.Source.Video = f.Efforts, &SourceVideo{Efforts: &Efforts{}, Width: 1920, Height: 1080}
	}
	p.planChunks(workers)
	return p
}

// encode returns the result of a chunk of one segment with a rate control.
func (f recordedFilm) encode(n int, rate encodeRate) ChunkStats {
	one := EncodeStats{Frames: 24 * f.seconds(n), Quality: rate.Quality, Bitrate: rate.Bitrate}
	switch {
	case rate.Quality > 0:
		one.Bytes = int64(f.bits(n, rate.Quality) / 8)
	case n == 0:
		bits := f.First
		if bits == 0 {
			bits = f.Continuous[0]
		}
		one.Bytes, one.Factor = int64(bits/8), f.Factor
	default:
		one.Bytes = int64(rate.Bitrate * f.seconds(n) / 8)
		one.Factor = f.factor(n, rate.Bitrate)
	}
	return ChunkStats{Renditions: []EncodeStats{one, one}}
}

// factor returns the rate factor that x264 logs for piece n when it met a bitrate.
func (f recordedFilm) factor(n, bitrate int) float64 {
	plan := f.plan(2)
	x := newRateModel(plan, plan.Renditions[0])
	bits := float64(bitrate * f.seconds(n))
	wanted := float64(bitrate) * (float64(f.seconds(n)) + 1/x.rate)
	return x.quality((x.step(f.qualityOf(n, bits))*bits + x.prior) / wanted)
}

func recordedFilms(t *testing.T) []recordedFilm {
	t.Helper()
	data, err := os.ReadFile("testdata/rate.json")
	if err != nil {
		t.Fatal(err)
	}
	var films []recordedFilm
	if err := json.Unmarshal(data, &films); err != nil {
		t.Fatal(err)
	}
	return films
}

// TestRatesFollowX264 simulates the rate control with films that were encoded in pieces at several
// qualities, and expects the size of one continuous encode: within 3 %, also with their pieces in
// any order, which is harder than films are. Where it is known, their quality must be the same.
func TestRatesFollowX264(t *testing.T) {
	var square float64
	films := recordedFilms(t)
	for _, film := range films {
		t.Run(film.Name, func(t *testing.T) {
			plan := film.plan(2)
			if len(plan.Chunks) != len(film.Source) {
				t.Fatalf("%d chunks for %d pieces", len(plan.Chunks), len(film.Source))
			}
			var stats []ChunkStats
			var spent, want, looks, seconds float64
			for n := range plan.Chunks {
				rates := plan.rates(n, stats[:plan.Needs(n)])
				if rates[0] != rates[1] {
					t.Errorf("chunk %d: equal renditions get %+v and %+v", n, rates[0], rates[1])
				}
				if rates[0].Peak != film.Bitrate*3/2 || rates[0].Buffer != 2*film.Bitrate {
					t.Errorf("chunk %d: peak and buffer %+v would change the headers", n, rates[0])
				}
				stats = append(stats, film.encode(n, rates[0]))
				for range maxCorrections {
					again, ok := plan.corrected(n, stats[:plan.Needs(n)], stats[n])[0]
					if !ok {
						break
					}
					before := stats[n].Renditions[0].alone()
					stats[n] = film.encode(n, again)
					stats[n].Renditions[0].Before, stats[n].Renditions[1].Before = before, before
				}
				bits, length := float64(stats[n].Renditions[0].Bytes)*8, float64(film.seconds(n))
				spent, want, seconds = spent+bits, want+film.Continuous[n], seconds+length
				if film.SSIM != nil && n > 0 {
					looks += length * (film.ssim(n, bits) - film.ContinuousSSIM[n])
				}
			}
			limit := 0.03
			switch {
			case strings.Contains(film.Name, "slides"):
				limit = 0.04 // still images hardly become smaller with less quality
			case strings.Contains(film.Name, "cuts"):
				limit = 0.035
			}
			off := spent/want - 1
			if math.Abs(off) > limit {
				t.Errorf("%.0f kb/s, one encode has %.0f: %+.1f %%", spent/seconds/1e3, want/seconds/1e3, 100*off)
			}
			worse := 0.001
			if film.Name == "noise 720p" {
				worse = 0.002 // becomes noise in the middle of a piece, and pieces are recorded as wholes
			}
			if looks /= seconds; looks < -worse {
				t.Errorf("SSIM is %.4f lower than that of one encode", -looks)
			}
			square += off * off
		})
	}
	if rms := math.Sqrt(square / float64(len(films))); rms > 0.025 {
		t.Errorf("on average it is off by %.2f %%", 100*rms)
	}
}

// TestRatesAreTheSameAgain gives a chunk more results than it needs, as when it is encoded a second
// time, and expects the same rate control.
func TestRatesAreTheSameAgain(t *testing.T) {
	film := recordedFilms(t)[0]
	plan := film.plan(2)
	var stats []ChunkStats
	var told [][]encodeRate
	for n := range plan.Chunks {
		told = append(told, plan.rates(n, stats[:plan.Needs(n)]))
		stats = append(stats, film.encode(n, told[n][0]))
	}
	for n := range plan.Chunks {
		if diff := cmp.Diff(told[n], plan.rates(n, stats)); diff != "" {
			t.Errorf("chunk %d gets another rate (-first +again):\n%s", n, diff)
		}
	}
}

func TestRates(t *testing.T) {
	film := recordedFilms(t)[0]
	first := film.encode(0, encodeRate{Bitrate: film.Bitrate})
	unknown := ChunkStats{Renditions: []EncodeStats{{Bytes: 600_000, Frames: 144, Bitrate: film.Bitrate}}}
	peak := encodeRate{Bitrate: 800_000, Peak: 1_200_000, Buffer: 1_600_000}
	for _, tt := range []struct {
		name    string
		change  func(*Plan)
		chunk   int
		earlier []ChunkStats
		want    *encodeRate // nil = a quality
	}{
		{name: "first", chunk: 0, want: &peak},
		{name: "second", chunk: 1, earlier: []ChunkStats{first}},
		{name: "x264 did not say", chunk: 1, earlier: []ChunkStats{unknown}, want: &peak},
		{name: "another codec", chunk: 1, earlier: []ChunkStats{first}, want: &peak, change: func(p *Plan) { p.Renditions[0].Codec = ffmpeg.HEVC }},
		{name: "intra only", chunk: 1, earlier: []ChunkStats{first}, want: &peak, change: func(p *Plan) { p.Renditions[0].GOP = 0 }},
		{name: "quality asked for", chunk: 1, earlier: []ChunkStats{first}, want: &encodeRate{Quality: 27, Peak: 800_000, Buffer: 1_600_000}, change: func(p *Plan) { p.Renditions[0].Quality = 27 }},
		{name: "source not taken apart", chunk: 0, want: &peak, change: func(p *Plan) { p.Starts, p.Frames, p.Weights, p.Chunks = nil, nil, nil, []Chunk{{}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := film.plan(2)
			if tt.change != nil {
				tt.change(&plan)
			}
			got := plan.rates(tt.chunk, tt.earlier)[0]
			if tt.want == nil {
				if got.Bitrate != 0 || got.Quality < 10 || got.Quality > 30 {
					t.Errorf("rate %+v, want a quality", got)
				}
				return
			}
			if got != *tt.want {
				t.Errorf("rate %+v, want %+v", got, *tt.want)
			}
		})
	}
}

// TestRatesOfManyWorkers expects that chunks get a bitrate as long as too little is known.
func TestRatesOfManyWorkers(t *testing.T) {
	film := recordedFilms(t)[0]
	plan := film.plan(8)
	first := []ChunkStats{film.encode(0, encodeRate{Bitrate: film.Bitrate})}
	for n := 1; n < len(plan.Chunks) && plan.Needs(n) == 1; n++ {
		if rate := plan.rates(n, first)[0]; (rate.Quality > 0) != (n <= 2) {
			t.Errorf("chunk %d gets %+v", n, rate)
		}
	}
}

// TestRatesAfterTheBuffer expects that a chunk gets a bitrate when the most similar one was limited
// by the buffer: its complexity is not known.
func TestRatesAfterTheBuffer(t *testing.T) {
	film := recordedFilms(t)[0]
	film.Efforts = nil
	film.Source[1], film.Source[3] = 10*film.Source[0], 10*film.Source[0]
	plan := film.plan(2)
	stats := []ChunkStats{film.encode(0, encodeRate{Bitrate: film.Bitrate}), film.encode(1, encodeRate{Quality: 24})}
	if rate := plan.rates(3, stats)[0]; rate.Quality == 0 {
		t.Errorf("rate %+v, want a quality", rate)
	}
	stats[1] = film.encode(1, encodeRate{Quality: 10})
	if rate := plan.rates(3, stats)[0]; rate.Bitrate < film.Bitrate/2 || rate.Bitrate > film.Bitrate*3/2 {
		t.Errorf("rate %+v, want a bitrate", rate)
	}
}

// TestRatesOfTheLast expects that the last chunk gets more than the bitrate when the others left
// bits: its quality is not needed.
func TestRatesOfTheLast(t *testing.T) {
	film := recordedFilms(t)[0]
	film.Efforts = nil
	last := len(film.plan(2).Chunks) - 1
	film.Source[1], film.Source[last] = 10*film.Source[0], 10*film.Source[0]
	plan := film.plan(2)
	var stats []ChunkStats
	for n := range plan.Needs(last) {
		rate := encodeRate{Quality: 35}
		switch n {
		case 0:
			rate = encodeRate{Bitrate: film.Bitrate}
		case 1:
			rate = encodeRate{Quality: 10}
		}
		stats = append(stats, film.encode(n, rate))
	}
	if rate := plan.rates(last, stats)[0]; rate.Bitrate <= film.Bitrate || rate.Bitrate > rate.Peak {
		t.Errorf("rate %+v, want more than %d", rate, film.Bitrate)
	}
}

// TestCorrected gives chunks unexpected results.
func TestCorrected(t *testing.T) {
	film := recordedFilms(t)[0]
	film.Source, film.Efforts = film.Source[:7], film.Efforts[:7]
	plan := film.plan(2)
	last := len(plan.Chunks) - 1
	var stats []ChunkStats
	for n := range plan.Chunks {
		stats = append(stats, film.encode(n, plan.rates(n, stats[:plan.Needs(n)])[0]))
	}
	// as returns the result of chunk n with a multiple of its size, and a share of it in its first
	// half.
	as := func(n int, times, first float64) ChunkStats {
		s := stats[n].Renditions[0]
		s.Bytes = int64(float64(s.Bytes) * times)
		s.Steps = []int64{int64(float64(s.Bytes) * first), int64(float64(s.Bytes) * (1 - first))}
		return ChunkStats{Renditions: []EncodeStats{s, s}}
	}
	full := ChunkStats{Renditions: []EncodeStats{{Bytes: int64(film.Bitrate) * 3 / 2 * 6 / 8, Quality: 20}}}
	again := as(1, 0.5, 0.5)
	again.Renditions[0].Before = &EncodeStats{Bytes: 100_000, Quality: 30}
	for _, tt := range []struct {
		name    string
		chunk   int
		got     ChunkStats
		quality bool
		least   int // bits a second
		limit   int
	}{
		{name: "near", chunk: 1, got: as(1, 1.1, 0.5)},
		{name: "half as large", chunk: 1, got: as(1, 0.5, 0.5), least: 100_000, limit: film.Bitrate * 3 / 2},
		{name: "half as large, most of it in its first half", chunk: 1, got: as(1, 0.4, 0.7), quality: true},
		{name: "half as large again", chunk: 1, got: again},
		{name: "held back by the buffer", chunk: 1, got: full, least: film.Bitrate, limit: film.Bitrate},
		{name: "a little too small", chunk: 3, got: as(3, 0.8, 0.5)},
		{name: "a little too small at the end", chunk: last, got: as(last, 0.8, 0.5), quality: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate, ok := plan.corrected(tt.chunk, stats[:plan.Needs(tt.chunk)], tt.got)[0]
			switch {
			case ok != (tt.quality || tt.least > 0):
				t.Errorf("rate %+v: %v", rate, ok)
			case ok && ((rate.Quality > 0) != tt.quality || rate.Bitrate < tt.least || rate.Bitrate > tt.limit):
				t.Errorf("rate %+v", rate)
			}
		})
	}
}

func TestStats(t *testing.T) {
	var index []byte
	for n := range 2 {
		var samples []cmaf.Sample
		for i := range 12 {
			samples = append(samples, cmaf.Sample{Duration: 1, Size: uint32(100*n + i + 1), Sync: i == 0})
		}
		index = cmaf.AppendEntry(index, cmaf.Segment{Parts: []cmaf.Part{{Start: int64(12 * n), Samples: samples}}})
	}
	before := &EncodeStats{Bytes: 5, Quality: 30}
	got := ChunkResult{Renditions: []RenditionResult{{Index: index, Bytes: 9999, Frames: 24, Bitrate: 7, Factor: 20, Before: before}}}.Stats()
	want := ChunkStats{Renditions: []EncodeStats{{
		Bytes: 12*13/2*2 + 1200, Keys: 102, Steps: []int64{3, 7, 11, 15, 19, 23, 203, 207, 211, 215, 219, 223},
		Frames: 24, Bitrate: 7, Factor: 20, Before: before,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats differ (-want +got):\n%s", diff)
	}
}

func TestWeights(t *testing.T) {
	part := func(start int64, sizes ...uint32) cmaf.Part {
		p := cmaf.Part{Start: start}
		for _, size := range sizes {
			p.Samples = append(p.Samples, cmaf.Sample{Duration: 10, Size: size})
		}
		return p
	}
	index := cmaf.TrackIndex{Segments: []cmaf.Segment{{Parts: []cmaf.Part{part(-10, 1, 2, 4)}}, {Parts: []cmaf.Part{part(20, 8, 16), part(40, 32)}}}}
	// Hidden frames before the first segment count for it.
	if diff := cmp.Diff([]int64{7, 24, 32}, weights(index, []int64{0, 20, 40})); diff != "" {
		t.Errorf("weights differ (-want +got):\n%s", diff)
	}
}
