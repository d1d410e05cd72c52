package weir

import (
	"cmp"
	"slices"
	"time"
)

// OnAirLease is how long a node may send no beat before other nodes take its streams off the air.
const OnAirLease = 10 * time.Second

// Viewers must not see a number twice. So a node that continues the numbers of one that can't say how
// far it was skips as many as that one may have used since its last beat: some at once, as when an encoder
// reconnects again and again, or sends what has piled up, and one for each segmentTime since then.
const (
	unreportedAtOnce = 16
	segmentTime      = 2 * time.Second // the shortest duration of a segment that goes on
	// shownFor is how long playlists list a segment. Only then may a number of discontinuities that was
	// not reported be in EXT-X-DISCONTINUITY-SEQUENCE.
	shownFor = time.Minute
	// MaxUnreportedShown is how many of the last numbers that were skipped may be in the last playlist of
	// the node before.
	MaxUnreportedShown = unreportedAtOnce + int64(shownFor/segmentTime)
)

// MayShow reports whether a node that could not report for so long may show the segment with a number, if
// next was the first one that it had not shown. Then nobody who continues its numbers uses that one. Half
// of the first numbers are kept back for beats that were left out.
func MayShow(number, next int64, silent time.Duration) bool {
	return number < next+unreportedAtOnce/2+int64(silent/segmentTime)
}

// unreported returns how many segments and discontinuities a node may have shown to viewers since its
// last beat.
func (a *OnAir) unreported(now time.Time) int64 {
	return unreportedAtOnce + int64(max(0, now.Sub(a.SeenAt.Time()))/segmentTime)
}

// OnAir says which node carries a stream, and with which session. It stays with the stream from
// session to session.
//
// A session outlives the connection of its encoder: while Connected is false it waits for the
// encoder to come back, until ClosesAt. Every new owner of the stream gets a higher epoch, and
// writes with an older epoch are refused.
type OnAir struct {
	StreamID  string
	SessionID string // "" = no session is open
	Node      string
	URL       string // at which other nodes reach the node; "" = they can't
	Epoch     int64
	Connected bool // an encoder sends, or has only just disconnected
	Timeout   time.Duration
	SeenAt    Millis // time of the node's last beat
	ExpiresAt Millis // from then on other nodes take the node for dead
	ClosesAt  Millis // from then on an encoder begins a new session
	Ending    Ending // why the session must end; "" = it must not

	Sequence, Discontinuities         int64 // the first numbers of the session
	NextSequence, NextDiscontinuities int64 // not shown to viewers yet, as of the last beat
	Final                             bool  // they are exact: nothing was shown since that beat

	Pushes []TargetHealth // to multistream targets, as of the last beat

	Silent time.Duration // how long its node had sent no beat when it resumed it; not stored
}

// Numbers are the first numbers that a node has not shown, and will not show before the store gives it
// the stream again.
type Numbers struct {
	Epoch           int64 `json:"epoch"`
	Sequence        int64 `json:"sequence"`
	Discontinuities int64 `json:"discontinuities"`
}

// Ending is why a node must end a session although its encoder may still send.
type Ending string

// The reasons. With all but the first the node still owns the session: it finishes the media and
// closes the session.
const (
	EndTakenOver  Ending = "taken over" // another encoder or another node has the stream, or the session is closed
	EndTerminated Ending = "terminated"
	EndSuspended  Ending = "suspended"
	EndDeleted    Ending = "deleted"
	EndBlocked    Ending = "account blocked"
	EndTimeout    Ending = "timeout" // the encoder did not come back in time
)

// Beat is what a node reports about a session that it carries, every two seconds and at the end.
// All values are absolute, so that a beat that is written twice counts once.
type Beat struct {
	StreamID string
	Epoch    int64
	SeenAt   Millis         // when media last arrived; 0 = never
	Counters Counters       // of the whole session; the rates are current
	Issues   []string       // problems, as sentences for people; empty = healthy
	Samples  []HealthSample // that may not be stored yet

	NextSequence, NextDiscontinuities int64 // not shown to viewers yet
	Final                             bool  // and will not be before an encoder connects again

	End    time.Duration // of the session's media, on its timeline
	Target time.Duration // target duration of its playlists; 0 = not decided yet

	RecordedBytes int64    // of its recording
	Received      Received // how the media came that this node received

	Pushes []TargetHealth // to multistream targets
}

