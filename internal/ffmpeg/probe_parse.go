package ffmpeg

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// The kinds of tracks that weir uses.
const (
	kindVideo = "video"
	kindAudio = "audio"
)

// text is a string or a number in ffprobe's JSON, "" for anything else. ffprobe writes some numbers as
// strings, and versions differ.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	switch {
	case len(data) == 0 || strings.IndexByte(`{[tfn`, data[0]) >= 0:
		*t = ""
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(t))
	default:
		*t = text(data)
	}
	return nil
}

func (t text) number() int64 {
	n, _ := strconv.ParseInt(string(t), 10, 64)
	return n
}

// small returns a positive number that is small enough to be multiplied, else 0.
func (t text) small() int {
	if n := t.number(); n > 0 && n <= 1<<30 {
		return int(n)
	}
	return 0
}

func (t text) rate() int64 { return min(max(t.number(), 0), 1<<50) }

// maxTime bounds times: time.Duration can't hold much more.
const maxTime = 100 * 365 * 24 * time.Hour

func (t text) seconds() time.Duration {
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > maxTime.Seconds() {
		return 0
	}
	// ffprobe writes microseconds.
	return time.Duration(math.Round(f*1e6)) * time.Microsecond
}

// ratio parses 24000/1001, or 16:11 with the other separator. Invalid ones are 0/0.
func (t text) ratio(separator string) Ratio {
	a, b, _ := strings.Cut(string(t), separator)
	num, err1 := strconv.ParseInt(a, 10, 32)
	den, err2 := strconv.ParseInt(b, 10, 32)
	if err1 != nil || err2 != nil || num <= 0 || den <= 0 {
		return Ratio{}
	}
	return Ratio{Num: num, Den: den}
}

// label returns a name from the file, at most 100 printable characters.
func (t text) label() string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, string(t))
	if runes := []rune(s); len(runes) > 100 {
		s = string(runes[:100])
	}
	return strings.TrimSpace(s)
}

type rawProbe struct {
	Tracks []rawTrack `json:"streams"`
	Format struct {
		Name     text            `json:"format_name"`
		Start    text            `json:"start_time"`
		Duration text            `json:"duration"`
		BitRate  text            `json:"bit_rate"`
		Tags     map[string]text `json:"tags"`
	} `json:"format"`
}

type rawTrack struct {
	Index         text            `json:"index"`
	Codec         text            `json:"codec_name"`
	Kind          text            `json:"codec_type"`
	Tag           text            `json:"codec_tag_string"`
	Profile       text            `json:"profile"`
	Level         text            `json:"level"`
	Width         text            `json:"width"`
	Height        text            `json:"height"`
	SampleAspect  text            `json:"sample_aspect_ratio"`
	PixelFormat   text            `json:"pix_fmt"`
	Range         text            `json:"color_range"`
	Primaries     text            `json:"color_primaries"`
	Transfer      text            `json:"color_transfer"`
	Matrix        text            `json:"color_space"`
	FieldOrder    text            `json:"field_order"`
	Reorder       text            `json:"has_b_frames"`
	TopRate       text            `json:"r_frame_rate"`
	Rate          text            `json:"avg_frame_rate"`
	TimeBase      text            `json:"time_base"`
	StartTicks    text            `json:"start_pts"`
	Start         text            `json:"start_time"`
	DurationTicks text            `json:"duration_ts"`
	Duration      text            `json:"duration"`
	BitRate       text            `json:"bit_rate"`
	RawBits       text            `json:"bits_per_raw_sample"`
	Bits          text            `json:"bits_per_sample"`
	Frames        text            `json:"nb_frames"`
	Extradata     text            `json:"extradata_size"`
	SampleFormat  text            `json:"sample_fmt"`
	SampleRate    text            `json:"sample_rate"`
	Channels      text            `json:"channels"`
	Layout        text            `json:"channel_layout"`
	Disposition   map[string]text `json:"disposition"`
	Tags          map[string]text `json:"tags"`
	SideData      []struct {
		Type     text `json:"side_data_type"`
		Matrix   text `json:"displaymatrix"`
		Rotation text `json:"rotation"`
		Profile  text `json:"dv_profile"`
	} `json:"side_data_list"`
}

