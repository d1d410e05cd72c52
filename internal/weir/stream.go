package weir

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stream is an ingest point for live video. It outlives its broadcasts: each of those is a
// [Session].
type Stream struct {
	ID                 string          `json:"id"`
	Kind               string          `json:"kind"`
	Name               string          `json:"name"`
	UserID             string          `json:"userId"`
	ProjectID          string          `json:"projectId"`
	CreatorID          *CreatorID      `json:"creatorId,omitempty"`
	UserTags           json.RawMessage `json:"userTags,omitempty"`
	CreatedAt          Millis          `json:"createdAt"`
	CreatedByTokenName string          `json:"createdByTokenName,omitempty"`
	PlaybackID         string          `json:"playbackId"`
	IsActive           bool            `json:"isActive"`
	IsHealthy          *bool           `json:"isHealthy,omitempty"`
	Issues             []string        `json:"issues,omitempty"`
	LastSeen           Millis          `json:"lastSeen"`
	LastTerminatedAt   *Millis         `json:"lastTerminatedAt"`
	Suspended          bool            `json:"suspended"`
	Record             bool            `json:"record"`
	RecordingSpec      *RecordingSpec  `json:"recordingSpec,omitempty"`
	C2PA               bool            `json:"c2pa,omitempty"` // recordings are signed, from the next session on
	Profiles           []Profile       `json:"profiles"`
	Multistream        Multistream     `json:"multistream"`
	PlaybackPolicy     *PlaybackPolicy `json:"playbackPolicy,omitempty"`
	PublicClips        *bool           `json:"publicClips,omitempty"`  // viewers may clip it; nil = as the server's setting says
	PartDuration       *float64        `json:"partDuration,omitempty"` // of low latency, in seconds; 0 = no parts; nil = as the server's setting says
	Renditions         struct{}        `json:"renditions"`             // always empty; SDKs know it
	Counters
	Deleted       bool   `json:"-"`
	ObjectStoreID string `json:"-"`
	PullIssue     string `json:"-"` // why the pull source fails; shown among Issues

	StreamKey Secret `json:"-"`
	Pull      *Pull  `json:"-"` // sealed: its URL and headers may carry credentials
}

// Counters count the media of a stream or a session so far.
type Counters struct {
	SourceSegments             int64   `json:"sourceSegments"`
	TranscodedSegments         int64   `json:"transcodedSegments"`
	SourceSegmentsDuration     float64 `json:"sourceSegmentsDuration"`
	TranscodedSegmentsDuration float64 `json:"transcodedSegmentsDuration"`
	SourceBytes                int64   `json:"sourceBytes"`
	TranscodedBytes            int64   `json:"transcodedBytes"`
	IngestRate                 float64 `json:"ingestRate,omitempty"`
	OutgoingRate               float64 `json:"outgoingRate,omitempty"`
}

// RecordingSpec says which renditions a recording gets.
type RecordingSpec struct {
	Profiles []Profile `json:"profiles,omitzero"` // empty = only the source; nil = the default ladder of assets
}

// Pull is the source that weir pulls a stream from.
type Pull struct {
	Source   string            `json:"source"`
	Headers  map[string]string `json:"headers,omitempty"`
	IsMobile json.RawMessage   `json:"isMobile,omitempty"` // 0, 1, 2 or a boolean
	Location *Location         `json:"location,omitempty"`
}

// Location is a point on the map.
type Location struct {
	Lat float64 `json:"lat"`
	Lon float64 `json:"lon"`
}

// Multistream lists the targets that a stream is pushed to.
type Multistream struct {
	Targets []TargetRef `json:"targets"`
}

// TargetRef names a target and the rendition that is pushed to it.
type TargetRef struct {
	ID        string      `json:"id,omitempty"`
	Profile   string      `json:"profile"`
	VideoOnly bool        `json:"videoOnly,omitempty"`
	Spec      *TargetSpec `json:"spec,omitempty"` // only in requests: creates a new target
}

// TargetSpec describes a target that is created together with the reference to it.
type TargetSpec struct {
	Name string `json:"name,omitempty"`
	URL  string `json:"url"`
}

// SourceProfile is the name of the rendition that is the source itself.
const SourceProfile = "source"

