package weir

import (
	"net/url"
	"time"
)

// Target is another platform that streams are pushed to.
type Target struct {
	ID        string `json:"id"`
	UserID    string `json:"userId"`
	Name      string `json:"name"`
	Disabled  bool   `json:"disabled"`
	CreatedAt Millis `json:"createdAt"`
	ProjectID string `json:"-"` // not shown: the original API has no such member

	URL Secret `json:"-"` // has the platform's stream key in it
}

// NewTarget is the body that creates a target.
type NewTarget struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Disabled bool   `json:"disabled"`
}

// Target returns the target that the body describes.
func (n NewTarget) Target(userID, projectID string, now time.Time) (Target, error) {
	host, err := targetHost(n.URL)
	if err != nil {
		return Target{}, err
	}
	if n.Name == "" {
		n.Name = host
	}
	return Target{
		ID: NewID(), UserID: userID, ProjectID: projectID, Name: n.Name, URL: Secret(n.URL), Disabled: n.Disabled, CreatedAt: At(now),
	}, nil
}

// TargetPatch is the body that changes a target. Empty strings change nothing.
type TargetPatch struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Disabled *bool  `json:"disabled"`
}

// Apply changes t as the patch says.
func (p TargetPatch) Apply(t *Target) error {
	if p.URL != "" {
		if _, err := targetHost(p.URL); err != nil {
			return err
		}
		t.URL = Secret(p.URL)
	}
	if p.Name != "" {
		t.Name = p.Name
	}
	set(&t.Disabled, p.Disabled)
	return nil
}

// targetHost returns the host of a target's URL. The error does not repeat the URL, which has a
// stream key in it.
func targetHost(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", Errorf(Invalid, "Bad URL: write it as rtmp://host/app/key, rtmps://host/app/key or srt://host:port?streamid=key")
	}
	switch u.Scheme {
	case "rtmp", "rtmps", "srt":
		return u.Host, nil
	}
	return "", Errorf(Invalid, "Bad URL: the scheme must be rtmp, rtmps or srt")
}

// NewTargetEvent returns an event about the push of a stream to a target.
func NewTargetEvent(name EventName, s Stream, t Target, profile string, now time.Time) (Event, error) {
	target := map[string]string{"id": t.ID, "name": t.Name, "profile": profile}
	return NewStreamEvent(name, s, map[string]any{"target": target}, now)
}