// Take gives the stream to a node to which an encoder has connected, after Begin or Move if the session is
// new there. It is no beat: the node does not say how far it is.
func (a *OnAir) Take(node string, timeout time.Duration, now time.Time) {
	a.Node, a.Connected, a.Timeout, a.Final = node, true, timeout, false
	a.Epoch++
	a.ExpiresAt, a.ClosesAt = At(now.Add(OnAirLease)), At(now.Add(OnAirLease+timeout))
}

// Resume gives the stream back to its node after a restart, which may have changed the timeout. A
// session that has not timed out gets its full timeout again, because its encoder could not connect
// meanwhile.
func (a *OnAir) Resume(timeout time.Duration, now time.Time) {
	a.Timeout, a.Silent, a.Final = timeout, max(0, now.Sub(a.SeenAt.Time())), false
	if !a.Connected && !a.Overdue(now) {
		a.ClosesAt = At(now.Add(a.Timeout))
	} else if !a.Overdue(now) {
		a.ClosesAt = At(now.Add(OnAirLease + a.Timeout))
	}
	a.Epoch++
	a.ExpiresAt = At(now.Add(OnAirLease))
}

// Reconnect puts a stream back on air that was taken off because its node sent no beats. No other
// node has taken it since, or the epoch would differ.
func (a *OnAir) Reconnect(now time.Time) {
	a.Connected = true
	a.Renew(now)
}

// Renew records that the node is alive. A session that has timed out stays timed out.
func (a *OnAir) Renew(now time.Time) {
	if a.Connected && !a.Overdue(now) {
		a.ClosesAt = At(now.Add(OnAirLease + a.Timeout))
	}
	a.SeenAt, a.ExpiresAt = At(now), At(now.Add(OnAirLease))
}

// Extend lets a session time out only when its timeout is over since media last came, also if its node
// could not report that until now.
func (a *OnAir) Extend(b Beat) {
	a.ClosesAt = max(a.ClosesAt, b.SeenAt+Millis(a.Timeout.Milliseconds()))
}

// Release records that the encoder has disconnected.
func (a *OnAir) Release(now time.Time) {
	if a.Connected {
		a.Connected, a.SeenAt, a.ClosesAt = false, At(now), At(now.Add(a.Timeout))
	}
}

// Expire takes the stream off the air because its node sends no beats. The epoch stays: as long as
// no other node takes the stream, the node may come back.
func (a *OnAir) Expire() { a.Connected = false }

// Revived reports whether media has arrived since Expire.
func (a *OnAir) Revived(b Beat, now time.Time) bool {
	return !a.Connected && b.SeenAt > a.SeenAt && !a.Overdue(now)
}

// Overdue reports whether the session has timed out.
func (a *OnAir) Overdue(now time.Time) bool { return a.ClosesAt <= At(now) }

// Begin opens a session, which continues the numbers of the session before it.
func (a *OnAir) Begin(sessionID string, now time.Time) {
	if a.Epoch > 0 && !a.Exact(now) {
		a.SkipUnreported(now)
	}
	a.SessionID, a.Ending, a.SeenAt = sessionID, "", At(now)
	a.Sequence, a.Discontinuities = a.NextSequence, a.NextDiscontinuities
}

// Close ends the session for the node that has it and has said how far it is.
func (a *OnAir) Close() {
	a.SessionID, a.Connected, a.Ending, a.Pushes, a.Final = "", false, "", nil, true
}

// CloseUnreported ends the session in place of a node that can't say how far it is, and may even show
// more until the next session begins.
func (a *OnAir) CloseUnreported() {
	a.Close()
	a.Final = false
}

