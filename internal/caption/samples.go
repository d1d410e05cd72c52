package caption

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// Files of video have text as samples. Those of MP4 are of three kinds: tx3g is timed text of 3GPP,
// wvtt is WebVTT and stpp is TTML. The file has the times, from the start to the end of a sample.

// TX3G reads a sample of timed text of 3GPP (3GPP TS 26.245). ok is false if it shows nothing. Bold,
// italic and underlined text stays so; fonts, colours and places don't.
func TX3G(sample []byte, start, end time.Duration) (c Cue, ok bool, err error) {
	if len(sample) == 0 {
		return c, false, nil
	}
	if len(sample) < 2 || len(sample)-2 < int(binary.BigEndian.Uint16(sample)) {
		return c, false, cutOff(start)
	}
	size := 2 + int(binary.BigEndian.Uint16(sample))
	text, ok := decodeTX3G(sample[2:size])
	if !ok {
		return c, false, invalid("the subtitle at %s is neither UTF-8 nor UTF-16", clock(start))
	}
	var styles []byte
	list, _ := boxes(sample[size:]) // what is behind the text is worth less than the text
	for _, b := range list {
		if b.name == "styl" && len(b.body) > 2 {
			styles = b.body[2:] // after their number
			break
		}
	}
	return sampleCue(Cue{Start: start, End: end}, runTokens(styledRuns([]rune(text), styles)))
}

// decodeTX3G decodes text: UTF-8, or UTF-16 with a byte order mark. All characters stay, because
// styles count them.
func decodeTX3G(text []byte) (decoded string, ok bool) {
	for _, mark := range utf16Mark {
		if bytes.HasPrefix(text, mark) {
			decoded, err := unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM).NewDecoder().Bytes(text)
			return string(decoded), err == nil
		}
	}
	return string(text), utf8.Valid(text)
}

// styleSize is the size of a style: the first character, the one after the last, a font, the face, a
// size and a colour.
const styleSize = 2 + 2 + 2 + 1 + 1 + 4

// styledRuns divides text by its styles, which are in order.
func styledRuns(text []rune, styles []byte) (runs []run) {
	at := 0
	for ; len(styles) >= styleSize; styles = styles[styleSize:] {
		first := int(binary.BigEndian.Uint16(styles))
		end := min(int(binary.BigEndian.Uint16(styles[2:])), len(text))
		if first < at || end <= first {
			continue
		}
		runs = append(runs, run{text: string(text[at:first])}, run{string(text[first:end]), face(styles[6]) & allFaces})
		at = end
	}
	return append(runs, run{text: string(text[at:])})
}

// The style of text of 3GPP is that of text without a style in ffmpeg, which would else write font and
// size with each text that it reads.
const styleFont, styleFontName, styleFontSize, styleColor = 1, "Arial", 16, 0xffffffff

// AppendTX3G appends the sample of timed text of 3GPP for a cue; that of Cue{} shows nothing, as in
// the time between cues. The place of the cue is lost. Styles count characters, which are code points
// as ffmpeg counts them: readers that count UTF-16 differ after an emoji.
func AppendTX3G(dst []byte, c Cue) []byte {
	var text string
	var styles []byte
	at := 0
	for _, r := range textRuns(c.Text) {
		if len(text)+len(r.text) > 1<<16-1 { // a cue that was read is shorter
			break
		}
		end := at + utf8.RuneCountInString(r.text)
		if r.face != 0 {
			styles = appendStyle(styles, at, end, r.face)
		}
		at, text = end, text+r.text
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
	dst = append(dst, text...)
	if len(styles) == 0 {
		return dst
	}
	count := binary.BigEndian.AppendUint16(nil, uint16(len(styles)/styleSize))
	return appendBox(dst, "styl", count, styles)
}

func appendStyle(dst []byte, first, end int, f face) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(first))
	dst = binary.BigEndian.AppendUint16(dst, uint16(end))
	dst = binary.BigEndian.AppendUint16(dst, styleFont)
	dst = append(dst, byte(f), styleFontSize)
	return binary.BigEndian.AppendUint32(dst, styleColor)
}

// TX3GEntry returns the sample entry, for the box stsd of an MP4, of what [AppendTX3G] writes: white
// text on nothing, in the middle at the bottom.
func TX3GEntry() []byte {
	const dataReference = 1
	body := make([]byte, 6, 64) // reserved
	body = binary.BigEndian.AppendUint16(body, dataReference)
	body = append(body, 0, 0, 0, 0)         // flags: no scrolling, no karaoke
	body = append(body, 1, 0xff)            // 1 = in the middle, -1 = at the bottom
	body = append(body, 0, 0, 0, 0)         // the colour of the background: transparent
	body = append(body, make([]byte, 8)...) // the box of the text: the whole track
	body = appendStyle(body, 0, 0, 0)
	body = appendBox(body, "ftab", []byte{0, 1, 0, styleFont, byte(len(styleFontName))}, []byte(styleFontName))
	return appendBox(nil, "tx3g", body)
}

// maxRepeats limits how much [Sequence] repeats of a text, on average: overlapping cues could become far
// more than the file. After that, a cue ends when another one begins or ends.
const maxRepeats = 8

