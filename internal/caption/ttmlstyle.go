package caption

import (
	"encoding/xml"
	"math"
	"slices"
	"strings"
)

// The styles of TTML of which something is left in WebVTT.
const (
	fontStyle = iota
	fontWeight
	textDecoration
	textAlign
	displayAlign
	origin
	extent
	display
	visibility
	styleCount
)

var styleNames = [styleCount]string{
	"fontStyle", "fontWeight", "textDecoration", "textAlign", "displayAlign", "origin", "extent", "display", "visibility",
}

// style has the values of styles; "" = not set.
type style [styleCount]string

// with returns the style with what another one sets.
func (s style) with(other style) style {
	for i, value := range other {
		if value != "" {
			s[i] = value
		}
	}
	return s
}

// face returns how characters are drawn.
func (s style) face() (f face) {
	if s[fontStyle] == "italic" || s[fontStyle] == "oblique" {
		f |= italic
	}
	if s[fontWeight] == "bold" {
		f |= bold
	}
	if slices.Contains(strings.Fields(s[textDecoration]), "underline") {
		f |= underline
	}
	return f
}

func (s style) hidden() bool { return s[display] == "none" || s[visibility] == "hidden" }

// namedStyle is a style to which elements refer. Which ones it refers to itself is known when the
// head of the document has been read.
type namedStyle struct {
	own  style
	refs string // "" = they are in own
}

// styles are those of a document.
type styles struct {
	named   map[string]*namedStyle
	regions map[string]style
	height  float64 // of the picture in pixels; 0 = not known
	rows    float64 // of the picture in cells
}

func newStyles(root xml.StartElement) styles {
	s := styles{named: map[string]*namedStyle{}, regions: map[string]style{}, rows: 15}
	if fields := strings.Fields(attr(root, "cellResolution")); len(fields) == 2 && isInteger(fields[1]) {
		s.rows = decimal(fields[1])
	}
	if pixels, ok := strings.CutSuffix(second(attr(root, "extent")), "px"); ok {
		s.height = decimal(pixels)
	}
	return s
}

// of returns the style of an element: that to which it refers, and what it sets itself.
func (s *styles) of(line int, t xml.StartElement) (style, error) {
	referred, err := s.resolve(line, attr(t, "style"), 0)
	return referred.with(ownStyle(t)), err
}

func ownStyle(t xml.StartElement) (s style) {
	for _, a := range t.Attr {
		if i := slices.Index(styleNames[:], a.Name.Local); i >= 0 {
			s[i] = strings.TrimSpace(a.Value)
		}
	}
	return s
}

// resolve returns what a list of references comes to. Each style is resolved once, so a document
// in which all refer to all costs no more than its length.
func (s *styles) resolve(line int, refs string, depth int) (sum style, err error) {
	if depth > maxDepth {
		return sum, invalidAt(line, "the style refers to itself, or to others over more than %d styles: write what it sets into it", maxDepth)
	}
	for id := range strings.FieldsSeq(refs) {
		n := s.named[id]
		if n == nil {
			continue // players ignore it too
		}
		if n.refs != "" {
			base, err := s.resolve(line, n.refs, depth+1)
			if err != nil {
				return sum, err
			}
			n.own, n.refs = base.with(n.own), ""
		}
		sum = sum.with(n.own)
	}
	return sum, nil
}

// settings returns where WebVTT shows text of a style: at the top or at the bottom. Where exactly a
// region is, is left to the player, which knows what else is on the screen.
func (s *styles) settings(of style) string {
	var list []string
	if s.atTop(of) {
		list = append(list, "line:0")
	}
	switch align := of[textAlign]; align {
	case "left", "start", "right", "end":
		list = append(list, "align:"+align)
	}
	return strings.Join(list, " ")
}

// atTop reports whether text is shown in the upper half of the picture. Without any place in the
// document it is not, although TTML says so: players show such text at the bottom.
func (s *styles) atTop(of style) bool {
	if of[origin] == "" && of[displayAlign] == "" {
		return false
	}
	y := s.percent(second(of[origin]), 0)
	height := s.percent(second(of[extent]), 100)
	switch of[displayAlign] {
	case "center":
		y += height / 2
	case "after":
		y += height
	}
	return y < 50
}

// percent returns a length in percent of the height of the picture; NaN = that is not known.
func (s *styles) percent(length string, absent float64) float64 {
	if length == "" {
		return absent
	}
	digits := strings.TrimRight(length, "%abcdefghijklmnopqrstuvwxyz")
	n := decimal(digits)
	switch unit := length[len(digits):]; {
	case unit == "%", unit == "rh":
		return n
	case unit == "c":
		return 100 * n / s.rows
	case unit == "px" && s.height > 0:
		return 100 * n / s.height
	}
	return math.NaN()
}

// second returns the second of two lengths, the vertical one.
func second(lengths string) string {
	if fields := strings.Fields(lengths); len(fields) == 2 {
		return fields[1]
	}
	return ""
}
