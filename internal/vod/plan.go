package vod

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// Plan lists the results of a source, and the chunks in which they are made. It depends on the
// source and the request alone. Times are ticks of Timescale on the timeline.
type Plan struct {
	Source         Source  `json:"source"`
	Prefix         string  `json:"prefix"` // of the results in the store
	SegmentSeconds float64 `json:"segmentSeconds"`
	Timescale      int64   `json:"timescale"`

	// Starts are the starts of the segments of all renditions. It is empty when the source is
	// encoded as one chunk, because its frames are not known before.
	Starts []int64 `json:"starts,omitempty"`
	Frames []int   `json:"frames,omitempty"` // of the source in each segment
	End    int64   `json:"end"`

	// Stretches are the connections of a recording; empty = there are no gaps.
	Stretches []Stretch `json:"stretches,omitempty"`

	// Weights are the efforts of the source in each segment or, if they are not known, its bytes: a
	// hint at its complexity.
	Weights []int64 `json:"weights,omitempty"`

	Tick ffmpeg.Ratio `json:"tick"` // see ffmpeg.Encode
	Rate ffmpeg.Ratio `json:"rate"` // frames a second of the source, on average

	Renditions []Rendition  `json:"renditions,omitempty"`
	Audio      []AudioTrack `json:"audio,omitempty"`
	Chunks     []Chunk      `json:"chunks,omitempty"`
}

// Rendition is the video at one size and bitrate.
type Rendition struct {
	Name    string       `json:"name"`
	Dir     string       `json:"dir"`            // of its track, below the prefix
	Copy    bool         `json:"copy,omitempty"` // the track of the source is used as it is
	Codec   ffmpeg.Codec `json:"codec"`
	Width   int          `json:"width"`
	Height  int          `json:"height"`
	Rate    ffmpeg.Ratio `json:"rate"`    // frames a second; not given = those of the source
	Bitrate int          `json:"bitrate"` // requested bits a second
	Quality int          `json:"quality,omitempty"`
	Profile string       `json:"profile,omitempty"` // of H.264
	GOP     float64      `json:"gop,omitempty"`     // seconds between key frames; 0 = every frame is one

	Delay float64 `json:"delay,omitempty"` // seconds by which frames must be decoded before they are shown
}

// converts reports whether the rendition has a frame rate of its own.
func (r Rendition) converts() bool { return r.Rate.Given() }

// rateIn returns the frame rate of the rendition, or else that of the source.
func (r Rendition) rateIn(p Plan) ffmpeg.Ratio {
	if r.converts() {
		return r.Rate
	}
	return p.Rate
}

// reorder returns the maximum of frames that the encoder of r reorders.
func (r Rendition) reorder() int {
	switch {
	case r.Codec == ffmpeg.VP9, r.Codec == ffmpeg.AV1, r.GOP == 0:
		return 0
	case r.Codec == ffmpeg.H264 && (strings.EqualFold(r.Profile, "H264Baseline") || strings.EqualFold(r.Profile, "H264ConstrainedHigh")):
		return 0
	}
	return 2 // B-frames that refer to other B-frames
}

// AudioTrack is an audio track of the result.
type AudioTrack struct {
	Name     string `json:"name"` // also the folder of its track, below the prefix
	Language string `json:"language,omitempty"`
	Title    string `json:"title,omitempty"`
	Default  bool   `json:"default,omitempty"`
	Copy     bool   `json:"copy,omitempty"` // as it is in the source
}

// Chunk is a run of segments that are encoded together.
type Chunk struct {
	First    int   `json:"first"`    // its first segment
	Segments int   `json:"segments"` // their number; 0 = all, not known before
	Start    int64 `json:"start"`
	End      int64 `json:"end"` // 0 = the end of the source

	// Cores is how many runs of ffmpeg share its renditions. Encoders with several threads would
	// not give the same bytes again.
	Cores int `json:"cores"`
	// Needs is how many of the first chunks must be done before it: its rate control depends on
	// their results.
	Needs int `json:"needs,omitempty"`
}

const (
	defaultGOP     = 2.0 // seconds
	shortChunk     = 6   // seconds: shorter ones are not worth the start of a process
	longChunk      = 24  // seconds: the maximum that is lost with a machine
	fewSegments    = 8   // too few to make up for the wrong bitrate of the first ones
	audioTimescale = 90_000

	// firstSegment is the duration in seconds of the first segment, if others are longer: viewers
	// may be waiting for it.
	firstSegment = 4.0

	// shortSegment is the minimum duration of a segment in seconds: shorter ones are not worth a
	// request.
	shortSegment = 1.0
)