// Sequence returns what cues show from 0 up to a length, for samples that follow one another without
// pauses: while several cues are shown they are one, with the lines of all; in a pause there is one
// without text. The cues are in the order of their start.
func Sequence(cues []Cue, length time.Duration) (list []Cue) {
	var open []Cue // those that are shown
	repeats := 0   // bytes that may still be repeated
	for _, c := range cues {
		repeats += maxRepeats * len(c.Text)
	}
	length = length.Round(time.Millisecond)
	for at, next := time.Duration(0), 0; at < length; {
		open = slices.DeleteFunc(open, func(c Cue) bool { return c.End <= at })
		for _, c := range open {
			repeats -= len(c.Text)
		}
		if repeats < 0 {
			open = nil
		}
		for ; next < len(cues) && cues[next].Start.Round(time.Millisecond) <= at; next++ {
			c := cues[next]
			if c.End = c.End.Round(time.Millisecond); c.End > at {
				open = append(open, c)
			}
		}
		shown := Cue{Start: at, End: length}
		if next < len(cues) {
			shown.End = min(shown.End, cues[next].Start.Round(time.Millisecond))
		}
		var texts []string
		for _, c := range open {
			shown.End, texts = min(shown.End, c.End), append(texts, c.Text)
		}
		shown.Text = strings.Join(texts, "\n")
		list, at = append(list, shown), shown.End
	}
	return list
}

// WVTT reads a sample of WebVTT (ISO/IEC 14496-30): none or more cues. A cue that is shown while
// others come and go is in several samples, which [Join] puts together.
func WVTT(sample []byte, start, end time.Duration) (cues []Cue, err error) {
	list, whole := boxes(sample)
	if !whole {
		return nil, cutOff(start)
	}
	for _, b := range list {
		if b.name != "vttc" { // vtte says that there are no cues, vtta is a comment
			continue
		}
		parts, whole := boxes(b.body)
		if !whole {
			return nil, cutOff(start)
		}
		text, c := "", Cue{Start: start, End: end}
		for _, part := range parts {
			switch part.name {
			case "iden":
				c.ID = identifier(packetText(string(part.body)))
			case "sttg":
				c.Settings = readSettings(packetText(string(part.body)))
			case "payl":
				text = packetText(string(part.body))
			}
		}
		c, ok, err := sampleCue(c, tokens(text))
		if err != nil {
			return nil, err
		}
		if ok {
			cues = append(cues, c)
		}
	}
	return cues, nil
}

// STPP reads a sample of TTML (ISO/IEC 14496-30), which is a document. Its times are those of the
// track, not of the sample, and are kept: a cue that goes on in the next sample is there again, and
// [Join] puts them together. Text without an end is shown from the start to the end of the sample.
func STPP(sample []byte, start, end time.Duration) ([]Cue, error) {
	if len(sample) > MaxFile {
		return nil, invalid("the subtitle at %s is larger than 10 MiB", clock(start))
	}
	text, err := decode(sample, "")
	if err != nil {
		return nil, invalid("the subtitle at %s is no text", clock(start))
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	cues, err := readTTMLSample(text, start, end)
	if err != nil {
		return nil, invalid("the subtitle at %s: %s", clock(start), err)
	}
	if len(cues) == 0 {
		return nil, nil
	}
	return ordered(cues)
}

// Join puts together cues that are the same one in pieces: of the same text, and one begins before
// the other one has ended or when it does. The cues are in the order of their start, and so is what
// it returns.
func Join(cues []Cue) (joined []Cue) {
	last := map[Cue]int{} // by what a cue shows
	for _, c := range cues {
		shows := Cue{ID: c.ID, Settings: c.Settings, Text: c.Text}
		if i, ok := last[shows]; ok && joined[i].End >= c.Start {
			joined[i].End = max(joined[i].End, c.End)
			continue
		}
		last[shows] = len(joined)
		joined = append(joined, c)
	}
	return joined
}

// sampleCue returns a cue with text. ok is false if it shows nothing, or not at any time.
func sampleCue(c Cue, list []token) (_ Cue, ok bool, err error) {
	c.Start, c.End = max(0, c.Start.Round(time.Millisecond)), c.End.Round(time.Millisecond)
	c.Text = markup(list, c.Start, c.End)
	switch {
	case c.End <= c.Start || empty(c.Text):
		return Cue{}, false, nil
	case c.End > MaxTime:
		return Cue{}, false, invalid("the subtitle at %s ends after 1000 hours", clock(c.Start))
	case len(c.Text) > MaxText:
		return Cue{}, false, invalid("the text of the subtitle at %s is longer than 16 KiB", clock(c.Start))
	}
	return c, true, nil
}

func cutOff(start time.Duration) error { return invalid("the subtitle at %s is cut off", clock(start)) }

// box is a box of MP4.
type box struct {
	name string
	body []byte
}

// boxes returns the boxes in data, and whether they are whole.
func boxes(data []byte) (list []box, whole bool) {
	for len(data) > 0 {
		if len(data) < 8 {
			return list, false
		}
		size := binary.BigEndian.Uint32(data)
		if size < 8 || int64(size) > int64(len(data)) {
			return list, false
		}
		list = append(list, box{string(data[4:8]), data[8:size]})
		data = data[size:]
	}
	return list, true
}

func appendBox(dst []byte, name string, body ...[]byte) []byte {
	content := bytes.Join(body, nil)
	dst = binary.BigEndian.AppendUint32(dst, uint32(8+len(content)))
	return append(append(dst, name...), content...)
}
