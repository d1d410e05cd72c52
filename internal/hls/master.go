package hls

import (
	"strconv"
	"strings"
)

// Master is a master playlist: what a player chooses from.
type Master struct {
	Variants  []Variant
	Audio     []Audio
	Subtitles []Subtitles // a group that plays with all variants; Parse does not read them

	// Captions are closed captions in the frames of all variants with video, such as CC1; NoCaptions says
	// that there are none. Without both players have to look, and some offer captions that do not exist.
	// Parse does not read them.
	Captions   []string
	NoCaptions bool

	// SessionKeys are keys that the variants use. Parse reads them, Text does not write them.
	SessionKeys []Key
}

// Variant is a rendition with the audio that plays with it.
type Variant struct {
	URI           string // of its media playlist
	Name          string
	Bandwidth     int64 // bits per second at the peak
	Average       int64 // bits per second
	Codecs        []string
	Width, Height int     // 0 = no video, or unknown
	FrameRate     float64 // 0 = no video, or unknown
	Audio         string  // the group of audio that plays with it; "" = its own segments have it
}

// Audio is a choice in a group of audio renditions.
type Audio struct {
	URI        string // of its media playlist; "" = the segments of the variants have it
	Group      string
	Name       string // unique in the group
	Language   string // BCP 47; "" = unknown
	Channels   int    // 0 = unknown
	Default    bool   // it plays unless the viewer chooses another
	AutoSelect bool   // a player may choose it, by the language of the viewer
}

// Subtitles is a choice in the group of texts.
type Subtitles struct {
	URI            string // of its media playlist
	Name           string // unique in the group
	Language       string // BCP 47
	Default        bool   // it is shown unless the viewer chooses otherwise
	AutoSelect     bool   // a player may choose it, by the language of the viewer
	Forced         bool   // for viewers who understand the audio
	ClosedCaptions bool   // for viewers who do not hear
}

// The names of the only group of texts, and of closed captions.
const (
	subtitlesGroup = "text"
	captionsGroup  = "cc"
)

// Text writes the playlist.
func (m Master) Text() []byte {
	var w writer
	w.put("#EXTM3U\n#EXT-X-VERSION:")
	if len(m.Audio)+len(m.Subtitles)+len(m.Captions) > 0 {
		w.put("4")
	} else {
		w.put("3")
	}
	w.put("\n#EXT-X-INDEPENDENT-SEGMENTS\n")
	for _, a := range m.Audio {
		w.audio(a)
	}
	for _, s := range m.Subtitles {
		w.subtitles(s)
	}
	for _, channel := range m.Captions {
		w.put("#EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID=").quoted(captionsGroup)
		w.put(",NAME=").quoted(channel).put(",INSTREAM-ID=").quoted(channel).put("\n")
	}
	for _, v := range m.Variants {
		w.variant(v, m)
	}
	return w.text
}

func (w *writer) audio(a Audio) {
	w.put("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=").quoted(a.Group).put(",NAME=").quoted(a.Name)
	if a.Language != "" {
		w.put(",LANGUAGE=").quoted(a.Language)
	}
	if a.Default {
		w.put(",DEFAULT=YES")
	}
	if a.AutoSelect {
		w.put(",AUTOSELECT=YES")
	}
	if a.Channels > 0 {
		w.put(`,CHANNELS="`).number(int64(a.Channels)).put(`"`)
	}
	if a.URI != "" {
		w.put(",URI=").quoted(a.URI)
	}
	w.put("\n")
}

// accessible describes text for viewers who do not hear.
const accessible = "public.accessibility.transcribes-spoken-dialog,public.accessibility.describes-music-and-sound"

func (w *writer) subtitles(s Subtitles) {
	w.put("#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=").quoted(subtitlesGroup).put(",NAME=").quoted(s.Name)
	if s.Language != "" {
		w.put(",LANGUAGE=").quoted(s.Language)
	}
	if s.Default {
		w.put(",DEFAULT=YES")
	}
	if s.AutoSelect {
		w.put(",AUTOSELECT=YES")
	}
	if s.Forced {
		w.put(",FORCED=YES")
	}
	if s.ClosedCaptions {
		w.put(",CHARACTERISTICS=").quoted(accessible)
	}
	w.put(",URI=").quoted(s.URI).put("\n")
}

func (w *writer) variant(v Variant, m Master) {
	w.put("#EXT-X-STREAM-INF:BANDWIDTH=").number(v.Bandwidth)
	w.put(",AVERAGE-BANDWIDTH=").number(v.Average)
	w.put(",CODECS=").quoted(strings.Join(v.Codecs, ","))
	if v.Width > 0 && v.Height > 0 {
		w.put(",RESOLUTION=").number(int64(v.Width)).put("x").number(int64(v.Height))
	}
	if v.FrameRate > 0 {
		w.put(",FRAME-RATE=").put(strconv.FormatFloat(v.FrameRate, 'f', 3, 64))
	}
	if v.Audio != "" {
		w.put(",AUDIO=").quoted(v.Audio)
	}
	if len(m.Subtitles) > 0 {
		w.put(",SUBTITLES=").quoted(subtitlesGroup)
	}
	switch {
	case v.Width == 0: // audio alone
	case len(m.Captions) > 0:
		w.put(",CLOSED-CAPTIONS=").quoted(captionsGroup)
	case m.NoCaptions:
		w.put(",CLOSED-CAPTIONS=NONE")
	}
	w.put(",NAME=").quoted(v.Name).put("\n").put(v.URI).put("\n")
}
