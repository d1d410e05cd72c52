package weir

import (
	"net/mail"
	"strings"
	"time"
)

// User is a person with an account.
type User struct {
	ID               string `json:"id"`
	Kind             string `json:"kind"`
	Email            string `json:"email"`
	EmailValid       bool   `json:"emailValid"`
	FirstName        string `json:"firstName,omitempty"`
	LastName         string `json:"lastName,omitempty"`
	Organization     string `json:"organization,omitempty"`
	Phone            string `json:"phone,omitempty"`
	Admin            bool   `json:"admin"`
	Suspended        bool   `json:"suspended,omitempty"` // blocks every call and playback
	Disabled         bool   `json:"disabled,omitempty"`  // blocks ingest and playback
	DirectPlayback   bool   `json:"directPlayback,omitempty"`
	ViewerLimit      *int   `json:"viewerLimit,omitempty"`
	Quota            Quota  `json:"quota,omitempty"`
	DefaultProjectID string `json:"defaultProjectId"`
	CreatedAt        Millis `json:"createdAt"`
	LastSeen         Millis `json:"lastSeen,omitempty"`
	LastStreamedAt   Millis `json:"lastStreamedAt,omitempty"`
	Deleted          bool   `json:"deleted,omitempty"` // it exists only for administrators, who can restore it
	DeletedAt        Millis `json:"deletedAt,omitempty"`

	Password   string `json:"-"` // argon2id, see package account; "" = none set yet
	Purging    bool   `json:"-"` // its content is being removed, so it can't be restored any more
	RestoredAt Millis `json:"-"` // log-ins from before are over; 0 = it was never deleted
}

// Delete marks the account as deleted. The first account, which administers the server, stays.
func (u *User) Delete(now time.Time) error {
	if u.Admin {
		return Errorf(Refused, "the account of an administrator can't be deleted")
	}
	u.Deleted, u.DeletedAt = true, At(now)
	return nil
}

// Restore undoes a deletion.
func (u *User) Restore(now time.Time) error {
	switch {
	case !u.Deleted:
		return Errorf(Refused, "user is not deleted")
	case u.Purging:
		return Errorf(Refused, "user is not in a restorable state: the content is being removed")
	}
	u.Deleted, u.DeletedAt, u.RestoredAt = false, 0, At(now)
	return nil
}

// UserUsage is what an account streamed in a range of time.
type UserUsage struct {
	SourceSegments             int64   `json:"sourceSegments"`
	TranscodedSegments         int64   `json:"transcodedSegments"`
	SourceSegmentsDuration     float64 `json:"sourceSegmentsDuration"`
	TranscodedSegmentsDuration float64 `json:"transcodedSegmentsDuration"`
	StreamCount                int64   `json:"streamCount"`

	StorageBytes int64        `json:"storageBytes"` // now
	Storage      []StorageDay `json:"storage"`      // on each day of the range
}

// StorageDay is how many bytes an account stored on a day, as last measured.
type StorageDay struct {
	Day   Millis `json:"day"` // its start, in UTC
	Bytes int64  `json:"bytes"`
}

// DefaultViewerLimit is the default maximum of viewers of an account at once.
const DefaultViewerLimit = 10_000

// CheckEmail returns the address in the form that is stored.
func CheckEmail(email string) (string, error) {
	a, err := mail.ParseAddress(email)
	if err != nil || a.Address != email || len(email) > 254 {
		return "", Errorf(Invalid, "invalid email")
	}
	return strings.ToLower(email), nil
}

// Project groups resources of an account.
type Project struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	UserID    string `json:"userId"`
	CreatedAt Millis `json:"createdAt"`
	Deleted   bool   `json:"-"`
}

// Token is an API key without the key itself, which is shown once, when it is created.
type Token struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"`
	UserID    string  `json:"userId"`
	ProjectID string  `json:"projectId"`
	Name      string  `json:"name"`
	CreatedAt Millis  `json:"createdAt"`
	LastSeen  Millis  `json:"lastSeen,omitempty"`
	Access    *Access `json:"access,omitempty"`
	KeyHash   string  `json:"-"` // set by the store
}

// NewAPIToken is the body that creates an API key.
type NewAPIToken struct {
	Name   string  `json:"name"`
	Access *Access `json:"access"`
}

// Token returns the API key that the body describes.
func (n NewAPIToken) Token(userID, projectID string, now time.Time) (Token, error) {
	t := Token{ID: NewID(), Kind: "api-token", UserID: userID, ProjectID: projectID, Name: n.Name, CreatedAt: At(now)}
	return t, t.restrict(n.Access)
}

// restrict sets what the key may do.
func (t *Token) restrict(a *Access) error {
	if a != nil && a.CORS == nil && a.Rules == nil {
		a = nil // it restricts nothing
	}
	t.Access = a
	return a.Validate()
}

// TokenPatch is the body that changes an API key.
type TokenPatch struct {
	Name   *string          `json:"name"`
	Access Nullable[Access] `json:"access"`
}

// Apply changes t as the patch says.
func (p TokenPatch) Apply(t *Token) error {
	set(&t.Name, p.Name)
	if !p.Access.Set {
		return nil
	}
	return t.restrict(p.Access.Value)
}

// SigningKey is a public key that verifies viewers' tokens. weir does not store the private key:
// its owner gets it once.
type SigningKey struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	UserID    string `json:"userId"`
	ProjectID string `json:"projectId"`
	CreatedAt Millis `json:"createdAt"`
	LastSeen  Millis `json:"lastSeen,omitempty"`
	PublicKey string `json:"publicKey"` // base64 of a PEM
	Disabled  bool   `json:"disabled"`
	Deleted   bool   `json:"-"`
}

// MaxSigningKeys is the maximum number of signing keys of an account.
const MaxSigningKeys = 10

// ObjectStore is a bucket of the caller.
type ObjectStore struct {
	ID        string `json:"id"`
	UserID    string `json:"userId"`
	Name      string `json:"name,omitempty"`
	PublicURL string `json:"publicUrl,omitempty"`
	Disabled  bool   `json:"disabled"`
	CreatedAt Millis `json:"createdAt"`
	ProjectID string `json:"-"` // not shown: the original API has no such member
	Deleted   bool   `json:"-"`

	URL Secret `json:"-"` // has the bucket's credentials in it
}
