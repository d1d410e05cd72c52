package cmaf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/hls"
)

// This file makes playlists of tracks: the entries of media playlists, and the choices of a master
// playlist. Package hls writes them.

// Entries returns the segments of a track as a media playlist lists them. The functions return the
// paths of segment n and of its init segment, relative to the playlist and not escaped; without
// init segments the segments are MPEG-TS. Extra are the durations of segments that follow those of
// the track: audio that is longer than the video, in segments that have both.
func (t TrackIndex) Entries(segment, init func(n int) string, extra ...time.Duration) []hls.Segment {
	list := make([]hls.Segment, len(t.Segments)+len(extra))
	for n := range list {
		e := &list[n]
		e.URI = hls.EscapePath(segment(n))
		if init != nil {
			e.Map = &hls.File{URI: hls.EscapePath(init(n))}
		}
		if n >= len(t.Segments) {
			e.Duration = extra[n-len(t.Segments)]
			continue
		}
		s, track := t.Segments[n], t.TrackOf(n)
		if init == nil {
			track.Delay = 0 // players take the presentation time of the first frame
		}
		e.Duration, e.Date = track.between(s.Start(), s.End()), track.date(s)
		e.Discontinuity = s.Discontinuity && n > 0
	}
	return list
}

// TextSegment is a part of a presentation for which text is one file.
type TextSegment struct {
	From, To      time.Duration // as players count: from the first frame, without gaps
	Media         time.Duration // the time in stored segments of what is shown at From
	Discontinuity bool
}

// TextSegments divides a presentation for its text, by the index of its main track: into parts of at
// most the given length, or of one segment, that end at discontinuities, where the times in segments
// may jump.
func (t TrackIndex) TextSegments(length time.Duration) (list []TextSegment) {
	var at time.Duration
	for n, s := range t.Segments {
		track := t.TrackOf(n)
		end := at + track.between(s.Start(), s.End())
		switch last := len(list) - 1; {
		case last < 0 || s.Discontinuity || end-list[last].From > length:
			list = append(list, TextSegment{From: at, To: end, Media: Lead + track.Time(s.Start()), Discontinuity: s.Discontinuity && last >= 0})
		default:
			list[last].To = end
		}
		at = end
	}
	return list
}

// Media returns the media playlist of the file.
func (f TrackFile) Media() hls.Media {
	init := hls.File{URI: hls.EscapePath(f.File()), Length: int64(f.Layout.Init)}
	m := hls.Media{Type: hls.VOD, Ended: true}
	for i, extent := range f.Layout.Extents {
		s, t := f.Index.Segments[extent.Segment], f.Index.Track
		m.Segments = append(m.Segments, hls.Segment{
			File: hls.File{URI: init.URI, Offset: extent.At, Length: extent.Length}, Map: &init,
			Duration: t.between(s.Start(), s.End()), Date: t.date(s),
			Discontinuity: s.Discontinuity && i > 0,
		})
	}
	return m
}

// LiveEntry returns segment n of a track that grows, without its parts. Its file is "<n>.m4s" and
// its init segment "init-<init>.mp4", both beside the playlist.
func LiveEntry(n int64, s Segment, t Track, init int) hls.Segment {
	return liveEntry(n, s, t, liveInit(init))
}

func liveInit(k int) *hls.File { return &hls.File{URI: "init-" + strconv.Itoa(k) + ".mp4"} }

func liveEntry(n int64, s Segment, t Track, init *hls.File) hls.Segment {
	return hls.Segment{
		File: hls.File{URI: liveName(n, -1)}, Map: init,
		Duration: t.between(s.Start(), s.End()), Date: t.date(s),
		Discontinuity: s.Discontinuity, Gap: s.Gap(),
	}
}

// liveName returns the name of a segment, or of a part of it; part -1 = the segment.
func liveName(n int64, part int) string {
	name := strconv.AppendInt(make([]byte, 0, 40), n, 10)
	if part >= 0 {
		name = strconv.AppendInt(append(name, '.'), int64(part), 10)
	}
	return string(append(name, ".m4s"...))
}

