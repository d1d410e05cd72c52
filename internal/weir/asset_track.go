package weir

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// AssetTrack is a track of text or audio that was added to an asset, or that was in its source
// beside the video. The renditions and the audio that a source is encoded to are not among them.
type AssetTrack struct {
	ID             string      `json:"id"`
	Type           TrackType   `json:"type"`
	Kind           TextKind    `json:"kind,omitempty"`     // of text
	Language       string      `json:"language,omitempty"` // a tag of BCP 47
	Name           string      `json:"name"`
	Default        bool        `json:"default"`        // it is shown, or plays, unless the viewer chooses
	Forced         bool        `json:"forced"`         // text for those who understand the audio: foreign speech, signs
	ClosedCaptions bool        `json:"closedCaptions"` // text for those who do not hear: with noises, and who speaks
	CreatedAt      Millis      `json:"createdAt"`
	Status         TrackStatus `json:"status"`
	Cues           int         `json:"cues,omitempty"` // of text
	SHA256         string      `json:"sha256,omitempty"`
	URL            string      `json:"url,omitempty"` // of the track as a file: WebVTT

	// These fields are stored and not shown.
	Object  string      `json:"-"` // below the folder of the asset; "" = there is none yet
	Size    int64       `json:"-"` // of that
	Start   float64     `json:"-"` // the time of its cues at which the asset begins, in seconds: of clips
	Charset string      `json:"-"` // of the file that is to be fetched
	Source  TrackSource `json:"-"` // sealed
}

// TrackSource is where the file of a track is to be fetched from.
type TrackSource struct {
	URL string `json:"url,omitempty"`
}

// TrackType is what a track carries.
type TrackType string

// The types of tracks that can be added.
const (
	TextTrack  TrackType = "text"
	AudioTrack TrackType = "audio"
)

// TextKind is what a text is for.
type TextKind string

// The kinds of text.
const (
	Subtitles TextKind = "subtitles" // also captions
	Chapters  TextKind = "chapters"
)

// TrackPhase is the state of a track.
type TrackPhase string

// The phases of a track.
const (
	TrackUploading  TrackPhase = "uploading" // its file is to be sent
	TrackProcessing TrackPhase = "processing"
	TrackReady      TrackPhase = "ready"
	TrackFailed     TrackPhase = "failed"
)

// TrackStatus is the state of a track, and since when.
type TrackStatus struct {
	Phase        TrackPhase `json:"phase"`
	UpdatedAt    Millis     `json:"updatedAt"`
	Progress     *float64   `json:"progress,omitempty"`
	ErrorMessage string     `json:"errorMessage,omitempty"`
}

const (
	maxAssetTracks = 64
	maxTrackName   = 100
)

// NewAssetTrack is the body that adds a track to an asset.
type NewAssetTrack struct {
	Type           TrackType `json:"type"`
	Kind           TextKind  `json:"kind"`
	Language       string    `json:"language"`
	Name           string    `json:"name"`
	Default        bool      `json:"default"`
	Forced         bool      `json:"forced"`
	ClosedCaptions bool      `json:"closedCaptions"`
	URL            string    `json:"url"`
	Text           string    `json:"text"`
	Charset        string    `json:"charset"` // of what the URL leads to
}