// Exact reports whether no viewer has seen more than the node has reported. A node that can't reach the
// store lets an encoder return to its open session, so for that its last beat must be of late.
func (a *OnAir) Exact(now time.Time) bool {
	return a.Final && (a.SessionID == "" || now.Sub(a.SeenAt.Time()) <= OnAirLease)
}

// Report takes over what the node has said to another one. The numbers are exact.
func (a *OnAir) Report(n Numbers, now time.Time) {
	a.NextSequence, a.NextDiscontinuities = max(a.NextSequence, n.Sequence), max(a.NextDiscontinuities, n.Discontinuities)
	a.SeenAt, a.Final = At(now), true
}

// Linger takes over the numbers of a beat of a session that was closed in place of its node. Until it
// hears of that, it shows more.
func (a *OnAir) Linger(b Beat, now time.Time) {
	a.NextSequence, a.NextDiscontinuities = max(a.NextSequence, b.NextSequence), max(a.NextDiscontinuities, b.NextDiscontinuities)
	a.SeenAt = At(now)
}

// SkipUnreported skips numbers that the node may have used without having reported them.
func (a *OnAir) SkipUnreported(now time.Time) {
	n := a.unreported(now)
	a.NextSequence += n
	a.NextDiscontinuities += n
}

// Continues reports whether an encoder that connects now continues the session. It does not if the
// owner has since turned recording on or off.
func (a *OnAir) Continues(session *Session, record bool, now time.Time) bool {
	return a.Ending == "" && !a.Overdue(now) && session.Record == record
}

// MustEnd returns why the session must end; "" = it must not. owner is the account of the stream.
func (a *OnAir) MustEnd(owner *User, now time.Time) Ending {
	switch {
	case a.Ending != "":
		return a.Ending
	case owner == nil || owner.Suspended || owner.Disabled:
		return EndBlocked
	case a.Overdue(now):
		return EndTimeout
	}
	return ""
}

// ApplyBeat takes over the pushes and the numbers of a beat. The numbers never fall.
func (a *OnAir) ApplyBeat(b Beat) {
	a.NextSequence = max(a.NextSequence, b.NextSequence)
	a.NextDiscontinuities = max(a.NextDiscontinuities, b.NextDiscontinuities)
	a.Pushes, a.Final = b.Pushes, b.Final
}

// Admit returns an error if an encoder must not publish to the stream. owner is its account, nil
// when that is deleted.
func (s *Stream) Admit(owner *User) error {
	switch {
	case s.Deleted || owner == nil:
		return ErrNotFound()
	case s.Suspended:
		return Errorf(Refused, "the stream is suspended; its owner can change that")
	case owner.Suspended || owner.Disabled:
		return Errorf(Refused, "the account of the stream is suspended or disabled; ask the operator")
	}
	return nil
}

// EndedBy returns why a change of the stream ends its broadcast; "" = it does not end it.
func (s *Stream) EndedBy(before *Stream) Ending {
	switch {
	case s.Deleted && !before.Deleted:
		return EndDeleted
	case s.Suspended && !before.Suspended:
		return EndSuspended
	case s.LastTerminatedAt != nil && (before.LastTerminatedAt == nil || *s.LastTerminatedAt != *before.LastTerminatedAt):
		return EndTerminated
	}
	return ""
}

// NewSession returns a session of the stream that has not been on air yet.
func NewSession(s *Stream, now time.Time) Session {
	return Session{
		ID: NewID(), Kind: "session", Name: s.Name, ParentID: s.ID, UserID: s.UserID, ProjectID: s.ProjectID,
		PlaybackID: s.PlaybackID, CreatedAt: At(now), Record: s.Record, C2PA: s.C2PA, PartDuration: s.PartDuration,
	}
}

