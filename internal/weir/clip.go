package weir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ClipSource is what a clip is cut from: a session, whose times are those of the wall clock, or an asset,
// whose times count from its start. A recording is an asset with a session.
type ClipSource struct {
	SessionID string
	AssetID   string
}

// ClipRange is a range of a source without a gap. Times are milliseconds: of the wall clock since 1970, or
// from the start of an asset.
type ClipRange struct {
	Start, End float64
}

// NewClip is the body that cuts a clip.
type NewClip struct {
	PlaybackID string     `json:"playbackId"`
	StartTime  float64    `json:"startTime"` // milliseconds
	EndTime    *float64   `json:"endTime"`   // nil = the end, or now
	Name       string     `json:"name"`
	SessionID  string     `json:"sessionId"` // "" = the session on air, or the latest
	CreatorID  *CreatorID `json:"creatorId"` // nil = that of the content
	C2PA       bool       `json:"c2pa"`      // sign it; a clip of signed content is always signed
	// PlaybackToken admits a viewer who has no API key.
	PlaybackToken Secret `json:"playbackToken"`
}

const (
	// MaxClips is how many clips of an account may be in progress at once, without those of viewers.
	MaxClips = 5
	// maxViewersClips is how many clips of viewers may be in progress at once, of the content with a playback
	// id, and maxViewerClips how many of these for viewers of one network.
	maxViewersClips = 20
	maxViewerClips  = 2
	// clipAgain is when a viewer may try again.
	clipAgain = 10 * time.Second
	// MaxPublicClip is the maximum duration of a clip of a viewer without an API key.
	MaxPublicClip = 10 * time.Minute

	// Times of at least ClipWall are of the wall clock: as milliseconds since 1970 it is a day in 1973, from
	// the start of a recording three years.
	ClipWall = 1e11
	// Times between clipSeconds and ClipWall are seconds since 1970, sent by mistake.
	clipSeconds = 1e9
	// clipAhead is how far in the future the clip of a session on air may end.
	clipAhead = 30 * time.Second
	// ClipRounding is how far a time may be outside a range, in milliseconds. Players round twice: the
	// date of a segment, and what they add to it.
	ClipRounding = 2
)

// CheckClips returns an error if an account may not have so many clips in progress.
func CheckClips(inProgress int) error {
	if inProgress > MaxClips {
		return Errorf(Denied, "Too many clips are being processed.")
	}
	return nil
}

// CheckClipsOfViewers returns an error if viewers may not have so many clips of something in progress, all of
// them or those of one network.
func CheckClipsOfViewers(ofAll, ofNetwork int) error {
	switch {
	case ofNetwork > maxViewerClips:
		return TooMany(clipAgain, "%d clips of this content are being made for this address; try again when one is ready", maxViewerClips)
	case ofAll > maxViewersClips:
		return TooMany(clipAgain, "viewers have too many clips of this content made at this moment; try again in %d seconds", int(clipAgain.Seconds()))
	}
	return nil
}

// ClipOf is what the rules of clips need to know about the content that a clip is cut from.
type ClipOf struct {
	PlaybackID        string // as in the request
	UserID, ProjectID string
	CreatorID         *CreatorID
	Policy            *PlaybackPolicy
	Profiles          []Profile
	Session           *Session // nil = an asset that is no recording
	AssetID           string   // "" = the session is on air
	FromStart         bool     // times may also count from the start
	Signed            bool     // it is only played signed, or will be
}

// ClipOfSession returns the session of a stream as the source of clips. recording is its asset; nil = the
// session is on air.
func ClipOfSession(s *Stream, session *Session, recording *Asset) ClipOf {
	of := ClipOf{
		PlaybackID: s.PlaybackID, UserID: s.UserID, ProjectID: s.ProjectID, CreatorID: s.CreatorID, Policy: s.PlaybackPolicy, Session: session,
		Signed: session.C2PA,
	}
	if session.RecordingSpec != nil {
		of.Profiles = session.RecordingSpec.Profiles
	}
	if recording != nil {
		// The policy of the recording counts, because it may have become stricter than that of the stream.
		of.AssetID, of.Policy, of.CreatorID, of.Profiles = recording.ID, recording.PlaybackPolicy, recording.CreatorID, recording.Profiles
		of.Signed = recording.Sign
	}
	return of
}

