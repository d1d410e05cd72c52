package cmaf

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Master is a presentation from which a player chooses.
type Master struct {
	Video []Rendition // one picture in several sizes, in any order
	Audio []Rendition // several languages; of one audio there is one rendition
	TS    bool        // the segments are MPEG-TS, and those of video have the default audio inside
}

// Rendition is a track as a playlist names it.
type Rendition struct {
	Name  string // of its profile
	URI   string // path of its media playlist, relative to the master playlist, not escaped
	Index TrackIndex

	// Bandwidth and AverageBandwidth are bits per second as they were measured, in
	// MPEG-TS with the audio inside. 0 = reckoned from the index.
	Bandwidth, AverageBandwidth int64

	// FrameRate is what the encoder of video was told, where there is too little to see it
	// yet. 0 = reckoned from the index.
	FrameRate float64
}

// audioGroup is the name of the only group of audio tracks.
const audioGroup = "audio"

// swapFrom is the width or height from which on a rendition is too heavy to be the
// first that a player tries.
const swapFrom = 960

// MasterPlaylist writes the HLS playlist that names the others.
func MasterPlaylist(w io.Writer, m Master) error {
	var text strings.Builder
	audio := defaultFirst(m.Audio)
	inside := m.TS || len(m.Video) == 0 // the default audio needs no playlist of its own
	group := len(audio) > 1 || len(audio) == 1 && !inside

	version := 3
	if group {
		version = 4
	}
	fmt.Fprintf(&text, "#EXTM3U\n#EXT-X-VERSION:%d\n#EXT-X-INDEPENDENT-SEGMENTS\n", version)
	if group {
		for _, a := range audioMedia(audio, inside) {
			fmt.Fprintf(&text, "#EXT-X-MEDIA:%s\n", a)
		}
	}
	for i, v := range m.variants(audio, inside) {
		a := attributes{}
		a.number("BANDWIDTH", v.peak)
		a.number("AVERAGE-BANDWIDTH", v.average)
		a.quoted("CODECS", strings.Join(v.codecs, ","))
		if v.Index.Track.Kind == Video {
			width, height := v.Index.Track.DisplaySize()
			a.add("RESOLUTION", fmt.Sprintf("%.0fx%.0f", width, height))
			if rate := cmp.Or(v.FrameRate, frameRate(v.Index)); rate > 0 {
				a.add("FRAME-RATE", strconv.FormatFloat(rate, 'f', 3, 64))
			}
		}
		if group {
			a.quoted("AUDIO", audioGroup)
		}
		a.quoted("NAME", fmt.Sprintf("%d-%s", i, v.Name))
		fmt.Fprintf(&text, "#EXT-X-STREAM-INF:%s\n%s\n", a, escapePath(v.URI))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// defaultFirst returns the audio tracks, that which plays unasked first.
func defaultFirst(audio []Rendition) []Rendition {
	audio = slices.Clone(audio)
	slices.SortStableFunc(audio, func(a, b Rendition) int {
		switch {
		case a.Index.Track.Default == b.Index.Track.Default:
			return 0
		case a.Index.Track.Default:
			return -1
		}
		return 1
	})
	return audio
}

// audioMedia returns the attributes of the audio tracks. Names in a group differ,
// and so do the languages among which a player may choose unasked.
func audioMedia(audio []Rendition, inside bool) []attributes {
	var list []attributes
	names, languages := map[string]bool{}, map[string]bool{}
	for i, r := range audio {
		t := r.Index.Track
		language := languageTag(t.Language)
		name := cmp.Or(t.Name, language, fmt.Sprintf("Audio %d", i+1))
		for n, plain := 2, name; names[name]; n++ {
			name = fmt.Sprintf("%s (%d)", plain, n)
		}
		names[name] = true

		a := attributes{"TYPE=AUDIO"}
		a.quoted("GROUP-ID", audioGroup)
		a.quoted("NAME", name)
		if language != "" {
			a.quoted("LANGUAGE", language)
		}
		if i == 0 {
			a.add("DEFAULT", "YES")
		}
		if i == 0 || language != "" && !languages[language] {
			a.add("AUTOSELECT", "YES")
		}
		languages[language] = true
		if t.Channels > 0 {
			a.quoted("CHANNELS", strconv.Itoa(t.Channels))
		}
		if i > 0 || !inside {
			a.add("URI", `"`+escapePath(r.URI)+`"`)
		}
		list = append(list, a)
	}
	return list
}

// variant is a rendition with the audio that plays with it.
type variant struct {
	Rendition
	peak, average int64 // bits per second
	codecs        []string
}

// variants returns the renditions in the order in which they stand in the
// playlist: heaviest first, but not a big one at the very front, where a player
// starts.
func (m Master) variants(audio []Rendition, inside bool) []variant {
	video := m.Video
	if len(video) == 0 {
		video = audio[:min(1, len(audio))]
	}
	var muxed, beside [2]int64 // peak and average of audio in and beside the segments of video
	var codecs []string
	for i, r := range audio {
		codecs = append(codecs, r.Index.Track.Codec)
		switch rates := m.bitRates(r); {
		case len(m.Video) == 0: // whichever plays is alone
		case i == 0 && inside:
			muxed = rates
		default:
			beside = [2]int64{max(beside[0], rates[0]), max(beside[1], rates[1])}
		}
	}

	var list []variant
	for _, r := range video {
		rates := m.bitRates(r)
		if r.Bandwidth == 0 {
			rates = [2]int64{rates[0] + muxed[0], rates[1] + muxed[1]}
		}
		v := variant{Rendition: r, peak: rates[0] + beside[0], average: rates[1] + beside[1]}
		for _, c := range append([]string{r.Index.Track.Codec}, codecs...) {
			if !slices.Contains(v.codecs, c) {
				v.codecs = append(v.codecs, c)
			}
		}
		list = append(list, v)
	}
	slices.SortStableFunc(list, func(a, b variant) int { return cmp.Compare(b.peak, a.peak) })
	if len(list) > 1 && max(list[0].Index.Track.Width, list[0].Index.Track.Height) >= swapFrom {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// bitRates returns the peak and the average rate of a rendition as it is
// delivered.
func (m Master) bitRates(r Rendition) [2]int64 {
	if r.Bandwidth > 0 {
		return [2]int64{r.Bandwidth, cmp.Or(r.AverageBandwidth, r.Bandwidth)}
	}
	size := Segment.Size
	if m.TS {
		size = tsSize(r.Index.Track)
	}
	sizes := make([]int64, len(r.Index.Segments))
	for i, s := range r.Index.Segments {
		sizes[i] = size(s)
	}
	peak, average := BitRates(r.Index, sizes)
	return [2]int64{peak, average}
}

// BitRates returns the peak and the average bit rate of the segments of a track when
// they have these sizes. The peak is that of RFC 8216: of any run of segments that
// lasts between half and one and a half target durations, so that a short last
// segment does not count for more than it weighs.
func BitRates(t TrackIndex, sizes []int64) (peak, average int64) {
	scale := max(1, int64(t.Track.Timescale))
	rate := func(bytes, ticks int64) int64 {
		return int64(math.Ceil(float64(bytes) * 8 * float64(scale) / float64(ticks)))
	}
	var bytes, ticks, longest int64
	for i, s := range t.Segments {
		bytes += sizes[i]
		ticks += s.Duration()
		longest = max(longest, s.Duration())
	}
	if ticks <= 0 {
		return 0, 0
	}
	average = rate(bytes, ticks)
	peak = average
	for i := range t.Segments {
		var bytes, ticks int64
		for j := i; j < len(t.Segments); j++ {
			bytes += sizes[j]
			ticks += t.Segments[j].Duration()
			if 2*ticks > 3*longest {
				break
			}
			if 2*ticks >= longest && ticks > 0 {
				peak = max(peak, rate(bytes, ticks))
			}
		}
	}
	return peak, average
}

// frameRate returns the frames per second of video. Of a rate that varies it is
// that of the fastest segment, because that is what a decoder must be fit for; but
// time stamps that jitter by a percent do not make a rate vary, nor does the frame that a
// segment has more for being cut anywhere, as the last of a broadcast is.
func frameRate(t TrackIndex) float64 {
	average := t.FrameRate()
	fastest := average
	for _, s := range t.Segments {
		d, frames := float64(s.Duration())/float64(max(1, t.Track.Timescale)), float64(s.Frames())
		if d >= 0.5 && (frames-1)/d > average*1.01 {
			fastest = max(fastest, frames/d)
		}
	}
	return fastest
}
