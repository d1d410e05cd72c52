// Package caption reads and writes captions and subtitles. A track of text is a list of [Cue], in
// the order of their start; its text is markup of WebVTT, whatever the file was in.
//
// [Read] takes the files that people have: WebVTT, SubRip and TTML. [WebVTT], [SubRip] and
// [Transcript] write them. [Segment] is the WebVTT of a part of the time, for HLS. samples.go reads
// and writes text in MP4, packets.go reads that in Matroska, and [CEA608] decodes captions that are
// in the frames of a video. All that is read is bounded, and errors name the line. Markup of others is never passed on: markup.go takes it
// apart and writes it anew.
package caption

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
)

// Limits of what is read.
const (
	MaxFile = 10 << 20 // bytes of a file
	MaxCues = 100_000
	MaxText = 16 << 10 // bytes of a cue
	// MaxTime is the latest end of a cue.
	MaxTime = 1000 * time.Hour
)

// Cue is a text and when it is shown.
type Cue struct {
	ID         string // "" = none
	Start, End time.Duration
	Settings   string // where it is shown, in the words of WebVTT; "" = at the bottom
	Text       string // markup of WebVTT, of at least one line
}

// Read returns the cues of a file. The charset is that of the file; "" = UTF-8, or what its byte
// order mark says.
func Read(file []byte, charset string) ([]Cue, error) {
	if len(file) > MaxFile {
		return nil, invalid("the file of the text is larger than 10 MiB")
	}
	text, err := decode(file, charset)
	if err != nil {
		return nil, err
	}
	var cues []Cue
	switch start := strings.TrimLeft(text, " \t\r\n"); {
	case strings.HasPrefix(text, signature):
		cues, err = readWebVTT(text)
	case strings.HasPrefix(start, "<"):
		cues, err = readTTML(text)
	case start == "":
		return nil, invalid("the file of the text is empty")
	default:
		cues, err = readSubRip(text)
	}
	if err != nil {
		return nil, err
	}
	return ordered(cues)
}

// ReadStored is Read for what [WebVTT] wrote, which may be larger than a file that was read.
func ReadStored(text []byte) ([]Cue, error) {
	cues, err := readWebVTT(string(text))
	if err != nil {
		return nil, err
	}
	return ordered(cues)
}

// ordered sorts the cues of a file, which must have some.
func ordered(cues []Cue) ([]Cue, error) {
	if len(cues) == 0 {
		return nil, invalid("the file has no cues with text")
	}
	slices.SortStableFunc(cues, func(a, b Cue) int { return cmp.Compare(a.Start, b.Start) })
	return cues, nil
}

// Collect checks cues that were read one by one, and sorts them.
func Collect(cues []Cue) ([]Cue, error) {
	var l list
	for i, c := range cues {
		if err := l.add(i+1, c); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(l.cues, func(a, b Cue) int { return cmp.Compare(a.Start, b.Start) })
	return l.cues, nil
}

// list collects the cues of a file.
type list struct{ cues []Cue }

// add adds a cue that begins in a line of the file. One without text is left out.
func (l *list) add(line int, c Cue) error {
	// Times are written in milliseconds, so that a cue has the same ones in all files.
	c.Start, c.End = c.Start.Round(time.Millisecond), c.End.Round(time.Millisecond)
	switch {
	case c.End <= c.Start:
		return invalidAt(line, "the cue ends at %s, which is not after its start at %s", clock(c.End), clock(c.Start))
	case c.Start < 0:
		return invalidAt(line, "the cue starts before 0")
	case c.End > MaxTime:
		return invalidAt(line, "the cue ends after 1000 hours")
	case len(c.Text) > MaxText:
		return invalidAt(line, "the text of the cue is longer than 16 KiB")
	case c.Text == "":
		return nil
	case len(l.cues) == MaxCues:
		return invalidAt(line, "the file has more than 100,000 cues")
	}
	l.cues = append(l.cues, c)
	return nil
}

// Between returns the cues that are shown between two times, as they are.
func Between(cues []Cue, from, to time.Duration) (shown []Cue) {
	for _, c := range cues {
		if c.End > from && c.Start < to {
			shown = append(shown, c)
		}
	}
	return shown
}

// Shift returns the cues with other times: those that are shown from a time on, which is 0 then, up
// to an end.
func Shift(cues []Cue, from, to time.Duration) (shifted []Cue) {
	for _, c := range Between(cues, from, to) {
		c.Text = shiftMarks(c.Text, -from)
		c.Start, c.End = max(c.Start, from)-from, min(c.End, to)-from
		if c.End-c.Start >= time.Millisecond {
			shifted = append(shifted, c)
		}
	}
	return shifted
}

// End returns when the last cue ends.
func End(cues []Cue) (end time.Duration) {
	for _, c := range cues {
		end = max(end, c.End)
	}
	return end
}

func invalid(format string, values ...any) error { return weir.Errorf(weir.Invalid, format, values...) }

func invalidAt(line int, format string, values ...any) error {
	return invalid("line %d: "+format, append([]any{line}, values...)...)
}