// GoOnAir records that the encoder of a session sends, for the first time or again.
func (s *Stream) GoOnAir(session *Session, events *EventBatch) {
	now, begins, wasActive := At(events.Now), session.LastSeen == 0, s.IsActive
	s.IsActive, s.LastSeen, session.LastSeen = true, max(s.LastSeen, now), max(session.LastSeen, now)
	s.setHealth(session, nil)
	session.Profiles, session.RecordingSpec = s.Profiles, s.RecordingSpec
	if !wasActive {
		events.session(StreamStarted, s, *session, "")
	}
	if begins && session.Recorded() {
		events.session(RecordingStartedEvent, s, *session, "")
	}
}

// GoOffAir records that the encoder has been disconnected for too long.
func (s *Stream) GoOffAir(session *Session, events *EventBatch) {
	wasActive := s.IsActive
	s.IsActive, s.IsHealthy, s.Issues = false, nil, nil
	session.IsHealthy, session.Issues = nil, nil
	s.SetPullIssue(s.PullIssue)
	for _, c := range []*Counters{&s.Counters, &session.Counters} {
		c.IngestRate, c.OutgoingRate = 0, 0
	}
	if wasActive {
		events.session(StreamIdle, s, *session, "")
	}
}

// EndSession records that the session has ended for good. A session without media has no recording.
func (s *Stream) EndSession(session *Session, events *EventBatch) {
	s.GoOffAir(session, events)
	session.Unrecorded = session.Unrecorded || session.Record && session.SourceBytes == 0
	if session.Recorded() {
		events.session(RecordingWaitingEvent, s, *session, session.ID)
	}
}

// ApplyBeat takes over a beat of the session: its counters, by whose growth those of the stream grow
// too, and, while the stream is active, its health.
func (s *Stream) ApplyBeat(session *Session, b Beat) {
	s.LastSeen, session.LastSeen = max(s.LastSeen, b.SeenAt), max(session.LastSeen, b.SeenAt)
	s.grow(session.growTo(b.Counters))
	session.End, session.Target = max(session.End, b.End), cmp.Or(session.Target, b.Target)
	session.RecordedBytes = max(session.RecordedBytes, b.RecordedBytes)
	session.Received.Add(b.Received)
	if !s.IsActive {
		return
	}
	s.setHealth(session, b.Issues)
	for _, c := range []*Counters{&s.Counters, &session.Counters} {
		c.IngestRate, c.OutgoingRate = b.Counters.IngestRate, b.Counters.OutgoingRate
	}
}

func (s *Stream) setHealth(session *Session, issues []string) {
	if s.PullIssue != "" {
		issues = append(slices.Clip(issues), s.PullIssue)
	}
	s.IsHealthy, s.Issues = new(len(issues) == 0), issues
	session.IsHealthy, session.Issues = new(len(issues) == 0), issues
}

// growTo raises the sums to those of n and returns by how much they have grown. It ignores the
// rates.
func (c *Counters) growTo(n Counters) (by Counters) {
	return Counters{
		SourceSegments:             growTo(&c.SourceSegments, n.SourceSegments),
		TranscodedSegments:         growTo(&c.TranscodedSegments, n.TranscodedSegments),
		SourceSegmentsDuration:     growTo(&c.SourceSegmentsDuration, n.SourceSegmentsDuration),
		TranscodedSegmentsDuration: growTo(&c.TranscodedSegmentsDuration, n.TranscodedSegmentsDuration),
		SourceBytes:                growTo(&c.SourceBytes, n.SourceBytes),
		TranscodedBytes:            growTo(&c.TranscodedBytes, n.TranscodedBytes),
	}
}

func growTo[T int64 | float64](sum *T, to T) (by T) {
	by = max(0, to-*sum)
	*sum = max(*sum, to)
	return by
}

// grow adds to the sums.
func (c *Counters) grow(by Counters) {
	c.SourceSegments += by.SourceSegments
	c.TranscodedSegments += by.TranscodedSegments
	c.SourceSegmentsDuration += by.SourceSegmentsDuration
	c.TranscodedSegmentsDuration += by.TranscodedSegmentsDuration
	c.SourceBytes += by.SourceBytes
	c.TranscodedBytes += by.TranscodedBytes
}