// newPlan plans the results of a request; index is that of the source's video, if it was demuxed.
func newPlan(src Source, index cmaf.TrackIndex, req Request) (Plan, error) {
	p := Plan{Source: src, Prefix: src.Prefix, SegmentSeconds: segmentSeconds(req.SegmentSeconds), Timescale: audioTimescale}
	for i, audio := range src.Audio {
		p.Audio = append(p.Audio, AudioTrack{
			Name: "audio" + strconv.Itoa(i), Language: audio.Stream.Language, Title: audio.Stream.Title, Default: i == 0, Copy: audio.Copy,
		})
	}
	if src.Video == nil {
		p.End = int64(math.Round(src.Duration * audioTimescale))
		return p, nil
	}
	renditions, err := planRenditions(*src.Video, req)
	if err != nil {
		return Plan{}, err
	}
	p.Renditions = renditions
	if src.Sequential != "" {
		p.Timescale = src.Video.Timescale
		p.Rate = src.Video.Stream.Rate
		for i := range p.Renditions {
			r := &p.Renditions[i]
			if rate := r.rateIn(p); rate.Num > 0 && r.reorder() > 0 {
				// One more frame than usual, because the times are not known.
				r.Delay = min(float64(r.reorder()+1)*float64(rate.Den)/float64(rate.Num), maxDelay)
			}
		}
		p.Chunks = []Chunk{{Cores: min(max(req.Workers, 2), len(p.Renditions))}}
		return p, nil
	}
	p.planFrames(*src.Video, index, req)
	return p, nil
}

// planFrames sets everything that depends on single frames.
func (p *Plan) planFrames(video SourceVideo, index cmaf.TrackIndex, req Request) {
	table := newFrames(video, index)
	p.Timescale, p.End = video.Timescale, video.End
	p.Tick, p.Rate = table.tick()
	for i := range p.Renditions {
		r := &p.Renditions[i]
		if r.converts() && sameRate(r.Rate, p.Rate) {
			r.Rate = ffmpeg.Ratio{} // nothing to convert
		}
	}
	copied := !req.EncodeAll && p.passThrough(video)
	if copied {
		for _, segment := range index.Segments {
			p.Starts = append(p.Starts, segment.Start())
		}
	} else {
		p.Starts = p.grid(table)
	}
	for i, start := range p.Starts {
		p.Frames = append(p.Frames, len(table.between(start, p.segmentEnd(i))))
	}
	if video.Efforts != nil {
		p.Weights = video.Efforts.weights(p.Starts)
	} else {
		p.Weights = weights(index, p.Starts)
	}
	p.settleRenditions(table)
	if slices.ContainsFunc(p.Renditions, func(r Rendition) bool { return !r.Copy }) {
		p.planChunks(req.workers())
	}
}

// settleRenditions sets what depends on the starts of segments: which renditions can have a frame
// rate of their own, and their delay.
func (p *Plan) settleRenditions(table frames) {
	for i := range p.Renditions {
		r := &p.Renditions[i]
		if r.converts() && !p.everySegmentHasFrames(r.Rate) {
			r.Rate = ffmpeg.Ratio{}
		}
		switch {
		case r.reorder() == 0:
		case r.converts():
			r.Delay = float64(r.reorder()) * float64(r.Rate.Den) / float64(r.Rate.Num)
		default:
			r.Delay = float64(p.maxRun(table, r.reorder())) / float64(p.Timescale)
		}
		r.Delay = min(r.Delay, maxDelay)
	}
}

// grid returns the starts of segments when no rendition is copied: the first frame at or after
// every multiple of the target duration, in longer files counted from the end of a short first
// segment. Where frames are far apart, segments are longer. The last two of many have the same
// duration, so that two workers end at the same time.
func (p *Plan) grid(table frames) []int64 {
	length := int64(math.Round(p.SegmentSeconds * float64(p.Timescale)))
	short := int64(shortSegment * float64(p.Timescale))
	starts := []int64{table.times[0]}
	next := table.times[0] + length
	if early := int64(firstSegment * float64(p.Timescale)); early < length && table.end-table.times[0] > 2*length {
		next = table.times[0] + early
	}
	origin := next
	for _, t := range table.times {
		if t >= next && t-starts[len(starts)-1] >= short {
			starts = append(starts, t)
			next = origin + ((t-origin)/length+1)*length
		}
	}
	last := len(starts) - 1
	if last > 0 && table.end-starts[last] < short {
		starts, last = starts[:last], last-1
	}
	if len(starts) > fewSegments {
		if half := (starts[last-1] + table.end) / 2; half < starts[last] {
			n, _ := slices.BinarySearch(table.times, half)
			starts[last] = table.times[n]
		}
	}
	return starts
}

