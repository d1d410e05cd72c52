package ingest

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/weir"
)

const (
	// maxPlaylist is how long a playlist may be.
	maxPlaylist = 8 << 20
	// maxListed is how many segments or variants it may have: a day of one second each.
	maxListed = 86_400
)

// playlist is an HLS playlist: variants to choose from, or the segments of one.
type playlist struct {
	variants []hlsVariant
	audios   []hlsAudio

	target   time.Duration // no segment is longer
	segments []hlsSegment
	ended    bool
}

// hlsVariant is a choice of a master playlist.
type hlsVariant struct {
	uri       string
	bandwidth uint64
	codecs    string
	audio     string // group of audio beside it
}

// hlsAudio is audio that is not in the variants.
type hlsAudio struct {
	uri, group string
	byDefault  bool
}

// hlsFile is a file, or bytes from one on up to another.
type hlsFile struct {
	uri      string
	from, to int64 // to 0 = to the end
}

// hlsSegment is a piece of media.
type hlsSegment struct {
	hlsFile
	number   int64
	part     int64 // how many discontinuities there were up to it
	duration time.Duration
	initial  hlsFile // what must be read before it; no uri = nothing
	key      hlsKey
	gap      bool // there is none
}

// hlsKey is what a segment is encrypted with; no uri = it is not.
type hlsKey struct {
	uri string
	iv  string // as it stands there; "" = the number of the segment
}

func badPlaylist(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "the HLS playlist "+format, args...)
}

// readPlaylist reads a playlist. What it does not know, it leaves out.
func readPlaylist(data []byte) (playlist, error) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if !utf8.ValidString(text) || !strings.HasPrefix(text, "#EXTM3U") {
		return playlist{}, badPlaylist("does not begin with #EXTM3U")
	}
	r := listReader{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := r.line(line); err != nil {
			return playlist{}, err
		}
		if len(r.list.segments)+len(r.list.variants)+len(r.list.audios) > maxListed {
			return playlist{}, badPlaylist("has more than %d entries", maxListed)
		}
	}
	if len(r.list.variants) > 0 && len(r.list.segments) > 0 {
		return playlist{}, badPlaylist("has variants and segments; it can only have one of them")
	}
	return r.list, nil
}

// listReader is what the lines so far say about the next one.
type listReader struct {
	list     playlist
	variant  map[string]string // of the uri that comes next; nil = it is a segment
	next     hlsSegment
	duration bool // of the next segment was told
	span     string
	previous hlsFile // for ranges that go on there
	number   int64
	part     int64
	initial  hlsFile
	key      hlsKey
}

func (r *listReader) line(line string) (err error) {
	if !strings.HasPrefix(line, "#") {
		return r.uri(line)
	}
	name, value, _ := strings.Cut(line, ":")
	switch name {
	case "#EXTINF":
		seconds, _, _ := strings.Cut(value, ",")
		r.next.duration, err = hlsSeconds(seconds)
		r.duration = true
	case "#EXT-X-TARGETDURATION":
		r.list.target, err = hlsSeconds(value)
	case "#EXT-X-MEDIA-SEQUENCE":
		r.number, err = hlsNumber(value)
	case "#EXT-X-DISCONTINUITY-SEQUENCE":
		r.part, err = hlsNumber(value)
	case "#EXT-X-DISCONTINUITY":
		r.part++
	case "#EXT-X-BYTERANGE":
		r.span = value
	case "#EXT-X-GAP":
		r.next.gap = true
	case "#EXT-X-ENDLIST":
		r.list.ended = true
	case "#EXT-X-MAP":
		a := weir.HLSAttributes(value)
		r.initial = hlsFile{uri: a["URI"]}
		if span := a["BYTERANGE"]; span != "" {
			r.initial, err = hlsRange(span, a["URI"], hlsFile{uri: a["URI"]})
		}
	case "#EXT-X-KEY":
		return r.encrypted(weir.HLSAttributes(value))
	case "#EXT-X-STREAM-INF":
		r.variant = weir.HLSAttributes(value)
	case "#EXT-X-MEDIA":
		if a := weir.HLSAttributes(value); a["TYPE"] == "AUDIO" && a["URI"] != "" {
			r.list.audios = append(r.list.audios, hlsAudio{a["URI"], a["GROUP-ID"], a["DEFAULT"] == "YES"})
		}
	case "#EXT-X-I-FRAMES-ONLY":
		return badPlaylist("has only key frames")
	case "#EXT-X-DEFINE":
		return badPlaylist("has variables, which can't be pulled")
	}
	return err
}

func (r *listReader) encrypted(a map[string]string) error {
	switch method := a["METHOD"]; {
	case method == "NONE":
		r.key = hlsKey{}
	case method == "AES-128" && a["URI"] != "" && (a["KEYFORMAT"] == "" || a["KEYFORMAT"] == "identity"):
		r.key = hlsKey{a["URI"], a["IV"]}
	default:
		return badPlaylist("is encrypted in a way that can't be pulled; AES-128 can be")
	}
	return nil
}

func (r *listReader) uri(uri string) (err error) {
	if a := r.variant; a != nil {
		bandwidth, _ := strconv.ParseUint(a["BANDWIDTH"], 10, 63)
		r.list.variants = append(r.list.variants, hlsVariant{uri, bandwidth, a["CODECS"], a["AUDIO"]})
		r.variant = nil
		return nil
	}
	if !r.duration {
		return badPlaylist("has a file without #EXTINF")
	}
	s := r.next
	s.hlsFile = hlsFile{uri: uri}
	if r.span != "" {
		if s.hlsFile, err = hlsRange(r.span, uri, r.previous); err != nil {
			return err
		}
	}
	s.number, s.part, s.initial, s.key = r.number, r.part, r.initial, r.key
	r.list.segments = append(r.list.segments, s)
	r.previous, r.next, r.span, r.duration = s.hlsFile, hlsSegment{}, "", false
	r.number++
	return nil
}

// hlsSeconds reads a duration.
func hlsSeconds(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > 3600 {
		return 0, badPlaylist("has a duration that can't be read")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func hlsNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return 0, badPlaylist("has a number that can't be read")
	}
	return n, nil
}

// hlsRange reads a range like 100@200. Without its start it begins where the one before
// it in the same file ended.
func hlsRange(text, uri string, previous hlsFile) (hlsFile, error) {
	size, start, placed := strings.Cut(text, "@")
	length, err := hlsNumber(size)
	from := previous.to
	if placed && err == nil {
		from, err = hlsNumber(start)
	}
	if err != nil || length == 0 || !placed && previous.uri != uri {
		return hlsFile{}, badPlaylist("has a range of bytes that can't be read")
	}
	return hlsFile{uri, from, from + length}, nil
}

// best returns the variant with the most bits whose pictures weir can take, and the audio
// beside it, if it is not in it.
func (l *playlist) best() (hlsVariant, *hlsAudio) {
	rank := func(v hlsVariant) (known bool, bits uint64) {
		known = v.codecs == ""
		for _, codec := range []string{"avc1", "avc3", "hvc1", "hev1", "av01"} {
			known = known || strings.Contains(v.codecs, codec)
		}
		return known, v.bandwidth
	}
	best := l.variants[0]
	for _, v := range l.variants[1:] {
		known, bits := rank(v)
		if bestKnown, bestBits := rank(best); known && !bestKnown || known == bestKnown && bits > bestBits {
			best = v
		}
	}
	var audio *hlsAudio
	for i, s := range l.audios {
		if best.audio != "" && s.group == best.audio && (audio == nil || s.byDefault && !audio.byDefault) {
			audio = &l.audios[i]
		}
	}
	return best, audio
}
