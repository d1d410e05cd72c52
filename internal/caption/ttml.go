package caption

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
)

// Limits of what is read of TTML.
const (
	maxDepth  = 32 // of elements in each other, and of styles that refer to styles
	maxTokens = 2_000_000
	// maxRepeated limits what a span with times of its own repeats: the text around it, in pieces and
	// in bytes. It could be far more than the file.
	maxRepeated = MaxFile
)

// readTTML reads TTML: also DFXP, its first version, and the text profile of IMSC.
func readTTML(text string) ([]Cue, error) { return readTTMLSample(text, 0, 0) }

// readTTMLSample reads a document that is shown from a time to another: text without an end is shown
// as long. 0 = that is not known, and it is an error.
func readTTMLSample(text string, from, to time.Duration) ([]Cue, error) {
	r := ttml{xml: xml.NewDecoder(strings.NewReader(text)), from: from, to: to}
	// The charset that the document names is that of the file; this is its text.
	r.xml.CharsetReader = func(_ string, from io.Reader) (io.Reader, error) { return from, nil }
	if err := r.read(); err != nil {
		return nil, err
	}
	return r.list.cues, nil
}

// ttml reads one document.
type ttml struct {
	xml      *xml.Decoder
	from, to time.Duration // when the document is shown, if that is known
	line     int           // where the token begins that is being read
	clock    ttmlClock
	styles   styles
	stack    []element // those that are open
	leaves   []leaf    // of the paragraph that is open
	repeated int       // see maxRepeated
	list     list
}

// element is an open element, with what its children inherit.
type element struct {
	name       string
	line       int
	skip       bool // nothing in it is shown
	paragraph  bool // it is a paragraph, or in one
	preserve   bool // white space is kept
	style      style
	region     string
	sequence   bool          // its children are shown one after the other
	begin, end time.Duration // it is not shown longer than its parent
	own        time.Duration // the end that it has itself
	next       time.Duration // the latest end of its children: where the next one of a sequence begins
}

// never is an end that an element does not have.
const never = time.Duration(math.MaxInt64)

// leaf is a piece of text of a paragraph, and when it is shown.
type leaf struct {
	run
	preserve   bool
	start, end time.Duration
}

// blank reports whether the text shows nothing alone, so that it needs no times.
func (l leaf) blank() bool { return strings.TrimSpace(l.text) == "" }

func (r *ttml) read() error {
	for n := 0; ; n++ {
		r.line, _ = r.xml.InputPos()
		t, err := r.xml.Token()
		switch {
		case err == io.EOF && n > 0:
			return nil
		case err != nil:
			return r.broken(err)
		case n == maxTokens:
			return invalidAt(r.line, "the file has more than 2,000,000 tags and texts: send it in parts")
		}
		switch t := t.(type) {
		case xml.Directive:
			err = invalidAt(r.line, "the file has a <!DOCTYPE>: remove it, and write characters in place of its entities")
		case xml.StartElement:
			err = r.start(t)
		case xml.EndElement:
			err = r.endElement()
		case xml.CharData:
			err = r.addText(string(t))
		}
		if err != nil {
			return err
		}
	}
}

// broken returns the error for what is no XML.
func (r *ttml) broken(err error) error {
	syntax, ok := errors.AsType[*xml.SyntaxError](err)
	switch {
	case !ok:
		return invalidAt(r.line, "the XML is broken: %s", weir.Shorten(err.Error(), 100))
	case strings.Contains(syntax.Msg, "character entity"):
		return invalidAt(syntax.Line, "the XML has an %s: write the character itself, and &amp; for &", weir.Shorten(syntax.Msg, 100))
	}
	return invalidAt(syntax.Line, "the XML is broken: %s", weir.Shorten(syntax.Msg, 100))
}