// ClipOfAsset returns an asset as the source of clips. session is that of a recording, else nil.
func ClipOfAsset(a *Asset, session *Session) ClipOf {
	return ClipOf{
		PlaybackID: a.PlaybackID, UserID: a.UserID, ProjectID: a.ProjectID, CreatorID: a.CreatorID, Policy: a.PlaybackPolicy, Profiles: a.Profiles,
		Session: session, AssetID: a.ID, FromStart: true, Signed: a.Sign,
	}
}

// OnAir reports whether more of the content is to come.
func (of *ClipOf) OnAir() bool { return of.AssetID == "" }

// wall reports whether a time is one of the wall clock.
func (of *ClipOf) wall(time float64) bool {
	return of.Session != nil && (!of.FromStart || time >= ClipWall)
}

// Source returns the source whose ranges Window needs.
func (n NewClip) Source(of ClipOf) ClipSource {
	source := ClipSource{AssetID: of.AssetID}
	if of.wall(n.StartTime) {
		source.SessionID = of.Session.ID
	}
	return source
}

// Window returns the range of the clip, or an error that says which range exists. exists has the ranges of
// Source, in order. longest is the maximum duration; 0 = there is none.
func (n NewClip) Window(of ClipOf, exists []ClipRange, longest time.Duration, now time.Time) (ClipRange, error) {
	wall := of.wall(n.StartTime)
	refuse := func(format string, args ...any) (ClipRange, error) {
		return ClipRange{}, Errorf(Invalid, "%s", fmt.Sprintf(format, args...)+"; "+clipRanges(exists, wall))
	}
	if len(exists) == 0 {
		return ClipRange{}, Errorf(Invalid, "this content has no media yet; try again when it plays")
	}
	last := exists[len(exists)-1].End
	window := ClipRange{Start: n.StartTime, End: last}
	if n.EndTime != nil {
		window.End = *n.EndTime
	}
	for _, t := range []struct {
		name string
		time float64
	}{{"startTime", window.Start}, {"endTime", window.End}} {
		switch {
		case math.IsNaN(t.time) || math.IsInf(t.time, 0):
			return refuse("%s is not a number", t.name)
		case t.time < 0:
			return refuse("%s must not be negative", t.name)
		case of.Session != nil && t.time >= clipSeconds && t.time < ClipWall && (wall || t.time > last+ClipRounding):
			return refuse("times are milliseconds, and %s %s looks like seconds", t.name, clipNumber(t.time))
		case of.FromStart && of.wall(t.time) != wall:
			return refuse("startTime and endTime must both be Unix milliseconds or both count from the start")
		}
	}
	switch {
	case n.EndTime != nil && window.End <= window.Start:
		return ClipRange{}, Errorf(Invalid, "endTime must occur after startTime")
	case n.EndTime != nil && window.End-window.Start < 1:
		return ClipRange{}, Errorf(Invalid, "a clip must be at least 1 ms long")
	}
	if err := of.checkStart(window.Start, exists, wall, refuse); err != nil {
		return ClipRange{}, err
	}
	if err := of.checkEnd(window.End, exists, wall, now, refuse); err != nil {
		return ClipRange{}, err
	}
	if window.End-window.Start < 1 {
		return refuse("startTime is at the end")
	}
	if longest > 0 && window.End-window.Start > float64(longest.Milliseconds()) {
		return ClipRange{}, Errorf(Invalid, "a clip may be at most %s long", clipDuration(longest))
	}
	return window, nil
}

// refusal makes the error for a window.
type refusal func(format string, args ...any) (ClipRange, error)

func (of *ClipOf) checkStart(start float64, exists []ClipRange, wall bool, refuse refusal) (err error) {
	first, last, at := exists[0].Start, exists[len(exists)-1].End, clipTime(start, wall)
	switch {
	case start < first-ClipRounding && wall && start >= float64(of.Session.CreatedAt):
		_, err = refuse("startTime %s is no longer kept", at)
	case start < first-ClipRounding && wall:
		_, err = refuse("the stream was not on air at startTime %s", at)
	case start < first-ClipRounding:
		_, err = refuse("startTime %s is before the start", at)
	case start >= last && of.OnAir():
		_, err = refuse("startTime %s has not been on air yet", at)
	case start >= last:
		_, err = refuse("startTime %s is after the end", at)
	case !inRange(start, exists):
		_, err = refuse("the stream was interrupted at startTime %s", at)
	}
	return err
}

