package web

import (
	"cmp"
	"html/template"
	"slices"
	"strings"
	"unicode/utf8"
)

// hit is a section that fits what was searched for.
type hit struct {
	Path    string        `json:"path"` // relative to the root of the server
	Page    string        `json:"page"`
	Heading string        `json:"heading,omitempty"`
	Excerpt template.HTML `json:"excerpt"` // what was searched for is marked
	score   int
}

const (
	maxQuery   = 100 // bytes that are read of what was searched for
	maxHits    = 30
	excerptLen = 160 // bytes, about
)

// index is everything that can be found. Its texts are searched as they are: there are some hundreds of
// them, so a search takes about a millisecond.
type index []indexed

type indexed struct {
	section
	lowerPage, lowerHeading, lowerText string
}

func newIndex(pages ...*page) (all index) {
	for _, p := range pages {
		for _, s := range p.sections {
			all = append(all, indexed{s, strings.ToLower(s.page), strings.ToLower(s.heading), strings.ToLower(s.text)})
		}
	}
	return all
}

// search returns the sections that have all words, the best first.
func (x index) search(query string) []hit {
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return nil
	}
	var hits []hit
	for _, s := range x {
		if score := s.score(words); score > 0 {
			hits = append(hits, hit{s.path, s.page, s.heading, excerpt(s.text, words), score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return hits[:min(len(hits), maxHits)]
}

// score says how well a section fits, 0 = a word is missing. A word in a heading is worth more than one
// in the text, and a whole word more than a part of one.
func (s indexed) score(words []string) (score int) {
	page := 20
	if s.heading == "" {
		page = 50 // the start of a page before its parts, and before parts of other pages
	}
	for _, word := range words {
		best := 0
		for _, place := range []struct {
			text  string
			value int
		}{{s.lowerHeading, 40}, {s.lowerPage, page}, {s.lowerText, 4}} {
			switch i := strings.Index(place.text, word); {
			case i < 0:
			case startsWord(place.text, word):
				best += place.value
			default:
				best += place.value / 4
			}
		}
		if best == 0 {
			return 0
		}
		score += best
	}
	return score
}

// startsWord reports whether a word of the text starts like this.
func startsWord(text, start string) bool {
	for i := 0; ; {
		n := strings.Index(text[i:], start)
		if n < 0 {
			return false
		}
		if i += n; i == 0 || !isLetter(text[i-1]) {
			return true
		}
		i += len(start)
	}
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf }

// excerpt returns the text around the first word that is found, with all words marked.
func excerpt(text string, words []string) template.HTML {
	lower := strings.ToLower(text)
	if len(lower) != len(text) { // a letter whose small form has another length
		lower = text
	}
	first := len(text)
	for _, word := range words {
		if i := strings.Index(lower, word); i >= 0 {
			first = min(first, i)
		}
	}
	from := 0
	if first < len(text) && first > excerptLen/3 {
		from = first - excerptLen/3
		if blank := strings.IndexByte(text[from:first], ' '); blank >= 0 {
			from += blank + 1
		}
	}
	to := min(len(text), from+excerptLen)
	if blank := strings.LastIndexByte(text[from:to], ' '); to < len(text) && blank > 0 {
		to = from + blank
	}
	for from > 0 && from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	out := mark(text[from:to], lower[from:to], words)
	if from > 0 {
		out = "… " + out
	}
	if to < len(text) {
		out += " …"
	}
	return template.HTML(out)
}

// mark returns the text as HTML with the words marked; lower is the text in lower case.
func mark(text, lower string, words []string) string {
	var out strings.Builder
	for at := 0; at < len(text); {
		next, length := len(text), 0
		for _, word := range words {
			if i := strings.Index(lower[at:], word); i >= 0 && at+i < next {
				next, length = at+i, len(word)
			}
		}
		out.WriteString(template.HTMLEscapeString(text[at:next]))
		if length > 0 {
			out.WriteString("<mark>" + template.HTMLEscapeString(text[next:next+length]) + "</mark>")
		}
		at = next + length
	}
	return out.String()
}