// parseProbe reads the JSON of ffprobe.
func parseProbe(data []byte) (Probe, error) {
	var raw rawProbe
	if err := json.Unmarshal(data, &raw); err != nil {
		return Probe{}, weir.Wrap(weir.Internal, err, "%s: the output of ffprobe can't be parsed", sentenceInternal)
	}
	p := Probe{
		Demuxer:  raw.Format.Name.label(),
		Start:    raw.Format.Start.seconds(),
		Duration: max(raw.Format.Duration.seconds(), 0),
		BitRate:  raw.Format.BitRate.rate(),
	}
	p.Format = formatName(p.Demuxer, string(tag(raw.Format.Tags, "major_brand")))
	for _, r := range raw.Tracks {
		s := r.track()
		switch {
		case s.Kind == kindVideo && s.Still:
			p.Stills = append(p.Stills, s)
		case s.Kind == kindVideo && s.Codec != "" && s.Width > 0 && s.Height > 0:
			p.Video = append(p.Video, s)
		case s.Kind == kindAudio && s.Codec != "" && s.SampleRate > 0 && s.Channels > 0:
			p.Audio = append(p.Audio, s)
		default:
			p.Other = append(p.Other, s)
		}
	}
	rank := map[bool]int{true: -1}
	defaultFirst := func(a, b Track) int { return rank[a.Default] - rank[b.Default] }
	slices.SortStableFunc(p.Video, defaultFirst)
	slices.SortStableFunc(p.Audio, defaultFirst)
	return p, nil
}

// formatName returns the name of the container in the API.
func formatName(demuxer, brand string) string {
	names := strings.Split(demuxer, ",")
	switch {
	case slices.Contains(names, "mp4") && strings.TrimSpace(brand) == "qt":
		return "mov"
	case slices.Contains(names, "mp4"):
		return "mp4"
	case slices.Contains(names, "hls"), slices.Contains(names, "applehttp"):
		return "hls"
	}
	return names[0]
}

func (r rawTrack) track() Track {
	s := Track{
		Index: r.Index.small(), Kind: r.Kind.label(), Codec: known(r.Codec), Profile: known(r.Profile), Level: r.Level.small(),
		Tag: r.Tag.label(), Language: language(tag(r.Tags, "language")), Title: tag(r.Tags, "title").label(),
		Default: r.Disposition["default"] == "1", Forced: r.Disposition["forced"] == "1",
		Deaf:      r.Disposition["hearing_impaired"] == "1",
		Still:     r.Disposition["attached_pic"] == "1" || r.Disposition["timed_thumbnails"] == "1" || r.Disposition["still_image"] == "1",
		Extradata: r.Extradata.number() > 0,
		TimeBase:  r.TimeBase.ratio("/"), StartTicks: r.StartTicks.number(), DurationTicks: max(r.DurationTicks.number(), 0),
		Start: r.Start.seconds(), Duration: max(r.Duration.seconds(), 0), BitRate: r.BitRate.rate(), Frames: max(r.Frames.number(), 0),
		BitDepth: max(r.RawBits.small(), r.Bits.small()),
	}
	if s.BitRate == 0 {
		s.BitRate = tag(r.Tags, "BPS").rate() // mkvmerge's statistics
	}
	switch s.Kind {
	case kindVideo:
		r.video(&s)
	case kindAudio:
		s.Channels, s.Layout = r.Channels.small(), known(r.Layout)
		s.SampleRate, s.SampleFormat = r.SampleRate.small(), known(r.SampleFormat)
	}
	return s
}

// maxSide is larger than the frames of any codec.
const maxSide = 1 << 16