// LiveWindow is what a media playlist shows of a track that grows.
type LiveWindow struct {
	First                 int64 // the number of the first segment
	DiscontinuitySequence int64 // how many discontinuities there were before it

	// Segments are complete. If Open is set, the last one is not: it has the parts so far.
	Segments []Segment
	Tracks   []Track // of each segment
	Inits    []int   // for each segment, the number of its init segment
	Open     bool
	Ended    bool // nothing comes after the last segment

	// Target is the target duration, and PartTarget the minimum one of parts.
	Target, PartTarget time.Duration

	Low       bool         // for low latency: with parts, and what goes with them
	Skip      bool         // as an update, without the older segments; for low latency
	PartsFrom int64        // segments before this number are listed without parts
	Reports   []hls.Report // how far the other renditions are; for low latency
}

// Media returns the media playlist of the window. Parts are "<n>.<part>.m4s"; for the other files
// see LiveEntry.
func (w LiveWindow) Media() (hls.Media, error) {
	if len(w.Inits) != len(w.Segments) || len(w.Tracks) != len(w.Segments) {
		return hls.Media{}, fmt.Errorf("a live playlist of %d segments has the init segments of %d and the tracks of %d",
			len(w.Segments), len(w.Inits), len(w.Tracks))
	}
	m := hls.Media{
		Version: 6, // EXT-X-MAP, even if there is no segment yet
		Ended:   w.Ended, Target: w.Target, TargetFixed: true,
		Sequence: w.First, DiscontinuitySequence: w.DiscontinuitySequence,
		Segments: make([]hls.Segment, len(w.Segments)),
	}
	// An update lists few of the segments. Their durations decide which, so names come later.
	for i, s := range w.Segments {
		m.Segments[i].Duration = w.Tracks[i].between(s.Start(), s.End())
	}
	last := len(w.Segments) - 1
	open := w.Open && last >= 0
	switch {
	case open && w.Low:
		m.Segments[last].Open = true
	case open:
		m.Segments = m.Segments[:last]
	}
	from := len(w.Segments) // the first segment with parts
	if w.Low {
		m.PartTarget = w.PartTarget
		if w.Skip {
			m = m.Delta()
		}
		from = max(m.Skipped+m.PartsFrom(), int(min(w.PartsFrom-w.First, int64(from))))
	}
	w.fill(&m, from)
	if w.Low && !w.Ended {
		m.Reports = w.Reports
		m.Hint = liveName(w.First+int64(len(w.Segments)), 0)
		if open { // players request the hinted part at once, so it must be the next part of the open segment
			m.Hint = liveName(w.First+int64(last), len(w.Segments[last].Parts))
		}
	}
	return m, nil
}

// fill makes the entries of the listed segments, with parts from a position on.
func (w *LiveWindow) fill(m *hls.Media, partsFrom int) {
	var init *hls.File
	for i := range m.Segments {
		e, at := &m.Segments[i], m.Skipped+i
		n, s, t, open := w.First+int64(at), w.Segments[at], w.Tracks[at], e.Open
		if i == 0 || w.Inits[at] != w.Inits[at-1] {
			init = liveInit(w.Inits[at])
		}
		*e = liveEntry(n, s, t, init)
		if open {
			e.Open, e.URI = true, ""
		}
		if at < partsFrom || e.Gap {
			continue
		}
		e.Parts = make([]hls.Part, len(s.Parts))
		for j, part := range s.Parts {
			e.Parts[j] = hls.Part{
				URI: liveName(n, j), Duration: t.between(part.Start, part.End()),
				Independent: len(part.Samples) > 0 && part.Samples[0].Sync,
			}
		}
	}
}

// between returns the time between two times in ticks, in whole microseconds: the difference of the
// rounded times, so that the durations of a playlist add up to its length, however many there are.
func (t Track) between(start, end int64) time.Duration {
	scale := max(1, int64(t.Timescale))
	return time.Duration(rescale(end, scale, 1e6)-rescale(start, scale, 1e6)) * time.Microsecond
}