// AddTrack adds a track to the asset. Its file may follow.
func (a *Asset) AddTrack(n NewAssetTrack, now time.Time) (AssetTrack, error) {
	if err := a.acceptsTracks(); err != nil {
		return AssetTrack{}, err
	}
	t := AssetTrack{
		ID: NewID(), Type: n.Type, Kind: n.Kind, Language: n.Language, Name: n.Name, Default: n.Default, Forced: n.Forced,
		ClosedCaptions: n.ClosedCaptions, CreatedAt: At(now), Charset: n.Charset, Source: TrackSource{URL: n.URL},
		Status: TrackStatus{Phase: TrackUploading, UpdatedAt: At(now)},
	}
	switch {
	case len(a.Tracks) >= maxAssetTracks:
		return t, Errorf(Refused, "the asset has %d tracks, the maximum; delete one", maxAssetTracks)
	case n.URL != "" && n.Text != "":
		return t, Errorf(Invalid, "url, text: give one of them, or none and send the file to …/track/{id}/file")
	case n.Type == AudioTrack && (n.Text != "" || n.Kind != "" || n.Forced || n.ClosedCaptions || n.Charset != ""):
		return t, Errorf(Invalid, "type: audio has no text, kind, forced, closedCaptions or charset")
	}
	if n.URL != "" {
		if err := checkSourceURL("url", n.URL); err != nil {
			return t, err
		}
		t.Status.Phase = TrackProcessing
	}
	if t.Type == TextTrack && t.Kind == "" {
		t.Kind = Subtitles
	}
	t.Name = cmp.Or(t.Name, t.Language, string(t.Kind))
	if err := t.validate(); err != nil {
		return t, err
	}
	a.Tracks = append(slices.Clone(a.Tracks), t)
	a.oneDefault(t)
	a.Status.UpdatedAt = At(now)
	return t, nil
}

// acceptsTracks returns an error unless tracks can be added to the asset.
func (a *Asset) acceptsTracks() error {
	switch {
	case a.Deleted:
		return ErrNotFound()
	case a.Status.Phase == AssetFailed:
		return Errorf(Refused, "the asset has failed; tracks can be added to one that plays")
	case a.ObjectStoreID != "":
		return Errorf(Refused, "the asset is in an object store of its owner; tracks can be added to assets that this server stores")
	}
	return nil
}