func (r rawTrack) video(s *Track) {
	s.Width, s.Height = r.Width.small(), r.Height.small()
	if s.Width > maxSide || s.Height > maxSide {
		s.Width, s.Height = 0, 0
	}
	s.Sample = r.SampleAspect.ratio(":")
	if !s.Sample.Given() || s.Sample.Num > 100*s.Sample.Den || s.Sample.Den > 100*s.Sample.Num {
		s.Sample = Ratio{Num: 1, Den: 1}
	}
	s.PixelFormat, s.FieldOrder, s.Reorder = known(r.PixelFormat), known(r.FieldOrder), r.Reorder.small()
	s.Rate, s.TopRate = r.Rate.ratio("/"), r.TopRate.ratio("/")
	s.Range, s.Primaries, s.Transfer, s.Matrix = known(r.Range), known(r.Primaries), known(r.Transfer), known(r.Matrix)
	if depth := bitDepth(s.PixelFormat); depth > 0 {
		s.BitDepth = depth
	}
	for _, side := range r.SideData {
		switch {
		case side.Matrix != "" || side.Rotation != "":
			s.Rotation, s.Mirrored = orientation(string(side.Matrix), string(side.Rotation))
		case strings.HasPrefix(string(side.Type), "DOVI"):
			s.DolbyVision = side.Profile.small()
		}
	}
}

// orientation parses a display matrix: lines of `00000000: a b u`, which moves a pixel from x, y (y is
// down) to ax+cy, bx+dy. Angles are rounded to right angles, which files usually have.
func orientation(matrix, rotation string) (degrees int, mirrored bool) {
	var rows [][]float64
	for line := range strings.Lines(matrix) {
		_, numbers, found := strings.Cut(line, ":")
		if !found {
			continue
		}
		var row []float64
		for word := range strings.FieldsSeq(numbers) {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
				return 0, false
			}
			row = append(row, n)
		}
		rows = append(rows, row)
	}
	if len(rows) < 2 || len(rows[0]) < 2 || len(rows[1]) < 2 {
		ccw, err := strconv.ParseFloat(rotation, 64)
		if err != nil {
			return 0, false
		}
		return nearestRight(-ccw), false
	}
	a, b, c, d := rows[0][0], rows[0][1], rows[1][0], rows[1][1]
	if a*d-b*c < 0 {
		a, mirrored = -a, true
	}
	return nearestRight(math.Atan2(b, a) * 180 / math.Pi), mirrored
}

// nearestRight returns 0, 90, 180 or 270.
func nearestRight(degrees float64) int {
	if math.IsNaN(degrees) || math.Abs(degrees) > 1e6 {
		return 0
	}
	return ((int(math.Round(degrees/90))%4 + 4) % 4) * 90
}

// bitDepth returns the bits of a colour: yuv420p10le has ten, p010le too, yuv420p eight.
func bitDepth(pixelFormat string) int {
	name := strings.TrimSuffix(strings.TrimSuffix(pixelFormat, "le"), "be")
	switch name {
	case "":
		return 0
	case "p010", "p210", "p410", "x2rgb10", "x2bgr10", "y210":
		return 10
	case "p012", "p212", "p412", "xyz12", "y212":
		return 12
	case "p016", "p216", "p416", "rgb48", "bgr48", "rgba64", "bgra64", "ya16":
		return 16
	}
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	stem := name[:len(name)-len(digits)]
	if depth, err := strconv.Atoi(digits); err == nil && depth >= 9 && depth <= 16 && (strings.HasSuffix(stem, "p") || stem == "gray") {
		return depth
	}
	return 8
}

// known returns a word of ffprobe, and "" for those that mean unknown.
func known(t text) string {
	switch word := t.label(); word {
	case "unknown", "none", "N/A", "reserved", "unspecified", "-99":
		return ""
	default:
		return word
	}
}

// language returns a language tag; "" = unknown.
func language(t text) string {
	word := strings.ToLower(t.label())
	if word == "und" || len(word) > 20 || strings.ContainsAny(word, " \"'<>&") {
		return ""
	}
	return word
}

// tag returns a tag of a file, whatever its case.
func tag(tags map[string]text, name string) text {
	if value, ok := tags[name]; ok {
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if strings.EqualFold(key, name) {
			return tags[key]
		}
	}
	return ""
}
