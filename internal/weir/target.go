package weir

import (
	"net/url"
	"time"
)

// Target is another platform that a stream is pushed on to.
type Target struct {
	ID        string `json:"id"`
	UserID    string `json:"userId"`
	Name      string `json:"name"`
	Disabled  bool   `json:"disabled"`
	CreatedAt Millis `json:"createdAt"`

	URL Secret `json:"-"` // has the platform's stream key in it
}

// NewTarget is the body that makes a target.
type NewTarget struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Disabled bool   `json:"disabled"`
}

// Target returns the target that the body asks for.
func (n NewTarget) Target(userID string, now time.Time) (Target, error) {
	host, err := TargetHost(n.URL)
	if err != nil {
		return Target{}, err
	}
	if n.Name == "" {
		n.Name = host
	}
	return Target{ID: NewID(), UserID: userID, Name: n.Name, URL: Secret(n.URL), Disabled: n.Disabled, CreatedAt: At(now)}, nil
}

// TargetPatch is the body that changes a target. Empty strings are left out.
type TargetPatch struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Disabled *bool  `json:"disabled"`
}

// Apply changes t as the patch says.
func (p TargetPatch) Apply(t *Target) error {
	if p.URL != "" {
		if _, err := TargetHost(p.URL); err != nil {
			return err
		}
		t.URL = Secret(p.URL)
	}
	if p.Name != "" {
		t.Name = p.Name
	}
	if p.Disabled != nil {
		t.Disabled = *p.Disabled
	}
	return nil
}

// TargetHost returns the host of a target's URL. The error does not repeat the
// URL, which has a stream key in it.
func TargetHost(raw string) (string, error) {
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

// NewTargetEvent tells of the push of a stream to a target.
func NewTargetEvent(name EventName, s Stream, t Target, profile string, now time.Time) (Event, error) {
	type shown struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Profile string `json:"profile"`
	}
	return NewStreamEvent(name, s, struct {
		Target shown `json:"target"`
	}{shown{t.ID, t.Name, profile}}, now)
}
