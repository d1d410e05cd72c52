package caption

import (
	"strings"
	"unicode"
)

// face is how characters are drawn, in the bits of timed text of 3GPP.
type face byte

const (
	bold face = 1 << iota
	italic
	underline
	allFaces = bold | italic | underline
)

// faceTags are the tags of WebVTT for faces, from the outer one to the inner one.
var faceTags = []struct {
	face face
	name string
}{{bold, "b"}, {italic, "i"}, {underline, "u"}}

// run is text of one face. Formats other than WebVTT have text so: in runs, not in tags.
type run struct {
	text string
	face face
}

// runTokens returns text as tokens. White space at the ends of a run is outside of its tags, so that
// no tag holds an empty line.
func runTokens(runs []run) (list []token) {
	var on face
	var space []byte
	for _, r := range runs {
		text := clean(r.text)
		core := strings.TrimSpace(text)
		before, after, _ := strings.Cut(text, core)
		space = append(space, before...)
		if core == "" {
			space = append(space, after...)
			continue
		}
		if r.face != on {
			list = appendFace(list, on, true)
		}
		list = append(list, token{text: string(space)})
		if r.face != on {
			list = appendFace(list, r.face, false)
		}
		list = append(list, token{text: core})
		on, space = r.face, append(space[:0], after...)
	}
	return list // markup closes what is open
}

// appendFace appends the tags that begin or end a face; the end of the outer one ends the others.
func appendFace(list []token, f face, end bool) []token {
	for _, tag := range faceTags {
		if f&tag.face != 0 {
			list = append(list, token{name: tag.name, end: end})
		}
	}
	return list
}

// clean returns text without control characters, with \n for each end of a line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\v' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029':
			return '\n' // two of them are one: markup drops empty lines
		case r == '\t':
			return ' '
		case r != '\n' && unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}

// textRuns returns markup as runs. What is written above characters follows them in parentheses.
func textRuns(markup string) (runs []run) {
	open := make([]int, len(faceTags)) // how many tags of each are open
	add := func(text string) {
		if text == "" {
			return
		}
		var f face
		for i, tag := range faceTags {
			if open[i] > 0 {
				f |= tag.face
			}
		}
		if last := len(runs) - 1; last >= 0 && runs[last].face == f {
			runs[last].text += text
			return
		}
		runs = append(runs, run{text, f})
	}
	for _, t := range tokens(markup) {
		step := 1
		if t.end {
			step = -1
		}
		switch {
		case t.name == "":
			add(t.text)
		case t.name == "rt" && !t.end:
			add("(")
		case t.name == "rt":
			add(")")
		}
		for i, tag := range faceTags {
			if t.name == tag.name {
				open[i] += step
			}
		}
	}
	return runs
}