// The limits of the duration of parts, in seconds. Shorter ones would not be equally long at all
// usual frame rates; longer ones are segments.
const (
	MinPartDuration = 0.2
	MaxPartDuration = 1.0
)

// ValidPartDuration reports whether parts can be so many seconds long; 0 = there are none.
func ValidPartDuration(seconds float64) bool {
	return seconds == 0 || seconds >= MinPartDuration && seconds <= MaxPartDuration
}

// NewStream is the body that creates a stream. openapi.yaml accepts members that old SDKs send and
// that weir ignores.
type NewStream struct {
	Name           string          `json:"name"`
	Profiles       *[]Profile      `json:"profiles"`
	Record         bool            `json:"record"`
	RecordingSpec  *RecordingSpec  `json:"recordingSpec"`
	C2PA           bool            `json:"c2pa"`
	Multistream    *Multistream    `json:"multistream"`
	PlaybackPolicy *PlaybackPolicy `json:"playbackPolicy"`
	CreatorID      *CreatorID      `json:"creatorId"`
	UserTags       json.RawMessage `json:"userTags"`
	Pull           *Pull           `json:"pull"`
	ObjectStoreID  string          `json:"objectStoreId"`
	PublicClips    *bool           `json:"publicClips"`
	PartDuration   *float64        `json:"partDuration"`
}

// Stream returns the stream that the body describes, without its multistream targets: they need the
// store.
func (n NewStream) Stream(caller *Caller, now time.Time) (Stream, error) {
	id := NewID()
	s := Stream{
		ID: id, Kind: "stream", Name: n.Name, UserID: caller.UserID, ProjectID: caller.ProjectID,
		CreatorID: n.CreatorID, UserTags: compact(n.UserTags), CreatedAt: At(now), CreatedByTokenName: caller.TokenName,
		PlaybackID: NewPlaybackID(id), StreamKey: NewStreamKey(id), Record: n.Record, RecordingSpec: n.RecordingSpec, C2PA: n.C2PA,
		Profiles: DefaultProfiles(), Multistream: Multistream{Targets: []TargetRef{}}, PlaybackPolicy: n.PlaybackPolicy,
		Pull: n.Pull, ObjectStoreID: n.ObjectStoreID, PublicClips: n.PublicClips, PartDuration: n.PartDuration,
	}
	if n.Profiles != nil {
		s.Profiles = *n.Profiles
	}
	return s, s.validate()
}

// StreamPatch is the body that changes a stream. A nil member is left as it is.
type StreamPatch struct {
	Name           *string                  `json:"name"`
	CreatorID      *CreatorID               `json:"creatorId"`
	Record         *bool                    `json:"record"`
	Suspended      *bool                    `json:"suspended"`
	Multistream    *Multistream             `json:"multistream"`
	PlaybackPolicy Nullable[PlaybackPolicy] `json:"playbackPolicy"`
	Profiles       Nullable[[]Profile]      `json:"profiles"`
	RecordingSpec  *RecordingSpec           `json:"recordingSpec"`
	C2PA           *bool                    `json:"c2pa"`
	UserTags       json.RawMessage          `json:"userTags"`
	PublicClips    Nullable[bool]           `json:"publicClips"`
	PartDuration   Nullable[float64]        `json:"partDuration"`
}

// Apply changes s as the patch says. Multistream is left to the caller: it needs the store, and
// must follow Apply, so that the references are checked against the new profiles.
func (p StreamPatch) Apply(s *Stream) error {
	if s.IsActive && p.Record != nil && *p.Record != s.Record {
		return Errorf(Refused, "cannot change 'record' field while stream is active")
	}
	if s.IsActive && p.Profiles.Set {
		return Errorf(Refused, "cannot change 'profiles' field while stream is active")
	}
	set(&s.Name, p.Name)
	set(&s.Suspended, p.Suspended)
	set(&s.C2PA, p.C2PA)
	if p.CreatorID != nil {
		s.CreatorID = p.CreatorID
	}
	if p.Record != nil {
		s.Record = *p.Record
		if !s.Record && p.RecordingSpec == nil {
			s.RecordingSpec = nil
		}
	}
	if p.RecordingSpec != nil {
		s.RecordingSpec = p.RecordingSpec
	}
	if p.PlaybackPolicy.Set {
		s.PlaybackPolicy = p.PlaybackPolicy.Value
	}
	if p.Profiles.Set {
		s.Profiles = DefaultProfiles()
		if p.Profiles.Value != nil {
			s.Profiles = *p.Profiles.Value
		}
	}
	if p.UserTags != nil {
		s.UserTags = compact(p.UserTags)
	}
	if p.PublicClips.Set {
		s.PublicClips = p.PublicClips.Value
	}
	if p.PartDuration.Set {
		s.PartDuration = p.PartDuration.Value
	}
	return s.validate()
}

