package blob

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// playlist is an HLS playlist as far as its media can be put together to one file:
// either variants to choose from, or the pieces of one.
type playlist struct {
	variants []variant
	pieces   []hlsPiece // in the order of the file, the init section first
}

// variant is an entry of a master playlist.
type variant struct {
	uri       string
	bandwidth uint64
	audio     string // group of renditions that the audio is in
}

// hlsPiece is a file, or a part of one.
type hlsPiece struct {
	uri string
	span
}

// maxPieces is how many segments a playlist may have: a day of one second each.
const maxPieces = 86_400

// notSupported is the error for what HLS can do and weir can't read.
func notSupported(what string) error {
	return weir.Errorf(weir.Invalid, "the HLS playlist %s, which can't be imported", what)
}

// parsePlaylist reads a playlist.
func parsePlaylist(data []byte) (playlist, error) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if !utf8.ValidString(text) || !strings.HasPrefix(text, "#EXTM3U") {
		return playlist{}, weir.Errorf(weir.Invalid, "the file is named like an HLS playlist and does not begin with #EXTM3U")
	}
	p := hlsParser{separate: map[string]bool{}}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return playlist{}, err
		}
	}
	return p.finish()
}

// hlsParser is what the lines so far say about the next one.
type hlsParser struct {
	list     playlist
	separate map[string]bool // groups of audio that are files of their own

	stream   map[string]string // attributes of the variant that comes next
	segment  bool              // a segment comes next
	part     string            // its range
	previous hlsPiece
	initial  hlsPiece // the init section
	ended    bool
}

func (p *hlsParser) line(line string) error {
	if !strings.HasPrefix(line, "#") {
		return p.uri(line)
	}
	name, value, _ := strings.Cut(line, ":")
	switch name {
	case "#EXTINF":
		p.segment = true
	case "#EXT-X-BYTERANGE":
		p.part = value
	case "#EXT-X-STREAM-INF":
		p.stream = weir.HLSAttributes(value)
	case "#EXT-X-MEDIA":
		if a := weir.HLSAttributes(value); a["TYPE"] == "AUDIO" && a["URI"] != "" {
			p.separate[a["GROUP-ID"]] = true
		}
	case "#EXT-X-MAP":
		return p.initSection(weir.HLSAttributes(value))
	case "#EXT-X-ENDLIST":
		p.ended = true
	case "#EXT-X-KEY", "#EXT-X-SESSION-KEY":
		if method := weir.HLSAttributes(value)["METHOD"]; method != "NONE" {
			return notSupported("is encrypted (" + cut(method, 40) + ")")
		}
	case "#EXT-X-DISCONTINUITY":
		if len(p.list.pieces) > 0 {
			return notSupported("has a discontinuity")
		}
	case "#EXT-X-GAP":
		return notSupported("has gaps")
	case "#EXT-X-I-FRAMES-ONLY":
		return notSupported("has only key frames")
	case "#EXT-X-DEFINE":
		return notSupported("has variables")
	}
	return nil
}

func (p *hlsParser) uri(uri string) error {
	if p.stream != nil {
		bandwidth, _ := strconv.ParseUint(p.stream["BANDWIDTH"], 10, 63)
		p.list.variants = append(p.list.variants, variant{uri, bandwidth, p.stream["AUDIO"]})
		p.stream = nil
		if len(p.list.variants) > maxPieces {
			return notSupported("has too many variants")
		}
		return nil
	}
	if !p.segment {
		return weir.Errorf(weir.Invalid, "the HLS playlist has a file without #EXTINF")
	}
	piece := hlsPiece{uri, span{0, -1}}
	if p.part != "" {
		var err error
		if piece.span, err = p.byteRange(uri, p.part); err != nil {
			return err
		}
	}
	p.segment, p.part, p.previous = false, "", piece
	return p.add(piece)
}

// add appends a piece, or makes the last one longer if it goes on there.
func (p *hlsParser) add(piece hlsPiece) error {
	if n := len(p.list.pieces); n > 0 && piece.from > 0 {
		if last := &p.list.pieces[n-1]; last.uri == piece.uri && last.to == piece.from {
			last.to = piece.to
			return nil
		}
	}
	if len(p.list.pieces) >= maxPieces {
		return notSupported("has more than " + strconv.Itoa(maxPieces) + " segments")
	}
	p.list.pieces = append(p.list.pieces, piece)
	return nil
}

// byteRange reads a range like 100@200. Without its start, it begins where the one
// before it in the same file ended.
func (p *hlsParser) byteRange(uri, text string) (span, error) {
	size, start, ok := strings.Cut(text, "@")
	length, err := parseOffset(size)
	from := p.previous.to
	if ok && err == nil {
		from, err = parseOffset(start)
	}
	if err != nil || length == 0 || from < 0 || from+length < from || !ok && (p.previous.uri != uri || from <= 0) {
		return span{}, weir.Errorf(weir.Invalid, "the HLS playlist has a range of bytes that can't be read: %q", cut(text, 60))
	}
	return span{from, from + length}, nil
}

func (p *hlsParser) initSection(a map[string]string) error {
	piece := hlsPiece{a["URI"], span{0, -1}}
	if text := a["BYTERANGE"]; text != "" {
		if !strings.Contains(text, "@") {
			text += "@0"
		}
		var err error
		if piece.span, err = p.byteRange(piece.uri, text); err != nil {
			return err
		}
	}
	switch {
	case piece.uri == "":
		return weir.Errorf(weir.Invalid, "the HLS playlist has an #EXT-X-MAP without a URI")
	case piece == p.initial:
		return nil
	case len(p.list.pieces) > 0:
		return notSupported("changes its codec or its size in the middle")
	}
	p.initial = piece
	return p.add(piece)
}

func (p *hlsParser) finish() (playlist, error) {
	l := p.list
	switch {
	case len(l.variants) > 0 && len(l.pieces) > 0:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist has variants and segments; it can only have one of them")
	case len(l.variants) > 0:
		return p.withAudio()
	case len(l.pieces) == 0:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist has no segments")
	case !p.ended:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist is not complete: it has no #EXT-X-ENDLIST; import it when the stream is over")
	}
	return l, nil
}

// withAudio leaves out the variants whose audio is somewhere else.
func (p *hlsParser) withAudio() (playlist, error) {
	var whole []variant
	for _, v := range p.list.variants {
		if !p.separate[v.audio] {
			whole = append(whole, v)
		}
	}
	if len(whole) == 0 {
		return playlist{}, notSupported("has sound and picture in files of their own")
	}
	return playlist{variants: whole}, nil
}

// best returns the variant with the most bits.
func (l playlist) best() variant {
	best := l.variants[0]
	for _, v := range l.variants {
		if v.bandwidth > best.bandwidth {
			best = v
		}
	}
	return best
}