func (p *Plan) segmentEnd(n int) int64 {
	if end, ok := p.breaksOff(n); ok {
		return end
	}
	if n+1 < len(p.Starts) {
		return p.Starts[n+1]
	}
	return p.End
}

// everySegmentHasFrames reports whether every segment has a frame at another rate.
func (p *Plan) everySegmentHasFrames(rate ffmpeg.Ratio) bool {
	for n := range p.Starts {
		if frameAt(rate, p.Timescale, p.Starts[n]) == frameAt(rate, p.Timescale, p.segmentEnd(n)) {
			return false
		}
	}
	return true
}

// frameAt returns the number of the first frame at or after t, of frames at a rate from 0 on.
func frameAt(rate ffmpeg.Ratio, timescale, t int64) int64 {
	// Seconds are counted separately, so that nothing overflows in a long file.
	seconds, rest := t/timescale, t%timescale
	if rest < 0 {
		seconds, rest = seconds-1, rest+timescale
	}
	whole, part := seconds*rate.Num/rate.Den, seconds*rate.Num%rate.Den
	numerator := part*timescale + rest*rate.Num
	denominator := timescale * rate.Den
	return whole + (numerator+denominator-1)/denominator
}

func (p *Plan) segmentFrames(r Rendition, n int) int {
	if !r.converts() {
		return p.Frames[n]
	}
	return int(frameAt(r.Rate, p.Timescale, p.segmentEnd(n)) - frameAt(r.Rate, p.Timescale, p.Starts[n]))
}

// totalFrames returns how many frames rendition r has; 0 = not known before it is encoded.
func (p *Plan) totalFrames(r Rendition) (total int) {
	for n := range p.Starts {
		total += p.segmentFrames(r, n)
	}
	return total
}

// encoded returns the renditions that chunks encode, in the order of their results.
func (p *Plan) encoded() []Rendition {
	return slices.DeleteFunc(slices.Clone(p.Renditions), func(r Rendition) bool { return r.Copy })
}

// TS reports whether every rendition can be MPEG-TS.
func (p *Plan) TS() bool {
	return !slices.ContainsFunc(p.Renditions, func(r Rendition) bool { return r.Codec != ffmpeg.H264 })
}

// ready returns the chunks that are not done and can be encoded now.
func (p *Plan) ready(done []bool) []int {
	contiguous := 0
	for contiguous < len(p.Chunks) && contiguous < len(done) && done[contiguous] {
		contiguous++
	}
	var ready []int
	for n := contiguous; n < len(p.Chunks); n++ {
		if (n >= len(done) || !done[n]) && p.Needs(n) <= contiguous {
			ready = append(ready, n)
		}
	}
	return ready
}

// Needs returns how many of the first chunks must be done before chunk n.
func (p *Plan) Needs(n int) int { return p.Chunks[n].Needs }

// planChunks divides the segments into chunks. The first chunk is one segment on several cores, so
// that viewers can play it early and its result is known to the others. In a file of few segments
// all chunks are like that, because only few segments can make up for a wrong bitrate. The others
// are encoded in rounds of one for each worker, so that all workers end at the same time; they know
// the results of the rounds before the current one. In short files chunks are short, so that later
// ones can make up for earlier ones. Segments that do not fill a round are encoded at the end, on
// the cores that would be idle; with two workers they know all other results.
func (p *Plan) planChunks(workers int) {
	p.addChunk(1, workers, 0)
	if workers == 2 && len(p.Starts) <= fewSegments {
		for n := 1; n < len(p.Starts); n++ {
			p.addChunk(1, workers, n)
		}
		return
	}
	left := len(p.Starts) - 1
	if left == 0 {
		return
	}
	total := float64(p.End-p.Starts[0]) / float64(p.Timescale)
	rest := left % workers
	each := (left - rest) / workers
	seconds := float64(each) * float64(p.End-p.Starts[1]) / float64(p.Timescale) / float64(left)
	rounds := int(math.Round(seconds / min(max(total/float64(5*workers), shortChunk), longChunk)))
	rounds = min(max(rounds, 1), each)
	for round := range rounds {
		size := each / rounds
		if round < each%rounds {
			size++
		}
		for range workers {
			p.addChunk(size, 1, max(len(p.Chunks)-workers+1, 1))
		}
	}
	for range rest {
		if workers <= 2 {
			p.addChunk(1, workers, len(p.Chunks))
			continue
		}
		p.addChunk(1, workers/rest, max(len(p.Chunks)-workers+1, 1))
	}
}

