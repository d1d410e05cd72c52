package weir

import (
	"strconv"
	"strings"
	"time"
)

// Period is a part of a session that one node received before another node continued the session.
// The node has the files of it.
type Period struct {
	Node string `json:"node"`
	Lost bool   `json:"lost,omitempty"` // the recording was made without it

	// Counters of the session at the end of the period, as of the last beat.
	SourceSegments         int64   `json:"sourceSegments"`
	SourceSegmentsDuration float64 `json:"sourceSegmentsDuration"`

	First           int64 `json:"first"`           // the number of its first segment
	Discontinuities int64 `json:"discontinuities"` // before that segment
	Next            int64 `json:"next"`            // the first number that viewers had not seen, as of the last beat
}

// Move records that another node continues the session.
func (s *Session) Move(from *OnAir) {
	s.Earlier = append(s.Earlier, Period{
		Node: from.Node, SourceSegments: s.SourceSegments, SourceSegmentsDuration: s.SourceSegmentsDuration,
		First: from.Sequence, Discontinuities: from.Discontinuities, Next: from.NextSequence,
	})
}

// Before returns the period before the current one; the zero value = there is none.
func (s *Session) Before() Period {
	if len(s.Earlier) == 0 {
		return Period{}
	}
	return s.Earlier[len(s.Earlier)-1]
}

// Folder returns the name of the folder of a period's files, on the node that has them. Periods
// count from 0.
func (s *Session) Folder(period int) string {
	if period == 0 {
		return s.ID
	}
	return s.ID + "." + strconv.Itoa(period)
}

// SessionOf returns the session whose files are in a folder.
func SessionOf(folder string) (id string) {
	id, _, _ = strings.Cut(folder, ".")
	return id
}

// Move starts a new period of the session, on another node. It skips numbers unless the node before
// it has said exactly how far it was. The first segment of the period is itself a discontinuity:
// players see both periods in one playlist, where discontinuities can't be skipped. Only those are that
// the node before may already have counted in its playlists.
func (a *OnAir) Move(now time.Time) {
	if !a.Exact(now) {
		a.NextSequence += a.unreported(now)
		a.NextDiscontinuities += int64(max(0, now.Sub(a.SeenAt.Time())-shownFor) / segmentTime)
	}
	a.SeenAt = At(now)
	a.Sequence, a.Discontinuities = a.NextSequence, max(a.Discontinuities, a.NextDiscontinuities-1)
}
