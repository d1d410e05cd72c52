package caption

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// readSubRip reads SubRip (.srt), which has no standard: files lack numbers and empty lines, and
// have empty lines in a cue. So the lines with times divide the file.
func readSubRip(text string) ([]Cue, error) {
	var l list
	all := strings.Split(text, "\n")
	timing := func(i int) bool { return i < len(all) && strings.Contains(all[i], arrow) }
	i := 0
	for ; i < len(all) && !timing(i); i++ {
		if line := strings.TrimSpace(all[i]); line != "" && !(isNumber(line) && timing(i+1)) {
			return nil, invalidAt(i+1, "this is neither WebVTT, SubRip (.srt) nor TTML: before the first cue there is %q", weir.Shorten(line, 50))
		}
	}
	for i < len(all) {
		at := i + 1
		var c Cue
		var err error
		if c.Start, c.End, _, err = readTiming(at, all[i]); err != nil {
			return nil, err
		}
		first := i + 1
		for i = first; i < len(all) && !timing(i); i++ {
		}
		end := i
		if timing(i) && end > first && isNumber(strings.TrimSpace(all[end-1])) {
			end-- // the number of the next cue
		}
		var list []token
		list, c.Settings = subRipTokens(strings.Join(all[first:end], "\n"))
		c.Text = markup(list, c.Start, c.End)
		if empty(c.Text) {
			c.Text = ""
		}
		if err := l.add(at, c); err != nil {
			return nil, err
		}
	}
	return l.cues, nil
}

func isNumber(text string) bool {
	_, err := number(text)
	return err == nil
}

// subRipMarkup is what players of SubRip understand: some tags of HTML, and places of the picture.
var subRipMarkup = regexp.MustCompile(`(?i)</?(?:b|i|u|s|font)(?:\s[^>]*)?>|\{\\[^}]*\}|\{/?[biu]\}`)

// places are the settings for {\an1} to {\an9}: like the keys of a number pad.
var places = [10]string{
	1: "align:left", 3: "align:right",
	4: "line:50% align:left", 5: "line:50%", 6: "line:50% align:right",
	7: "line:0 align:left", 8: "line:0", 9: "line:0 align:right",
}

// subRipTokens takes the text of a cue of SubRip apart, and returns where it is shown.
func subRipTokens(text string) (list []token, settings string) {
	at := 0
	for _, found := range subRipMarkup.FindAllStringIndex(text, -1) {
		list = append(list, textToken(text[at:found[0]]))
		tag := strings.ToLower(strings.Trim(text[found[0]:found[1]], "<>{}"))
		at = found[1]
		if place, ok := strings.CutPrefix(tag, `\an`); ok {
			if n, err := strconv.Atoi(place); err == nil && n > 0 && n < len(places) {
				settings = places[n]
			}
			continue
		}
		name, end := strings.CutPrefix(tag, "/")
		if name, _, _ = strings.Cut(name, " "); slices.Contains([]string{"b", "i", "u"}, name) {
			list = append(list, token{name: name, end: end})
		}
	}
	return append(list, textToken(text[at:])), settings
}

// SubRip writes cues as a file (.srt).
func SubRip(cues []Cue) []byte {
	var w []byte
	for i, c := range cues {
		w = strconv.AppendInt(w, int64(i+1), 10)
		times := clock(c.Start) + " " + arrow + " " + clock(c.End)
		w = append(append(append(w, '\n'), strings.ReplaceAll(times, ".", ",")...), '\n')
		w = append(append(append(w, subRipPlace(c.Settings)...), subRipText(c.Text)...), "\n\n"...)
	}
	return w
}

// subRipPlace returns the place of a cue as SubRip has it.
func subRipPlace(settings string) string {
	if n := slices.Index(places[:], settings); n > 0 && settings != "" {
		return `{\an` + strconv.Itoa(n) + `}`
	}
	return ""
}

// subRipText writes markup of WebVTT as that of SubRip, which has no escapes.
func subRipText(text string) string {
	var w strings.Builder
	for _, t := range tokens(text) {
		switch {
		case t.name == "":
			w.WriteString(t.text)
		case !slices.Contains([]string{"b", "i", "u"}, t.name):
		case t.end:
			w.WriteString("</" + t.name + ">")
		default:
			w.WriteString("<" + t.name + ">")
		}
	}
	return w.String()
}

// Transcript writes the text of cues alone, a paragraph for each, without repetitions.
func Transcript(cues []Cue) []byte {
	var w []byte
	last := ""
	for _, c := range cues {
		text := strings.Join(strings.Fields(Plain(c.Text)), " ")
		if text != last {
			w = append(append(w, text...), '\n')
		}
		last = text
	}
	return w
}
