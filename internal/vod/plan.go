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

// Chunk is a run of segments whose result is stored at once. One encoder makes a chunk and those that
// continue it: an encode. After a crash, a new encoder continues with the first chunk that has no
// result.
type Chunk struct {
	First    int   `json:"first"`    // its first segment
	Segments int   `json:"segments"` // their number; 0 = all, not known before
	Start    int64 `json:"start"`
	End      int64 `json:"end"` // 0 = the end of the source

	Continues bool `json:"continues,omitempty"` // the encode of the chunk before it
}

const (
	defaultGOP     = 2.0 // seconds
	audioTimescale = 90_000

	// The duration in seconds of encodes that run at the same time. Each begins with a guess of the
	// quality that gives its bitrate; with 20 seconds, SSIM is at most 0.001 lower than in one encode.
	shortEncode = 15.0
	longEncode  = 60.0

	// maxChunks bounds the number of results of a film, about.
	maxChunks = 300

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
			Name: "audio" + strconv.Itoa(i), Language: audio.Track.Language, Title: audio.Track.Title, Default: i == 0, Copy: audio.Copy,
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
	if err := p.checkFrames(); err != nil {
		return Plan{}, err
	}
	if src.Sequential != "" {
		p.Timescale = src.Video.Timescale
		p.Rate = src.Video.Track.Rate
		for i := range p.Renditions {
			r := &p.Renditions[i]
			if rate := r.rateIn(p); rate.Num > 0 && r.reorder() > 0 {
				// One more frame than usual, because the times are not known.
				r.Delay = min(float64(r.reorder()+1)*float64(rate.Den)/float64(rate.Num), cmaf.MaxDelaySeconds)
			}
		}
		p.Chunks = []Chunk{{}}
		return p, nil
	}
	p.planFrames(*src.Video, index, req)
	return p, nil
}

// planFrames sets everything that depends on single frames.
func (p *Plan) planFrames(video SourceVideo, index cmaf.TrackIndex, req Request) {
	table := video.frames(index)
	p.Timescale, p.End = video.Timescale, video.End
	p.Tick, p.Rate = ffmpeg.Timing(table.Times, table.End, p.Timescale)
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
		p.Frames = append(p.Frames, len(table.Between(start, p.segmentEnd(i))))
	}
	p.settleRenditions(table)
	if slices.ContainsFunc(p.Renditions, func(r Rendition) bool { return !r.Copy }) {
		p.planChunks(req.Encoders)
	}
}

// settleRenditions sets what depends on the starts of segments: which renditions can have a frame
// rate of their own, and their delay.
func (p *Plan) settleRenditions(table cmaf.Frames) {
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
		r.Delay = min(r.Delay, cmaf.MaxDelaySeconds)
	}
}

// grid returns the starts of segments when no rendition is copied: the first frame at or after
// every multiple of the target duration, in longer files counted from the end of a short first
// segment. Where frames are far apart, segments are longer.
func (p *Plan) grid(table cmaf.Frames) []int64 {
	length := int64(math.Round(p.SegmentSeconds * float64(p.Timescale)))
	short := int64(shortSegment * float64(p.Timescale))
	starts := []int64{table.Times[0]}
	next := table.Times[0] + length
	if early := int64(firstSegment * float64(p.Timescale)); early < length && table.End-table.Times[0] > 2*length {
		next = table.Times[0] + early
	}
	origin := next
	for _, t := range table.Times {
		if t >= next && t-starts[len(starts)-1] >= short {
			starts = append(starts, t)
			next = origin + ((t-origin)/length+1)*length
		}
	}
	last := len(starts) - 1
	if last > 0 && table.End-starts[last] < short {
		starts = starts[:last]
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

// Copied returns the names of the tracks whose frames are those of the source.
func (p *Plan) Copied() (names []string) {
	for _, r := range p.Renditions {
		if r.Copy {
			names = append(names, r.Name)
		}
	}
	for _, a := range p.Audio {
		if a.Copy {
			names = append(names, a.Name)
		}
	}
	return names
}

// TS reports whether every rendition can be MPEG-TS.
func (p *Plan) TS() bool {
	return !slices.ContainsFunc(p.Renditions, func(r Rendition) bool { return r.Codec != ffmpeg.H264 })
}

// planChunks divides the segments into encodes, and those into chunks. If there is one encoder, the
// film is one encode, so that its rate control knows all that came before. Several encoders work at
// the same time, on encodes that know nothing of one another.
func (p *Plan) planChunks(encoders int) {
	seconds := float64(p.End-p.Starts[0]) / float64(p.Timescale)
	atOnce := min(max(int(seconds/shortEncode), 1), max(encoders, 1))
	length := longEncode
	if atOnce == 1 {
		length = p.maxEncode()
	}
	count := atOnce * int(math.Ceil(seconds/float64(atOnce)/length))
	ends := make([]int, count) // the first segment after each encode
	for i := range ends {
		end := p.Starts[0] + int64(float64(i+1)/float64(count)*float64(p.End-p.Starts[0]))
		ends[i], _ = slices.BinarySearch(p.Starts, end)
	}
	p.addEncodes(ends)
}

// maxEncode returns the maximum duration of an encode in seconds: the times of its key frames are an
// argument of ffmpeg, and Linux limits that to 128 kB.
func (p *Plan) maxEncode() float64 {
	longest := 3600.0
	for _, r := range p.encoded() {
		if r.GOP > 0 {
			longest = min(longest, 4000*r.GOP)
		}
	}
	return max(longest, longEncode)
}

// addEncodes adds the chunks of encodes, of which each ends before the given segment. A chunk is a
// segment; only in long films it is more, to bound the number of results.
func (p *Plan) addEncodes(ends []int) {
	size := 1 + len(p.Starts)/maxChunks
	first := 0
	for _, end := range ends {
		for n := first; n < end; n += size {
			last := min(n+size, end) - 1
			p.Chunks = append(p.Chunks, Chunk{
				First: n, Segments: last - n + 1, Start: p.Starts[n], End: p.segmentEnd(last), Continues: n > first,
			})
		}
		first = max(first, end)
	}
}

// encodeFrom returns the chunks from n on that one encoder makes.
func (p *Plan) encodeFrom(n int) []Chunk {
	end := n + 1
	for end < len(p.Chunks) && p.Chunks[end].Continues {
		end++
	}
	return p.Chunks[n:end]
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
	return r.Codec == ffmpeg.H264 && r.Width == video.Track.Width && r.Height == video.Track.Height &&
		!r.converts() && r.Bitrate >= video.Bitrate &&
		(r.GOP == defaultGOP || r.GOP > 0 && r.GOP >= video.MaxGOP) &&
		h264Rank(video.Track.Profile) <= h264Rank(r.Profile)
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