var languageTag = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$`)

// CheckLanguage returns an error if a language is not a tag of BCP 47.
func CheckLanguage(field, language string) error {
	if len(language) > 35 || !languageTag.MatchString(language) {
		return Errorf(Invalid, "%s: %q is no language tag; write it as in de, pt-BR or zh-Hant", field, Shorten(language, 40))
	}
	return nil
}

func (t *AssetTrack) validate() error {
	if t.Language != "" || t.Kind != Chapters {
		if err := CheckLanguage("language", t.Language); err != nil {
			return err
		}
	}
	switch {
	case len(t.Name) > maxTrackName || strings.ContainsFunc(t.Name, unicode.IsControl):
		return Errorf(Invalid, "name: give one line of at most %d bytes", maxTrackName)
	case t.Forced && t.Kind != Subtitles, t.ClosedCaptions && t.Kind != Subtitles:
		return Errorf(Invalid, "forced, closedCaptions: only subtitles have them")
	}
	return nil
}

// oneDefault leaves a track the only default of its type.
func (a *Asset) oneDefault(t AssetTrack) {
	for i := range a.Tracks {
		other := &a.Tracks[i]
		if t.Default && other.ID != t.ID && other.Type == t.Type && other.Kind == t.Kind {
			other.Default = false
		}
	}
}

// Track returns a track of the asset, which may be changed; an error of kind NotFound if there is none.
func (a *Asset) Track(id string) (*AssetTrack, error) {
	i := slices.IndexFunc(a.Tracks, func(t AssetTrack) bool { return t.ID == id })
	if i < 0 {
		return nil, Errorf(NotFound, "track not found")
	}
	a.Tracks = slices.Clone(a.Tracks) // others may have the list
	return &a.Tracks[i], nil
}

// AssetTrackPatch is the body that changes a track.
type AssetTrackPatch struct {
	Language       *string `json:"language"`
	Name           *string `json:"name"`
	Default        *bool   `json:"default"`
	Forced         *bool   `json:"forced"`
	ClosedCaptions *bool   `json:"closedCaptions"`
}

// PatchTrack changes a track of the asset.
func (a *Asset) PatchTrack(id string, p AssetTrackPatch, now time.Time) (AssetTrack, error) {
	t, err := a.Track(id)
	if err != nil {
		return AssetTrack{}, err
	}
	set(&t.Language, p.Language)
	set(&t.Name, p.Name)
	set(&t.Default, p.Default)
	set(&t.Forced, p.Forced)
	set(&t.ClosedCaptions, p.ClosedCaptions)
	t.Name = cmp.Or(t.Name, t.Language, string(t.Kind))
	if err := t.validate(); err != nil {
		return *t, err
	}
	a.oneDefault(*t)
	a.Status.UpdatedAt = At(now)
	return *t, nil
}

// DeleteTrack removes a track from the asset.
func (a *Asset) DeleteTrack(id string, now time.Time) (AssetTrack, error) {
	t, err := a.Track(id)
	if err != nil {
		return AssetTrack{}, err
	}
	removed := *t
	a.Tracks = slices.DeleteFunc(a.Tracks, func(t AssetTrack) bool { return t.ID == id })
	a.Stored -= removed.Size
	a.Status.UpdatedAt = At(now)
	return removed, nil
}

// textMargin is how much later than its video a text may end.
const textMargin = time.Hour

// CheckText returns an error if the track of an asset can't have a text that ends at a time.
func (a *Asset) CheckText(id string, end time.Duration) error {
	t, err := a.Track(id)
	switch {
	case err != nil:
		return err
	case t.Type != TextTrack:
		return Errorf(Invalid, "the track is one of %s; send its file", t.Type)
	case a.VideoSpec == nil || a.VideoSpec.Duration <= 0:
		return nil
	}
	if length := time.Duration(a.VideoSpec.Duration * float64(time.Second)); end > length+textMargin {
		return Errorf(Invalid, "the text ends at %s, but the video at %s: it is not the text of this video", end.Round(time.Second), length.Round(time.Second))
	}
	return nil
}

// TrackFile is the stored file of a track of text.
type TrackFile struct {
	Object string // below the folder of the asset
	Size   int64
	SHA256 string
	Cues   int
}

// TrackStored records the file of a track, which replaces an earlier one.
func (a *Asset) TrackStored(id string, f TrackFile, now time.Time) (AssetTrack, error) {
	t, err := a.Track(id)
	if err != nil {
		return AssetTrack{}, err
	}
	a.Stored += f.Size - t.Size
	t.Object, t.Size, t.SHA256, t.Cues, t.Source = f.Object, f.Size, f.SHA256, f.Cues, TrackSource{}
	t.Status = TrackStatus{Phase: TrackReady, UpdatedAt: At(now)}
	a.Status.UpdatedAt = At(now)
	return *t, nil
}

// ImportTracks adds tracks that were in the source of the asset, if it does not have them yet.
func (a *Asset) ImportTracks(tracks []AssetTrack) {
	for _, t := range tracks {
		if _, err := a.Track(t.ID); err != nil && len(a.Tracks) < maxAssetTracks {
			a.Tracks = append(slices.Clone(a.Tracks), t)
			a.oneDefault(t)
		}
	}
}

// TrackFailed records why a track could not be made. What it had before stays.
func (a *Asset) TrackFailed(id, message string, now time.Time) error {
	t, err := a.Track(id)
	if err != nil {
		return err
	}
	t.Source = TrackSource{}
	t.Status = TrackStatus{Phase: TrackFailed, UpdatedAt: At(now), ErrorMessage: message}
	a.Status.UpdatedAt = At(now)
	return nil
}

// Playable reports whether viewers get the track.
func (t *AssetTrack) Playable() bool { return t.Object != "" }

// StartTime returns the time of the track's cues at which the asset begins.
func (t *AssetTrack) StartTime() time.Duration { return time.Duration(t.Start * float64(time.Second)) }

// Path returns where viewers get the text of a track, below the address of the asset.
func (t *AssetTrack) Path(extension string) string { return "text/" + t.ID + extension }

// Shown returns the tracks of the asset as the API shows them: with whole URLs.
func (a *Asset) Shown(tracks []AssetTrack, base Base) []AssetTrack {
	shown := make([]AssetTrack, len(tracks))
	for i, t := range tracks {
		if t.Type == TextTrack && t.Playable() {
			t.URL = base.Of("/hls/" + a.PlaybackID + "/" + t.Path(".vtt"))
		}
		shown[i] = t
	}
	return shown
}