// completeLive adds what SDKs need of the profiles of streams: a name and a frame rate.
func completeLive(profiles []Profile) {
	for i := range profiles {
		p := &profiles[i]
		if p.Name == "" {
			p.Name = strconv.Itoa(p.Height) + "p"
		}
		if p.FPS == nil {
			p.FPS = new(0)
		}
	}
}

// validate checks what needs no store, in the order of the contract.
func (s *Stream) validate() error {
	if s.RecordingSpec != nil && !s.Record {
		return Errorf(Refused, "recordingSpec is only supported with record=true")
	}
	if err := s.PlaybackPolicy.validate(); err != nil {
		return err
	}
	if s.PartDuration != nil && !ValidPartDuration(*s.PartDuration) {
		return Errorf(Refused, "partDuration: must be 0, for no parts, or from %g to %g seconds", MinPartDuration, MaxPartDuration)
	}
	completeLive(s.Profiles)
	if err := checkProfiles(Refused, s.Profiles); err != nil {
		return err
	}
	if s.RecordingSpec != nil {
		if err := CheckFileProfiles(s.RecordingSpec.Profiles); err != nil {
			return err
		}
	}
	if len(s.UserTags) > 2048 {
		return Errorf(Refused, "userTags object is too large. Max size is 2048 characters")
	}
	return nil
}

// Terminate records that the owner ended the broadcast.
func (s *Stream) Terminate(now time.Time) error {
	if s.LastTerminatedAt != nil && now.Sub(s.LastTerminatedAt.Time()) < 5*time.Second {
		return TooMany(5*time.Second, "too many terminate requests")
	}
	s.LastTerminatedAt = new(At(now))
	return nil
}

// CheckTargets checks references against the profiles of the stream. known reports whether a target
// of the stream's owner has the id; references with a spec have no id yet.
func (s *Stream) CheckTargets(refs []TargetRef, known func(id string) bool) error {
	type key struct{ id, profile string }
	seen := map[key]bool{}
	for _, ref := range refs {
		if !s.hasProfile(ref.Profile) {
			return Errorf(Refused, "multistream target profile not found: %q. available: %s", ref.Profile, s.profileNames())
		}
		if (ref.ID == "") == (ref.Spec == nil) {
			return Errorf(Refused, `multistream target must have either an "id" or a "spec"`)
		}
		if ref.ID == "" {
			if _, err := targetHost(ref.Spec.URL); err != nil {
				return err
			}
			continue
		}
		if !known(ref.ID) {
			return Errorf(Refused, "multistream target not found: %q", ref.ID)
		}
		k := key{ref.ID, ref.Profile}
		if seen[k] {
			return Errorf(Refused, "multistream target {id,profile} must be unique")
		}
		seen[k] = true
	}
	return nil
}

func (s *Stream) hasProfile(name string) bool {
	return name == SourceProfile || slices.ContainsFunc(s.Profiles, func(p Profile) bool { return p.Name == name })
}

func (s *Stream) profileNames() string {
	var names []string
	for _, p := range s.Profiles {
		names = append(names, fmt.Sprintf("%q", p.Name))
	}
	return "[" + strings.Join(append(names, `"source"`), ",") + "]"
}

// RemoveTarget removes every reference to a target.
func (s *Stream) RemoveTarget(targetID string) {
	s.Multistream.Targets = slices.DeleteFunc(s.Multistream.Targets, func(r TargetRef) bool { return r.ID == targetID })
}