// date returns when a segment begins, for playlists: the decode time of its first frame, which is
// Delay before its presentation time. Shaka takes the decode time of a segment for its date, so with
// any other the audio would be ahead of video that has B-frames. Other players go by the times in
// segments.
func (t Track) date(s Segment) time.Time {
	if s.Wall.IsZero() {
		return s.Wall
	}
	return s.Wall.Add(-t.Time(t.Delay))
}

// Master is a presentation from which a player chooses.
type Master struct {
	Video []Rendition // one video in several sizes, in any order
	Audio []Rendition // several languages; of one audio there is one rendition
	Text  []Text

	// Captions are the channels of CEA-608 in the frames of the source: 1 is CC1. nil = it is not known
	// whether there are any.
	Captions []int
	TS       bool // the segments are MPEG-TS, and those of video have the default audio inside
}

// Rendition is a track as a playlist names it.
type Rendition struct {
	Name  string // of its profile
	URI   string // path of its media playlist, relative to the master playlist, not escaped
	Index TrackIndex

	// Bandwidth and AverageBandwidth are the measured bits per second, in MPEG-TS with the audio
	// inside. 0 = computed from the index.
	Bandwidth, AverageBandwidth int64

	// FrameRate is the frame rate that the encoder was given, while there are too few frames to
	// measure it. 0 = computed from the index.
	FrameRate float64
}

// Text is a track of text as a playlist names it.
type Text struct {
	Name           string
	URI            string // path of its media playlist, relative to the master playlist, not escaped
	Language       string // BCP 47
	Default        bool
	Forced         bool
	ClosedCaptions bool
}

// audioGroup is the name of the only group of audio tracks.
const audioGroup = "audio"

// swapFrom is the width or height from which on a rendition is too large to be the first that a
// player tries.
const swapFrom = 960

// Playlist returns the master playlist of the presentation.
func (m Master) Playlist() hls.Master {
	audio := defaultFirst(m.Audio)
	inside := m.TS || len(m.Video) == 0 // the default audio needs no playlist of its own
	p := hls.Master{Variants: m.variants(audio, inside), Subtitles: textChoices(m.Text)}
	m.signalCaptions(&p)
	if len(audio) > 1 || len(audio) == 1 && !inside {
		p.Audio = audioChoices(audio, inside)
		for i := range p.Variants {
			p.Variants[i].Audio = audioGroup
		}
	}
	return p
}