// start reads the start of an element.
func (r *ttml) start(t xml.StartElement) (err error) {
	name := t.Name.Local
	if len(r.stack) == maxDepth {
		return invalidAt(r.line, "more than %d elements are in each other here", maxDepth)
	}
	if len(r.stack) == 0 {
		return r.root(t)
	}
	parent := &r.stack[len(r.stack)-1]
	e := *parent
	e.name, e.line, e.sequence, e.own, e.next = name, r.line, false, never, 0
	if e.skip {
		r.stack = append(r.stack, e)
		return nil
	}
	if image := attr(t, "backgroundImage"); image != "" && image != "none" || name == "image" {
		return invalidAt(r.line, "the subtitles are pictures, which can't become text: send them as text")
	}
	if space := attr(t, "space"); space != "" {
		e.preserve = space == "preserve"
	}
	switch name {
	case "head", "styling", "layout":
	case "region":
		e.region = attr(t, "id")
		e.style, err = r.styles.of(r.line, t)
	case "style":
		err = r.startStyle(parent, t)
	case "body", "div", "p", "span":
		err = r.startContent(&e, parent, t)
	case "br":
		e.preserve = true
		r.stack = append(r.stack, e)
		return r.addText("\n")
	default:
		e.skip = true // metadata, animations, and what others have added
	}
	r.stack = append(r.stack, e)
	return err
}

// root reads the first element.
func (r *ttml) root(t xml.StartElement) (err error) {
	if t.Name.Local != "tt" {
		return invalidAt(r.line, "this is neither WebVTT, SubRip (.srt) nor TTML: the first element of TTML is <tt>, not <%s>", weir.Shorten(t.Name.Local, 50))
	}
	if r.clock, err = readClock(r.line, t); err != nil {
		return err
	}
	r.styles = newStyles(t)
	r.stack = append(r.stack, element{name: "tt", end: never, own: never, preserve: attr(t, "space") == "preserve"})
	return nil
}

// startStyle reads a style of the document, or one of a region.
func (r *ttml) startStyle(parent *element, t xml.StartElement) error {
	if parent.name == "region" {
		s, err := r.styles.of(r.line, t)
		parent.style = s.with(parent.style)
		return err
	}
	r.styles.named[attr(t, "id")] = &namedStyle{own: ownStyle(t), refs: attr(t, "style")}
	return nil
}

// startContent reads the times and the style of an element with text.
func (r *ttml) startContent(e, parent *element, t xml.StartElement) error {
	own, err := r.styles.of(r.line, t)
	if err != nil {
		return err
	}
	e.style = parent.style.with(own)
	if _, ok := r.styles.regions[attr(t, "region")]; ok {
		e.region = attr(t, "region")
	}
	if e.name == "p" {
		if e.paragraph {
			return invalidAt(r.line, "a <p> is in another <p>: write a <span>")
		}
		e.paragraph = true
	}
	e.sequence = attr(t, "timeContainer") == "seq"
	return r.times(e, parent, t)
}

// times reads when an element is shown. Its times count from the begin of its parent, in a sequence
// from the end of the element before it. It is not shown longer than its parent.
func (r *ttml) times(e, parent *element, t xml.StartElement) error {
	zero := parent.begin
	if parent.sequence {
		zero = parent.next
	}
	begin, _, err := r.time(t, "begin")
	if err != nil {
		return err
	}
	e.begin = zero + begin
	if e.begin > MaxTime {
		return invalidAt(r.line, "the <%s> begins after 1000 hours", e.name)
	}
	if end, ok, err := r.time(t, "end"); err != nil {
		return err
	} else if ok {
		e.own = zero + end
	}
	if length, ok, err := r.time(t, "dur"); err != nil {
		return err
	} else if ok {
		e.own = min(e.own, e.begin+length)
	}
	if e.own.Round(time.Millisecond) <= e.begin.Round(time.Millisecond) {
		return invalidAt(r.line, "the <%s> ends at %s, which is not after its begin at %s", e.name, clock(e.own), clock(e.begin))
	}
	e.end, e.next = min(e.own, parent.end), e.begin
	return nil
}

// time reads an attribute that is a time.
func (r *ttml) time(t xml.StartElement, name string) (at time.Duration, ok bool, err error) {
	text := strings.TrimSpace(attr(t, name))
	if text == "" {
		return 0, false, nil
	}
	if at, ok = r.clock.read(text); !ok {
		return 0, false, invalidAt(r.line, "%s=%q is not a time; it should look like 00:01:02.500 or 62.5s, or like 00:01:02:12 with a frame below %g",
			name, weir.Shorten(text, 50), r.clock.frameRate)
	}
	return at, true, nil
}

