package caption

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Matroska has text in packets, one for each cue. The packet has the times. The functions here return
// false for one that shows nothing, or whose text is longer than MaxText.

// SubRipPacket reads a packet of S_TEXT/UTF8.
func SubRipPacket(text string, start, end time.Duration) (Cue, bool) {
	list, settings := subRipTokens(packetText(text))
	return packetCue(Cue{Start: start, End: end, Settings: settings}, list)
}

// WebVTTPacket reads a packet of S_TEXT/WEBVTT. The addition is that of the block, "" if it has none:
// a line of settings, a line with the identifier, and comments.
func WebVTTPacket(text, addition string, start, end time.Duration) (Cue, bool) {
	settings, rest, _ := strings.Cut(packetText(addition), "\n")
	id, _, _ := strings.Cut(rest, "\n")
	list := tokens(packetText(text))
	for i := range list {
		list[i].mark += start // it counts from the start of the packet
	}
	return packetCue(Cue{ID: identifier(id), Start: start, End: end, Settings: readSettings(settings)}, list)
}

// ASS reads a packet of S_TEXT/ASS or S_TEXT/SSA. Bold, italic and underlined text stays so, and
// text at the top there; all else of its markup, and drawings, is left out. Its styles are in the
// head of the track, which is not read.
func ASS(packet string, start, end time.Duration) (Cue, bool) {
	fields := strings.SplitN(packetText(packet), ",", assFields)
	if len(fields) < assFields {
		return Cue{}, false
	}
	var a assText
	text, at := fields[assFields-1], 0
	for _, found := range assMarkup.FindAllStringIndex(text, -1) {
		a.add(text[at:found[0]])
		a.override(text[found[0]+1 : found[1]-1])
		at = found[1]
	}
	a.add(text[at:])
	return packetCue(Cue{Start: start, End: end, Settings: places[a.place]}, runTokens(a.runs))
}

// assFields are ReadOrder, Layer, Style, Name, MarginL, MarginR, MarginV, Effect and Text, which may
// have commas.
const assFields = 9

var (
	assMarkup    = regexp.MustCompile(`\{[^}]*\}`)
	assArguments = regexp.MustCompile(`\([^)]*\)?`) // of effects, also tags that come later
	assBreaks    = strings.NewReplacer(`\N`, "\n", `\n`, " ", `\h`, "\u00a0")
)

// assText collects the text of a packet of ASS.
type assText struct {
	runs    []run
	face    face
	drawing bool
	place   int // as on the keys of a number pad; 0 = not named
}

func (a *assText) add(text string) {
	if !a.drawing {
		a.runs = append(a.runs, run{assBreaks.Replace(text), a.face})
	}
}

// override reads what is between braces: tags, which begin with a backslash, and comments.
func (a *assText) override(block string) {
	_, tags, _ := strings.Cut(assArguments.ReplaceAllString(block, ""), `\`)
	for tag := range strings.SplitSeq(tags, `\`) {
		tag = strings.TrimSpace(tag)
		name := strings.TrimRight(tag, "0123456789")
		n, _ := strconv.Atoi(tag[len(name):])
		switch name {
		case "b":
			a.turn(bold, n == 1 || n >= 600) // also a weight
		case "i":
			a.turn(italic, n == 1)
		case "u":
			a.turn(underline, n == 1)
		case "p":
			a.drawing = n > 0
		case "an":
			if a.place == 0 && n < len(places) { // the first one counts
				a.place = n
			}
		default:
			if strings.HasPrefix(name, "r") { // the style of the line again, or another one
				a.face = 0
			}
		}
	}
}

func (a *assText) turn(f face, on bool) {
	if a.face &^= f; on {
		a.face |= f
	}
}

var packetBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\ufffd")

// packetText returns text with \n after each line. What is not UTF-8 is replaced, since a part of a
// file has no charset of its own.
func packetText(text string) string {
	return packetBreaks.Replace(strings.ToValidUTF8(text, "\ufffd"))
}

func packetCue(c Cue, list []token) (Cue, bool) {
	c, ok, err := sampleCue(c, list)
	return c, ok && err == nil
}
