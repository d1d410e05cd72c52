package weir

import (
	"slices"
	"time"
)

// OnAirLease is how long a node that carries streams may be silent before the others
// take them off the air.
const OnAirLease = 10 * time.Second

// unheard is how many segments and discontinuities a node may have shown to viewers
// since it last said where it is. Whoever ends a session in its place leaves so many
// numbers out, because numbers that viewers have seen must not come again.
const unheard = 16

// OnAir says which node carries a stream, and with which session. It stays with the
// stream from session to session.
//
// A session outlives the connection of its encoder: while Connected is false it waits
// for the encoder to come back, until ClosesAt. Whoever carries it is known by its
// epoch: every new owner gets a higher one, and what is written with an older epoch is
// refused.
type OnAir struct {
	StreamID  string
	SessionID string // "" = none is open
	Node      string
	Epoch     int64
	Connected bool // an encoder sends, or has been away only for moments
	Timeout   time.Duration
	SeenAt    Millis // when the node last said that it carries the stream
	ExpiresAt Millis // from then on others take it for dead
	ClosesAt  Millis // from then on an encoder begins a new session
	Ending    Ending // why the session must end; "" = it need not

	Sequence, Discontinuities         int64 // the first numbers of the session
	NextSequence, NextDiscontinuities int64 // that nobody has seen yet, as the node last said

	Pushes []TargetHealth // to multistream targets, as the node last said
}

// Ending is why a node must end a session although its encoder may go on sending.
type Ending string

// The reasons. With all but the first the session is still the node's: it finishes
// the media and closes the session.
const (
	EndTakenOver  Ending = "taken over" // another encoder or another node has the stream, or the session is closed
	EndTerminated Ending = "terminated"
	EndSuspended  Ending = "suspended"
	EndDeleted    Ending = "deleted"
	EndBlocked    Ending = "account blocked"
	EndTimeout    Ending = "timeout" // the encoder did not come back in time
)

// Beat is what a node says of a session that it carries, every two seconds and at the
// end. All of it is absolute, so that a beat that is written twice counts once.
type Beat struct {
	StreamID string
	Epoch    int64
	SeenAt   Millis         // when media came last; 0 = none did yet
	Counters Counters       // of the whole session; the rates are those of now
	Issues   []string       // what is not well, for people; empty = healthy
	Samples  []HealthSample // those that may not be written yet

	NextSequence, NextDiscontinuities int64 // that viewers have not seen yet

	End time.Duration // of what there is of the session, on its timeline

	Pushes []TargetHealth // to multistream targets
}

// Take gives the stream to a node whose encoder has come.
func (a *OnAir) Take(node string, timeout time.Duration, now time.Time) {
	a.Node, a.Connected, a.Timeout = node, true, timeout
	a.Epoch++
	a.ClosesAt = At(now.Add(OnAirLease + timeout))
	a.Renew(now)
}

// Resume gives the stream to a new life of the node that had it. A session whose time
// is not over gets it anew, because its encoder could not use it meanwhile.
func (a *OnAir) Resume(now time.Time) {
	if !a.Connected && !a.Overdue(now) {
		a.ClosesAt = At(now.Add(a.Timeout))
	}
	a.Epoch++
	a.Renew(now)
}

// Reconnect puts a stream back that was taken off the air while its node could not say
// that it is alive. Nobody else has taken it since, or the epoch would be another.
func (a *OnAir) Reconnect(now time.Time) {
	a.Connected = true
	a.Renew(now)
}

// Renew says that the node is alive. A session whose time is over stays so.
func (a *OnAir) Renew(now time.Time) {
	if a.Connected && !a.Overdue(now) {
		a.ClosesAt = At(now.Add(OnAirLease + a.Timeout))
	}
	a.SeenAt, a.ExpiresAt = At(now), At(now.Add(OnAirLease))
}

// Release notes that the encoder is gone.
func (a *OnAir) Release(now time.Time) {
	if a.Connected {
		a.Connected, a.SeenAt, a.ClosesAt = false, At(now), At(now.Add(a.Timeout))
	}
}

// Expire takes the stream off the air because its node is silent. The epoch stays: as
// long as nobody takes the stream, the node may come back.
func (a *OnAir) Expire() { a.Connected = false }

// Revived reports whether media has come since a silent node was taken off the air.
func (a *OnAir) Revived(b Beat, now time.Time) bool {
	return !a.Connected && b.SeenAt > a.SeenAt && !a.Overdue(now)
}

// Overdue reports whether the time of the session is over.
func (a *OnAir) Overdue(now time.Time) bool { return a.ClosesAt <= At(now) }