// attr returns an attribute. TTML has had several namespaces, in none of which names mean different
// things, so they are not looked at.
func attr(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// endElement reads the end of an element.
func (r *ttml) endElement() error {
	last := len(r.stack) - 1
	e := r.stack[last]
	r.stack = r.stack[:last]
	if last == 0 {
		return nil
	}
	if e.own != never {
		e.next = e.own
	}
	parent := &r.stack[last-1]
	parent.next = max(parent.next, e.next)
	switch {
	case e.skip:
	case e.name == "region" && e.region != "":
		r.styles.regions[e.region] = e.style
	case e.name == "p":
		return r.endParagraph(&e)
	}
	return nil
}

var spaces = regexp.MustCompile(`[ \t\n]+`)

// addText adds text to the paragraph that is open.
func (r *ttml) addText(text string) error {
	if len(r.stack) == 0 {
		return nil
	}
	e := &r.stack[len(r.stack)-1]
	shown := r.styles.regions[e.region].with(e.style)
	if e.skip || !e.paragraph || shown.hidden() {
		return nil
	}
	if !e.preserve {
		text = spaces.ReplaceAllString(text, " ")
	}
	l := leaf{run: run{text, shown.face()}, preserve: e.preserve, start: e.begin, end: e.end}
	if !l.blank() {
		switch {
		case e.sequence:
			return invalidAt(r.line, `this text is in a sequence (timeContainer="seq"), but has no times: put it into a <span> with a dur`)
		case e.end == never && r.to == 0:
			return invalidAt(e.line, "the text of this <%s> has no end: give it, or an element around it, an end or a dur", e.name)
		case e.end == never:
			l.start, l.end = max(l.start, r.from), r.to
		}
		e.next = max(e.next, l.end)
	}
	l.start, l.end = l.start.Round(time.Millisecond), l.end.Round(time.Millisecond)
	r.leaves = append(r.leaves, l)
	return nil
}

// endParagraph makes cues of a paragraph: one, or several if its spans have other times than it.
func (r *ttml) endParagraph(p *element) error {
	times := changes(r.leaves)
	settings := r.styles.settings(r.styles.regions[p.region].with(p.style))
	for i := range max(1, len(times)) - 1 {
		c := Cue{Start: times[i], End: times[i+1], Settings: settings}
		runs, size := shownRuns(r.leaves, c.Start, c.End)
		if i > 0 {
			r.repeated += len(r.leaves) + size
		}
		switch {
		case size > MaxText:
			return invalidAt(p.line, "the text of the cue is longer than 16 KiB")
		case r.repeated > maxRepeated:
			return invalidAt(p.line, "too many spans have times of their own: give each text its own <p>")
		}
		if c.Text = markup(runTokens(runs), c.Start, c.End); empty(c.Text) {
			continue
		}
		if err := r.list.add(p.line, c); err != nil {
			return err
		}
	}
	r.leaves = r.leaves[:0]
	return nil
}

// changes returns the times at which the text of a paragraph begins, changes or ends.
func changes(leaves []leaf) (times []time.Duration) {
	for _, l := range leaves {
		if !l.blank() && l.start < l.end {
			times = append(times, l.start, l.end)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// shownRuns returns the text that is shown between two changes, up to where it is longer than a cue
// can be, and its size.
func shownRuns(leaves []leaf, start, end time.Duration) (runs []run, size int) {
	space := true // white space goes from the start of a line and from behind other one
	for _, l := range leaves {
		if l.start > start || l.end < end {
			continue
		}
		text := l.text
		if space && !l.preserve {
			text = strings.TrimLeft(text, " ")
		}
		if text == "" {
			continue
		}
		space = strings.HasSuffix(text, " ") || strings.HasSuffix(text, "\n")
		if size += len(text); size > MaxText {
			break
		}
		runs = append(runs, run{text, l.face})
	}
	return runs, size
}