func (p *Plan) addChunk(segments, cores, needs int) {
	first := 0
	if n := len(p.Chunks); n > 0 {
		first = p.Chunks[n-1].First + p.Chunks[n-1].Segments
	}
	p.Chunks = append(p.Chunks, Chunk{
		First: first, Segments: segments, Start: p.Starts[first], End: p.segmentEnd(first + segments - 1),
		Cores: min(max(cores, 1), len(p.encoded())), Needs: needs,
	})
}

// planRenditions sets everything that does not depend on single frames.
func planRenditions(video SourceVideo, req Request) ([]Rendition, error) {
	requested, err := profiles(req.Profiles, video.Width, video.Height, video.Bitrate)
	if err != nil {
		return nil, err
	}
	var renditions []Rendition
	for i, profile := range requested {
		r := Rendition{
			Name: profile.Name, Dir: profile.Name, Codec: codecOf(profile), Bitrate: profile.Bitrate,
			Profile: profile.Profile, GOP: defaultGOP,
		}
		r.Width, r.Height = profile.Fit(video.Width, video.Height)
		if r.Width > 8192 || r.Height > 8192 {
			return nil, weir.Errorf(weir.Invalid, "profiles[%d]: %dx%d is larger than 8192 pixels", i, r.Width, r.Height)
		}
		if profile.Quality != nil {
			r.Quality = *profile.Quality
		}
		if profile.FPS != nil && *profile.FPS > 0 {
			r.Rate = ffmpeg.Ratio{Num: int64(*profile.FPS), Den: int64(max(profile.FPSDen, 1))}
		}
		if profile.GOP == "intra" {
			r.GOP = 0
		} else if seconds, _ := strconv.ParseFloat(profile.GOP, 64); seconds > 0 {
			r.GOP = seconds
		}
		renditions = append(renditions, r)
	}
	return renditions, nil
}

func codecOf(p weir.Profile) ffmpeg.Codec {
	if p.Codec == "AV1" {
		return ffmpeg.AV1
	}
	switch strings.ToUpper(p.Encoder) {
	case "HEVC":
		return ffmpeg.HEVC
	case "VP9":
		return ffmpeg.VP9
	case "AV1":
		return ffmpeg.AV1
	}
	return ffmpeg.H264
}

func sameRate(a, b ffmpeg.Ratio) bool { return a.Num*b.Den == b.Num*a.Den }

// passThrough marks the rendition that can be copied from the source, if there is one.
func (p *Plan) passThrough(video SourceVideo) bool {
	if video.Encode != "" {
		return false
	}
	i := slices.IndexFunc(p.Renditions, func(r Rendition) bool { return r.is(video) })
	if i >= 0 {
		p.Renditions[i].Copy, p.Renditions[i].Dir = true, sourceDir
	}
	return i >= 0
}

// is reports whether the source meets the rendition.
func (r Rendition) is(video SourceVideo) bool {
	return r.Codec == ffmpeg.H264 && r.Width == video.Stream.Width && r.Height == video.Stream.Height &&
		!r.converts() && r.Bitrate >= video.Bitrate &&
		(r.GOP == defaultGOP || r.GOP > 0 && r.GOP >= video.MaxGOP) &&
		h264Rank(video.Stream.Profile) <= h264Rank(r.Profile)
}

// h264Rank orders profiles of H.264 by what they demand of a player. Unknown ones are above all
// that can be requested.
func h264Rank(profile string) int {
	switch strings.ToLower(strings.TrimPrefix(profile, "H264")) {
	case "constrained baseline", "baseline":
		return 1
	case "main":
		return 2
	case "constrainedhigh":
		return 3
	case "high", "": // the default: all players support it
		return 4
	}
	return 5
}
