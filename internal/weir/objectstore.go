package weir

import (
	"net/url"
	"strings"
	"time"
)

// NewObjectStore is the body that creates an object store.
type NewObjectStore struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	PublicURL string `json:"publicUrl"`
}

// ObjectStore returns the object store that the body describes.
func (n NewObjectStore) ObjectStore(userID, projectID string, now time.Time) (ObjectStore, error) {
	o := ObjectStore{
		ID: NewID(), UserID: userID, ProjectID: projectID, Name: n.Name, PublicURL: n.PublicURL, CreatedAt: At(now), URL: Secret(n.URL),
	}
	return o, o.validate()
}

// ObjectStorePatch is the body that changes an object store.
type ObjectStorePatch struct {
	Name      *string `json:"name"`
	Disabled  *bool   `json:"disabled"`
	URL       *string `json:"url"`
	PublicURL *string `json:"publicUrl"`
}

// Apply changes o as the patch says.
func (p ObjectStorePatch) Apply(o *ObjectStore) error {
	set(&o.Name, p.Name)
	set(&o.Disabled, p.Disabled)
	set(&o.PublicURL, p.PublicURL)
	if p.URL != nil {
		o.URL = Secret(*p.URL)
	}
	return o.validate()
}

// validate checks the URLs. The errors do not repeat the URL, which has the bucket's credentials in
// it.
func (o *ObjectStore) validate() error {
	u, err := url.Parse(o.URL.Reveal())
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return Errorf(Invalid, "url: write it as s3+https://key:secret@host/bucket or s3://key:secret@region/bucket, with key and secret percent-encoded")
	}
	switch u.Scheme {
	case "s3", "s3+http", "s3+https":
	default:
		return Errorf(Invalid, "url: the scheme must be s3, s3+http or s3+https")
	}
	if _, ok := u.User.Password(); !ok {
		return Errorf(Invalid, "url: has no key and secret: write it as s3+https://key:secret@host/bucket")
	}
	if o.PublicURL == "" {
		return nil
	}
	if p, err := url.Parse(o.PublicURL); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
		return Errorf(Invalid, "publicUrl: write it as https://host/path")
	}
	return nil
}