// Begin opens a session, whose numbers go on from those of the one before.
func (a *OnAir) Begin(sessionID string) {
	a.SessionID, a.Ending = sessionID, ""
	a.Sequence, a.Discontinuities = a.NextSequence, a.NextDiscontinuities
}

// Close ends the session.
func (a *OnAir) Close() { a.SessionID, a.Connected, a.Ending, a.Pushes = "", false, "", nil }

// Leap leaves numbers out that the node may have used without having said so.
func (a *OnAir) Leap() {
	a.NextSequence += unheard
	a.NextDiscontinuities += unheard
}

// GoesOn reports whether an encoder that comes now goes on with the session. It does
// not when the owner has changed since whether the stream is recorded.
func (a *OnAir) GoesOn(session *Session, record bool, now time.Time) bool {
	return a.Ending == "" && !a.Overdue(now) && session.Record == record
}

// MustEnd returns why the session must end, owner being the account of the stream;
// "" = it need not.
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

// Follow takes over what a beat says of pushes, and its numbers, which never fall.
func (a *OnAir) Follow(b Beat) {
	a.NextSequence = max(a.NextSequence, b.NextSequence)
	a.NextDiscontinuities = max(a.NextDiscontinuities, b.NextDiscontinuities)
	a.Pushes = b.Pushes
}

// Admit says why an encoder can't publish to the stream, if so; owner is its account,
// nil when that is gone.
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

// EndedBy returns why a change of the stream ends its broadcast; "" = it does not.
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
		ID: NewID(), Kind: "session", Name: "video+" + s.PlaybackID, ParentID: s.ID, UserID: s.UserID, ProjectID: s.ProjectID,
		PlaybackID: s.PlaybackID, CreatedAt: At(now), Record: s.Record,
	}
}

// GoOnAir notes that the encoder of a session sends, for the first time or again, and
// returns the events that tell of it.
func (s *Stream) GoOnAir(session *Session, now time.Time) ([]Event, error) {
	var told teller
	begins, wasActive := session.LastSeen == 0, s.IsActive
	s.IsActive, s.LastSeen = true, max(s.LastSeen, At(now))
	s.setHealth(session, nil)
	session.LastSeen = max(session.LastSeen, At(now))
	session.Profiles, session.RecordingSpec = s.Profiles, s.RecordingSpec
	if !wasActive {
		told.of(StreamStarted, s, session, "", now)
	}
	if begins && session.Record {
		told.of(RecordingStartedEvent, s, session, "", now)
	}
	return told.events, told.err
}

// GoOffAir notes that the encoder has been away for too long, and returns the events
// that tell of it: none when that was known already.
func (s *Stream) GoOffAir(session *Session, now time.Time) ([]Event, error) {
	var told teller
	wasActive := s.IsActive
	s.IsActive, s.IsHealthy, s.Issues = false, nil, nil
	session.IsHealthy, session.Issues = nil, nil
	s.SetPullIssue(s.PullIssue)
	for _, c := range []*Counters{&s.Counters, &session.Counters} {
		c.IngestRate, c.OutgoingRate = 0, 0
	}
	if wasActive {
		told.of(StreamIdle, s, session, "", now)
	}
	return told.events, told.err
}

// EndSession notes that nobody goes on with the session any more, and returns the
// events that tell of it. A session without media has no recording.
func (s *Stream) EndSession(session *Session, now time.Time) ([]Event, error) {
	events, err := s.GoOffAir(session, now)
	told := teller{events, err}
	session.Unrecorded = session.Unrecorded || session.Record && session.SourceBytes == 0
	if session.Recorded() {
		told.of(RecordingWaitingEvent, s, session, session.ID, now)
	}
	return told.events, told.err
}

// Follow takes over what a beat says of the session: its counters, by how much those
// of the stream have grown, and, while the stream is active, how it does.
func (s *Stream) Follow(session *Session, b Beat) {
	s.LastSeen, session.LastSeen = max(s.LastSeen, b.SeenAt), max(session.LastSeen, b.SeenAt)
	s.grow(session.growTo(b.Counters))
	session.End = max(session.End, b.End)
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

// growTo sets the sums to those of n, none lower than it was, and returns by how much
// they have grown. The rates are not looked at.
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

// teller puts events together until one can't be made.
type teller struct {
	events []Event
	err    error
}

// of tells of a stream and a session as they are now.
func (t *teller) of(name EventName, s *Stream, session *Session, assetID string, now time.Time) {
	if t.err != nil {
		return
	}
	payload := struct {
		Session Session `json:"session"`
	}{*session}
	payload.Session.SetRecording(nil, At(now))
	payload.Session.AssetID = assetID
	e, err := NewStreamEvent(name, *s, payload, now)
	if err != nil {
		t.err = err
		return
	}
	t.events = append(t.events, e)
}