func (of *ClipOf) checkEnd(end float64, exists []ClipRange, wall bool, now time.Time, refuse refusal) (err error) {
	last, at := exists[len(exists)-1].End, clipTime(end, wall)
	switch {
	case end > last+ClipRounding && !of.OnAir():
		_, err = refuse("endTime %s is after the end", at)
	case end > max(last, float64(now.UnixMilli()))+float64(clipAhead.Milliseconds()):
		_, err = refuse("endTime %s is more than %d s in the future", at, int(clipAhead.Seconds()))
	case end > last:
	case !inRange(end, exists):
		_, err = refuse("the stream was interrupted at endTime %s", at)
	}
	return err
}

// contains reports whether a time is in the range, or at one of its ends.
func (r ClipRange) contains(time float64) bool {
	return time >= r.Start-ClipRounding && time <= r.End+ClipRounding
}

func inRange(time float64, exists []ClipRange) bool {
	for _, r := range exists {
		if r.contains(time) {
			return true
		}
	}
	return false
}

// shownRanges is how many ranges an error lists.
const shownRanges = 4

// clipRanges says what exists.
func clipRanges(exists []ClipRange, wall bool) string {
	shown := exists
	if len(shown) > shownRanges { // the first ones and the last one
		shown = append(append([]ClipRange{}, exists[:shownRanges-1]...), exists[len(exists)-1])
	}
	parts := make([]string, len(shown))
	for i, r := range shown {
		parts[i] = clipTime(r.Start, wall) + " to " + clipTime(r.End, wall)
	}
	if n := len(exists) - len(shown); n > 0 {
		parts[len(parts)-1] = fmt.Sprintf("%d more, and %s", n, parts[len(parts)-1])
	}
	text := strings.Join(parts, ", ")
	if wall {
		return "available: " + text
	}
	return "available: " + text + " ms from the start"
}

// lastDate is the end of the year 9999, in milliseconds.
const lastDate = 253402300800000

// clipTime writes a time, with its date if it is one of the wall clock.
func clipTime(t float64, wall bool) string {
	if !wall || t < 0 || t >= lastDate {
		return clipNumber(t)
	}
	return clipNumber(t) + " (" + time.UnixMilli(int64(t)).UTC().Format("2006-01-02T15:04:05.000Z") + ")"
}

// clipNumber writes milliseconds with at most three digits after the point.
func clipNumber(t float64) string {
	if math.Abs(t) >= 1e15 {
		return strconv.FormatFloat(t, 'g', -1, 64)
	}
	return strconv.FormatFloat(math.Round(t*1000)/1000, 'f', -1, 64)
}

// clipDuration writes a duration without units that are zero.
func clipDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Clip returns the asset of a clip and the task that cuts it. They belong to the owner of the content, and
// the clip has the playback policy of the content. caller is nil for a viewer without an API key.
func (n NewClip) Clip(of ClipOf, window ClipRange, caller *Caller, now time.Time) (Asset, Task) {
	id := NewID()
	a := Asset{
		ID: id, Name: n.Name, PlaybackID: NewPlaybackID(id), UserID: of.UserID, ProjectID: of.ProjectID, CreatedAt: At(now),
		CreatorID: of.CreatorID, PlaybackPolicy: of.Policy, Profiles: of.Profiles, Sign: n.C2PA && caller != nil || of.Signed,
		Source: AssetSource{Type: SourceClip, PlaybackID: of.PlaybackID}, Status: AssetStatus{Phase: AssetWaiting, UpdatedAt: At(now)},
	}
	if a.Name == "" {
		a.Name = "clip-" + a.PlaybackID
	}
	if n.CreatorID != nil && caller != nil {
		a.CreatorID = n.CreatorID
	}
	if caller != nil && caller.UserID == of.UserID {
		a.CreatedByTokenName = caller.TokenName
	}
	params := &ClipParams{ClipStrategy: &ClipStrategy{StartTime: window.Start, EndTime: window.End, PlaybackID: of.PlaybackID}, InputID: of.AssetID, C2PA: a.Sign}
	if of.Session != nil { // a recording has the id of its session
		a.Source.SessionID, params.SessionID = of.Session.ID, of.Session.ID
	} else {
		a.Source.AssetID = of.AssetID
	}
	t := newTask(TaskClip, &Caller{UserID: of.UserID, ProjectID: of.ProjectID}, now)
	t.InputAssetID, t.OutputAssetID, t.Params.Clip = of.AssetID, id, params
	t.Queue(now)
	return a, t
}

// MayClip reports whether viewers without an API key may clip a stream. setting is that of the server, which
// counts unless the stream has its own.
func (s *Stream) MayClip(setting bool) bool {
	if s.PublicClips != nil {
		return *s.PublicClips
	}
	return setting
}