// defaultFirst returns the audio tracks, the default track first.
func defaultFirst(audio []Rendition) []Rendition {
	rank := func(r Rendition) int {
		if r.Index.Track.Default {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(audio), func(a, b Rendition) int { return rank(a) - rank(b) })
}

// signalCaptions names the closed captions in the frames, unless there is text: text is made of them when a
// file is imported, and hls.js shows the one above the other. Only encoders of H.264 keep them, and either
// all variants have captions or none.
func (m Master) signalCaptions(p *hls.Master) {
	kept := len(m.Text) == 0 && !slices.ContainsFunc(m.Video, func(r Rendition) bool { return !strings.HasPrefix(r.Index.Track.Codec, "avc1") })
	for _, channel := range m.Captions {
		if kept {
			p.Captions = append(p.Captions, "CC"+strconv.Itoa(channel))
		}
	}
	p.NoCaptions = m.Captions != nil && len(p.Captions) == 0
}

// textChoices returns the group of texts. Its names differ, and so do the languages among which a
// player may choose by itself.
func textChoices(text []Text) (list []hls.Subtitles) {
	type choice struct {
		language string
		forced   bool
	}
	names, chosen := map[string]bool{}, map[choice]bool{}
	for _, t := range text {
		c := choice{t.Language, t.Forced}
		s := hls.Subtitles{
			URI: hls.EscapePath(t.URI), Name: unusedName(t.Name, names), Language: t.Language, Default: t.Default,
			AutoSelect: t.Default || t.Language != "" && !chosen[c], Forced: t.Forced, ClosedCaptions: t.ClosedCaptions,
		}
		chosen[c] = true
		list = append(list, s)
	}
	return list
}

// unusedName returns a name that is not among names, and adds it.
func unusedName(plain string, names map[string]bool) string {
	name := plain
	for n := 2; names[name]; n++ {
		name = fmt.Sprintf("%s (%d)", plain, n)
	}
	names[name] = true
	return name
}

// audioChoices returns the group of audio tracks. The names in a group differ, and so do the
// languages among which a player may choose by itself.
func audioChoices(audio []Rendition, inside bool) []hls.Audio {
	list := make([]hls.Audio, len(audio))
	names, languages := map[string]bool{}, map[string]bool{}
	for i, r := range audio {
		t := r.Index.Track
		language := LanguageTag(t.Language)
		name := unusedName(cmp.Or(t.Name, language, fmt.Sprintf("Audio %d", i+1)), names)
		list[i] = hls.Audio{
			Group: audioGroup, Name: name, Language: language, Channels: t.Channels,
			Default: i == 0, AutoSelect: i == 0 || language != "" && !languages[language],
		}
		languages[language] = true
		if i > 0 || !inside {
			list[i].URI = hls.EscapePath(r.URI)
		}
	}
	return list
}

// variants returns the renditions, each with the audio that plays with it, in the order of the
// playlist: by falling bandwidth, but without a large one at the front, where players start.
func (m Master) variants(audio []Rendition, inside bool) []hls.Variant {
	video := m.Video
	if len(video) == 0 {
		video = audio[:min(1, len(audio))]
	}
	var muxed, beside [2]int64 // peak and average of audio in and beside the segments of video
	var codecs []string
	for i, r := range audio {
		codecs = append(codecs, r.Index.Track.Codec)
		switch rates := m.bitRates(r); {
		case len(m.Video) == 0: // one plays at a time
		case i == 0 && inside:
			muxed = rates
		default:
			beside = [2]int64{max(beside[0], rates[0]), max(beside[1], rates[1])}
		}
	}
	type sized struct {
		hls.Variant
		size int // the larger of width and height, as encoded
	}
	var list []sized
	for _, r := range video {
		t, rates := r.Index.Track, m.bitRates(r)
		if r.Bandwidth == 0 {
			rates = [2]int64{rates[0] + muxed[0], rates[1] + muxed[1]}
		}
		v := hls.Variant{
			URI: hls.EscapePath(r.URI), Name: r.Name,
			Bandwidth: rates[0] + beside[0], Average: rates[1] + beside[1],
		}
		for _, c := range append([]string{t.Codec}, codecs...) {
			if !slices.Contains(v.Codecs, c) {
				v.Codecs = append(v.Codecs, c)
			}
		}
		if t.Kind == Video {
			width, height := t.DisplaySize()
			v.Width, v.Height = int(math.RoundToEven(width)), int(math.RoundToEven(height))
			v.FrameRate = cmp.Or(r.FrameRate, frameRate(r.Index))
		}
		list = append(list, sized{v, max(t.Width, t.Height)})
	}
	slices.SortStableFunc(list, func(a, b sized) int { return cmp.Compare(b.Bandwidth, a.Bandwidth) })
	if len(list) > 1 && list[0].size >= swapFrom {
		list[0], list[1] = list[1], list[0]
	}
	variants := make([]hls.Variant, len(list))
	for i, v := range list {
		v.Name = fmt.Sprintf("%d-%s", i, v.Name)
		variants[i] = v.Variant
	}
	return variants
}

// bitRates returns the peak and the average rate of a rendition as it is delivered.
func (m Master) bitRates(r Rendition) [2]int64 {
	if r.Bandwidth > 0 {
		return [2]int64{r.Bandwidth, cmp.Or(r.AverageBandwidth, r.Bandwidth)}
	}
	size := Segment.Size
	if m.TS {
		size = tsSize(r.Index.Track)
	}
	peak, average := r.Index.BitRates(size)
	return [2]int64{peak, average}
}
