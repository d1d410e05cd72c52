package caption

import (
	"html"
	"slices"
	"strings"
	"time"
)

// The markup of a cue is taken apart into tokens and written anew from them, so a reader of what
// weir writes never meets markup that WebVTT does not have.

// token is a piece of the markup of a cue: text, or a tag.
type token struct {
	text  string        // decoded; of a tag its annotation, such as the name of a voice
	name  string        // of a tag; "" = this is text
	class string        // of a tag: ".loud.yellow"
	end   bool          // an end tag
	mark  time.Duration // of a timestamp tag, whose name is "time"
}

const timeTag = "time"

// tags are those that WebVTT has.
var tags = []string{"b", "c", "i", "lang", "rt", "ruby", "u", "v"}

// tokens takes markup of WebVTT apart. What is not markup is text.
func tokens(markup string) (list []token) {
	for markup != "" {
		if markup[0] == '<' {
			if inside, after, closed := strings.Cut(markup[1:], ">"); closed && beginsTag(inside) {
				if t, ok := readTag(inside); ok {
					list = append(list, t)
				}
				markup = after
				continue
			}
		}
		n := strings.IndexByte(markup[1:], '<') + 1
		if n == 0 {
			n = len(markup)
		}
		list = append(list, textToken(markup[:n]))
		markup = markup[n:]
	}
	return list
}

func textToken(escaped string) token { return token{text: html.UnescapeString(escaped)} }

// beginsTag reports whether what follows a < is a tag: "a < b" and "I <3 you" have none.
func beginsTag(inside string) bool {
	inside = strings.TrimPrefix(inside, "/")
	if inside == "" {
		return false
	}
	if _, err := readTime(inside); err == nil {
		return true
	}
	c := inside[0]
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '!' || c == '?'
}

// readTag reads what is between < and >. ok is false if WebVTT has no such tag.
func readTag(inside string) (t token, ok bool) {
	if mark, err := readTime(inside); err == nil {
		return token{name: timeTag, mark: mark}, true
	}
	inside, t.end = strings.CutPrefix(inside, "/")
	head, annotation, _ := strings.Cut(strings.Map(blank, inside), " ")
	t.name, t.class, _ = strings.Cut(head, ".")
	if !slices.Contains(tags, t.name) {
		return t, false
	}
	if t.end {
		return token{name: t.name, end: true}, true
	}
	t.class = classes(t.class)
	if t.name == "v" || t.name == "lang" {
		t.text = strings.TrimSpace(html.UnescapeString(annotation))
	}
	return t, true
}

func blank(r rune) rune {
	if r == '\t' || r == '\n' {
		return ' '
	}
	return r
}

// classes returns the classes of a tag that are plain words.
func classes(text string) (kept string) {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	for class := range strings.SplitSeq(text, ".") {
		if class != "" && strings.IndexFunc(class, func(r rune) bool { return !plain(r) }) < 0 {
			kept += "." + class
		}
	}
	return kept
}

// markup writes tokens as WebVTT: balanced, escaped, and without empty lines, which would end the
// cue. Timestamps that are not within the cue are left out.
func markup(list []token, start, end time.Duration) string {
	var w strings.Builder
	var open []string
	for _, t := range list {
		switch {
		case t.name == "":
			w.WriteString(escape(t.text))
		case t.name == timeTag:
			if t.mark > start && t.mark < end {
				w.WriteString("<" + clock(t.mark) + ">")
			}
		case !t.end:
			open = append(open, t.name)
			w.WriteString("<" + t.name + t.class)
			if t.text != "" {
				w.WriteString(" " + strings.Join(strings.Fields(escape(t.text)), " "))
			}
			w.WriteString(">")
		case slices.Contains(open, t.name):
			for last := ""; last != t.name; {
				last, open = open[len(open)-1], open[:len(open)-1]
				w.WriteString("</" + last + ">")
			}
		}
	}
	for _, name := range slices.Backward(open) {
		w.WriteString("</" + name + ">")
	}
	return lines(w.String())
}

// lines returns text without empty lines, and without space around lines.
func lines(text string) string {
	var kept []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// escape writes text as markup, without characters that no text has.
func escape(text string) string {
	return escaper.Replace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, text))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// empty reports whether markup shows nothing.
func empty(markup string) bool { return strings.TrimSpace(Plain(markup)) == "" }

// Plain returns the text of a cue without its markup.
func Plain(markup string) string {
	var w strings.Builder
	for _, t := range tokens(markup) {
		switch {
		case t.name == "":
			w.WriteString(t.text)
		case t.name == "rt" && !t.end: // what is written above the characters before it
			w.WriteString("(")
		case t.name == "rt":
			w.WriteString(")")
		}
	}
	return w.String()
}

// shiftMarks moves the timestamps in the text of a cue.
func shiftMarks(text string, by time.Duration) string {
	list := tokens(text)
	if !slices.ContainsFunc(list, func(t token) bool { return t.name == timeTag }) {
		return text
	}
	for i := range list {
		list[i].mark += by
	}
	return markup(list, 0, MaxTime)
}
