package cmaf

import (
	"encoding/xml"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

// Files is a presentation in which each track is one file.
type Files struct {
	Video []TrackFile // one video in several sizes
	Audio []TrackFile // the default track first
	Text  []Text      // each also in one file, see TextFile

	Captions []int // see Master
}

// TrackFile is a track that is one file, as SingleFile lays it out.
type TrackFile struct {
	Name   string // of its profile
	Number int    // see FileNumber
	Index  TrackIndex
	Layout Layout
}

// FileNumber returns the number of a file of a presentation: 0 is the default audio track, 1, 2 …
// are the renditions of video, and the other audio tracks follow. i is the position of the track
// among those of its kind.
func FileNumber(kind Kind, i, renditions int) int {
	switch {
	case kind == Video:
		return 1 + i
	case i == 0:
		return 0
	}
	return renditions + i
}

// File returns the name of the file.
func (f TrackFile) File() string { return fmt.Sprintf("index-stream%d.mp4", f.Number) }

// Playlist returns the name of the HLS playlist of the file.
func (f TrackFile) Playlist() string { return fmt.Sprintf("media_%d.m3u8", f.Number) }

// Master returns the presentation for the master playlist of HLS.
func (f Files) Master() Master {
	renditions := func(files []TrackFile) []Rendition {
		var list []Rendition
		for _, t := range files {
			list = append(list, Rendition{Name: t.Name, URI: t.Playlist(), Index: t.Index})
		}
		return list
	}
	return Master{Video: renditions(f.Video), Audio: renditions(f.Audio), Text: f.Text, Captions: f.Captions}
}

// The elements of a DASH manifest.
type (
	mpd struct {
		XMLName       xml.Name  `xml:"urn:mpeg:dash:schema:mpd:2011 MPD"`
		Profiles      string    `xml:"profiles,attr"`
		Type          string    `xml:"type,attr"`
		Duration      string    `xml:"mediaPresentationDuration,attr"`
		MinBufferTime string    `xml:"minBufferTime,attr"`
		Period        mpdPeriod `xml:"Period"`
	}
	mpdPeriod struct {
		ID    string   `xml:"id,attr"`
		Start string   `xml:"start,attr"`
		Sets  []mpdSet `xml:"AdaptationSet"`
	}
	mpdSet struct {
		ID              int                 `xml:"id,attr"`
		ContentType     string              `xml:"contentType,attr"`
		MimeType        string              `xml:"mimeType,attr"`
		Lang            string              `xml:"lang,attr,omitempty"`
		Aligned         bool                `xml:"subsegmentAlignment,attr,omitempty"`
		SAP             int                 `xml:"subsegmentStartsWithSAP,attr,omitempty"`
		Role            mpdDescriptor       `xml:"Role"`
		Label           string              `xml:"Label,omitempty"`
		Representations []mpdRepresentation `xml:"Representation"`
	}
	mpdDescriptor struct {
		Scheme string `xml:"schemeIdUri,attr"`
		Value  string `xml:"value,attr"`
	}
	mpdRepresentation struct {
		ID         int            `xml:"id,attr"`
		Bandwidth  int64          `xml:"bandwidth,attr"`
		Codecs     string         `xml:"codecs,attr,omitempty"`
		Width      int            `xml:"width,attr,omitempty"`
		Height     int            `xml:"height,attr,omitempty"`
		FrameRate  string         `xml:"frameRate,attr,omitempty"`
		SAR        string         `xml:"sar,attr,omitempty"`
		SampleRate int            `xml:"audioSamplingRate,attr,omitempty"`
		Channels   *mpdDescriptor `xml:"AudioChannelConfiguration"`
		BaseURL    string         `xml:"BaseURL"`
		Base       *mpdBase       `xml:"SegmentBase"` // nil = it has no segments
	}
	mpdBase struct {
		Timescale  uint32   `xml:"timescale,attr"`
		Offset     int64    `xml:"presentationTimeOffset,attr,omitempty"`
		IndexRange string   `xml:"indexRange,attr"`
		Exact      bool     `xml:"indexRangeExact,attr"`
		Init       mpdRange `xml:"Initialization"`
	}
	mpdRange struct {
		Range string `xml:"range,attr"`
	}
)

const (
	roleScheme     = "urn:mpeg:dash:role:2011"
	channelsScheme = "urn:mpeg:dash:23003:3:audio_channel_configuration:2011"
)

// DASH returns the manifest of files that do not change.
func DASH(f Files) ([]byte, error) {
	start, end := f.span()
	doc := mpd{
		Profiles:      "urn:mpeg:dash:profile:isoff-on-demand:2011",
		Type:          "static",
		Duration:      isoDuration(end - start),
		MinBufferTime: isoDuration(min(end-start, 2e6)),
		Period:        mpdPeriod{ID: "0", Start: "PT0S"},
	}
	add := func(t TrackFile, set int) {
		s := &doc.Period.Sets[set]
		s.Representations = append(s.Representations, t.representation(start))
	}
	codecs := map[string]int{} // players can't switch between codecs, so each has its own set
	for _, t := range f.Video {
		codec, _, _ := strings.Cut(t.Index.Track.Codec, ".")
		set, ok := codecs[codec]
		if !ok {
			set = doc.Period.addSet(mpdSet{ContentType: "video", MimeType: "video/mp4"}, true)
			codecs[codec] = set
		}
		add(t, set)
	}
	for i, t := range f.Audio {
		track := t.Index.Track
		set := doc.Period.addSet(mpdSet{ContentType: "audio", MimeType: "audio/mp4", Lang: LanguageTag(track.Language), Label: track.Name}, i == 0)
		add(t, set)
	}
	for _, t := range f.Text {
		doc.Period.addText(t)
	}
	text, err := xml.MarshalIndent(doc, "", "  ")
	return fmt.Appendf(nil, "%s%s\n", xml.Header, text), err
}

// addText adds a text, which is one file of WebVTT beside its playlist.
func (p *mpdPeriod) addText(t Text) {
	role := "subtitle"
	switch {
	case t.ClosedCaptions:
		role = "caption"
	case t.Forced:
		role = "forced-subtitle"
	}
	set := p.addSet(mpdSet{ContentType: "text", MimeType: "text/vtt", Lang: t.Language, Label: t.Name}, false)
	s := &p.Sets[set]
	s.Aligned, s.SAP, s.Role.Value = false, 0, role
	const bandwidth, firstID = 1000, 1000 // players want one; others have the numbers of their files
	s.Representations = []mpdRepresentation{{ID: firstID + set, Bandwidth: bandwidth, BaseURL: path.Join(path.Dir(t.URI), TextFile)}}
}

// TextFile is the name of all of a text in one file, which DASH takes, beside the playlist of the text.
const TextFile = "text.vtt"

// addSet adds a set and returns its position.
func (p *mpdPeriod) addSet(s mpdSet, main bool) int {
	s.ID = len(p.Sets)
	s.Aligned, s.SAP = true, 1
	s.Role = mpdDescriptor{roleScheme, "alternate"}
	if main {
		s.Role.Value = "main"
	}
	p.Sets = append(p.Sets, s)
	return s.ID
}

// span returns when the presentation starts and ends, in microseconds. All tracks share one
// timeline: a track that starts later than the others does so here too.
func (f Files) span() (start, end int64) {
	start = math.MaxInt64
	for _, files := range [][]TrackFile{f.Video, f.Audio} {
		for _, t := range files {
			if len(t.Index.Segments) == 0 {
				continue
			}
			scale := max(1, int64(t.Index.Track.Timescale))
			start = min(start, rescale(t.Index.Start(), scale, 1e6))
			end = max(end, rescale(t.Index.End(), scale, 1e6))
		}
	}
	start = max(0, start) // frames before 0 are not shown
	return min(start, end), end
}

// representation returns the track as the manifest has it. start is that of the
// presentation, in microseconds.
func (f TrackFile) representation(start int64) mpdRepresentation {
	t := f.Index.Track
	peak, _ := f.Index.BitRates(Segment.Size)
	r := mpdRepresentation{
		ID: f.Number, Bandwidth: peak, Codecs: t.Codec, BaseURL: f.File(),
		Base: &mpdBase{
			Timescale: t.Timescale, Offset: rescale(start, 1e6, int64(t.Timescale)),
			IndexRange: fmt.Sprintf("%d-%d", f.Layout.Init, len(f.Layout.Head)-1), Exact: true,
			Init: mpdRange{fmt.Sprintf("0-%d", f.Layout.Init-1)},
		},
	}
	if t.Kind == Video {
		r.Width, r.Height = t.Width, t.Height
		r.FrameRate = frameRatio(f.Index)
		if h, v := pixelAspect(t); h != v {
			r.SAR = fmt.Sprintf("%d:%d", h, v)
		}
		return r
	}
	r.SampleRate = t.SampleRate
	if t.Channels > 0 {
		r.Channels = &mpdDescriptor{channelsScheme, strconv.Itoa(t.Channels)}
	}
	return r
}

// frameRatio returns the frame rate as a whole number or a fraction such as 30000/1001; "" = not
// known.
func frameRatio(t TrackIndex) string {
	rate := frameRate(t)
	if rate <= 0 {
		return ""
	}
	if whole := math.Round(rate); math.Abs(rate-whole) < 0.001 && whole > 0 {
		return strconv.FormatFloat(whole, 'f', 0, 64)
	}
	if ntsc := math.Round(rate * 1001 / 1000); math.Abs(rate-ntsc*1000/1001) < 0.001 {
		return fmt.Sprintf("%.0f/1001", ntsc*1000)
	}
	return fmt.Sprintf("%.0f/1000", max(1, math.Round(rate*1000)))
}

// isoDuration formats microseconds as a duration of XML Schema.
func isoDuration(microseconds int64) string {
	s := fmt.Sprintf("PT%d.%06d", microseconds/1e6, microseconds%1e6)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + "S"
}

// pixelAspect returns the width and height of a pixel, from the pasp box of the sample entry; 1 and
// 1 if there is none.
func pixelAspect(t Track) (h, v int64) {
	c := t.Config()
	h, v = int64(c.PixelWidth), int64(c.PixelHeight)
	const sane = 1 << 16
	if h <= 0 || v <= 0 || h > sane*v || v > sane*h {
		return 1, 1
	}
	return h, v
}
