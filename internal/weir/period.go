package weir

import (
	"strconv"
	"strings"
)

// Period is a part of a session that a node carried before another one went on with it. Its
// files are with that node.
type Period struct {
	Node string `json:"node"`
	Lost bool   `json:"lost,omitempty"` // the recording was made without it

	// What the session had carried when the period ended, as far as the store had heard.
	SourceSegments         int64   `json:"sourceSegments"`
	SourceSegmentsDuration float64 `json:"sourceSegmentsDuration"`

	First           int64 `json:"first"`           // the number of its first segment
	Discontinuities int64 `json:"discontinuities"` // before that
	Next            int64 `json:"next"`            // the first number that nobody had seen, as far as the store had heard
}

// Move notes that another node goes on with the session than the one that carried it.
func (s *Session) Move(from *OnAir) {
	s.Earlier = append(s.Earlier, Period{
		Node: from.Node, SourceSegments: s.SourceSegments, SourceSegmentsDuration: s.SourceSegmentsDuration,
		First: from.Sequence, Discontinuities: from.Discontinuities, Next: from.NextSequence,
	})
}

// Before returns what was carried before the present period.
func (s *Session) Before() Period {
	if len(s.Earlier) == 0 {
		return Period{}
	}
	return s.Earlier[len(s.Earlier)-1]
}

// Folder names the folder of the files of a period, from 0 on, on the node that has them.
func (s *Session) Folder(period int) string {
	if period == 0 {
		return s.ID
	}
	return s.ID + "." + strconv.Itoa(period)
}

// SessionOf returns the session that the files in a folder are of.
func SessionOf(folder string) (id string) {
	id, _, _ = strings.Cut(folder, ".")
	return id
}

// Move gives the stream's session a new period, on a node that can't ask the one before how
// far it was. Its first segment is itself the discontinuity that the next number is after:
// players are shown both periods in one list, where discontinuities can't be left out.
func (a *OnAir) Move() {
	a.NextSequence += unheard
	a.Sequence, a.Discontinuities = a.NextSequence, max(a.Discontinuities, a.NextDiscontinuities-1)
}
