package cmaf

import (
	"math/big"
	"slices"
	"strings"
	"time"
)

// TextTrack is a track of text in a progressive file. Its samples follow one another from the first
// frame of the first track on.
type TextTrack struct {
	Name     string // for people
	Language string // a tag of BCP 47
	Default  bool   // it is shown unless the viewer chooses
	Entry    []byte // the sample entry with its box header
	Samples  []TextSample
}

// TextSample is what a text shows for some time, which may be nothing.
type TextSample struct {
	Duration uint32 // milliseconds
	Data     []byte
}

// TextSpan is a part of a presentation in which its first track has no gap.
type TextSpan struct {
	From, To time.Duration // as for a TextSegment
	At       time.Duration // when From is in a progressive file, after the first frame
}

// TextSpans returns where in the progressive file of tracks their text is. The first track can end
// before the others when a connection is lost: players of segments skip that time, a file has it.
func TextSpans(tracks []TrackIndex) (list []TextSpan) {
	all, _ := stretches(tracks)
	var played, first time.Duration
	for _, r := range all {
		if r.track != 0 {
			continue
		}
		if len(list) == 0 {
			first = r.from - r.gaps
		}
		span := TextSpan{From: played, At: r.from - r.gaps - first}
		for n, s := range tracks[0].Segments[r.first:r.end] {
			played += tracks[0].TrackOf(r.first+n).between(s.Start(), s.End())
		}
		span.To = played
		list = append(list, span)
	}
	return list
}

const textKind Kind = "text"

const (
	textTimescale = 1000

	// Of the tracks of an alternate group, players play one.
	alternateAudio = 1
	alternateText  = 2
)

// newTextForm returns the layout of a text. Each sample is a chunk, and among the frames with which it
// is shown: players that read a file over HTTP would send two requests for each text that is elsewhere.
func newTextForm(position int, t TextTrack, first *trackForm) *trackForm {
	f := &trackForm{
		Track:    Track{Kind: textKind, Timescale: textTimescale, Language: languageCode(t.Language), Name: t.Name, Entry: t.Entry},
		position: position, group: alternateText, disabled: !t.Default,
		offsets: runTable{{uint32(len(t.Samples)), 0}},
	}
	from, _ := first.seconds(first.shown).Float64()
	f.start = int64(from * textTimescale)
	for i, s := range t.Samples {
		f.chunks = append(f.chunks, chunk{before: s.Data, extent: Extent{Track: position}, start: f.start + f.span, samples: 1})
		f.durations.add(s.Duration)
		f.sizes, f.syncs = append(f.sizes, uint32(len(s.Data))), append(f.syncs, uint32(i+1))
		f.span += int64(s.Duration)
	}
	return f
}

// editTexts sets when each text is shown: with the first track, and not longer than the movie.
func (m *movieForm) editTexts() {
	for _, t := range m.texts {
		t.late = m.tracks[0].late
		t.length = min(m.ticks(big.NewRat(t.span, textTimescale), true), m.length-t.late)
	}
}

// all returns the layouts of all tracks, by their positions.
func (m *movieForm) all() []*trackForm { return slices.Concat(m.tracks, m.texts) }

// languageCode turns a tag of BCP 47 into a code of ISO 639-2; "" = it has none.
func languageCode(tag string) string {
	tag, _, _ = strings.Cut(strings.ToLower(tag), "-")
	if len(tag) != 2 {
		return tag
	}
	for pair := range strings.FieldsSeq(languages) {
		if code, short, _ := strings.Cut(pair, ":"); short == tag && !strings.Contains(bibliographic, code) {
			return code
		}
	}
	return ""
}

// bibliographic are the codes of ISO 639-2 that libraries use; files have the other one of the two.
const bibliographic = "alb arm baq bur chi cze dut fre geo ger gre ice mac mao may per rum slo tib wel"
