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
	DefaultProjectID string `json:"defaultProjectId"`
	CreatedAt        Millis `json:"createdAt"`
	LastSeen         Millis `json:"lastSeen,omitempty"`
	LastStreamedAt   Millis `json:"lastStreamedAt,omitempty"`

	Password string `json:"-"` // argon2id, see package account; "" = none set yet
}

// UserUsage is what an account streamed in a span of time.
type UserUsage struct {
	SourceSegments             int64   `json:"sourceSegments"`
	TranscodedSegments         int64   `json:"transcodedSegments"`
	SourceSegmentsDuration     float64 `json:"sourceSegmentsDuration"`
	TranscodedSegmentsDuration float64 `json:"transcodedSegmentsDuration"`
	StreamCount                int64   `json:"streamCount"`
}

// DefaultViewerLimit is how many viewers an account may have at once.
const DefaultViewerLimit = 10_000

// CheckEmail returns the address in the form in which it is stored.
func CheckEmail(email string) (string, error) {
	a, err := mail.ParseAddress(email)
	if err != nil || a.Address != email || len(email) > 254 {
		return "", Errorf(Invalid, "invalid email")
	}
	return strings.ToLower(email), nil
}

// Project groups what an account owns.
type Project struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	UserID    string `json:"userId"`
	CreatedAt Millis `json:"createdAt"`
	Deleted   bool   `json:"-"`
}

// Token is an API key, without the key: that is shown once, when it is made.
type Token struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"`
	UserID    string  `json:"userId"`
	ProjectID string  `json:"projectId"`
	Name      string  `json:"name"`
	CreatedAt Millis  `json:"createdAt"`
	LastSeen  Millis  `json:"lastSeen,omitempty"`
	Access    *Access `json:"access,omitempty"`
}

// NewAPIToken is the body that makes an API key.
type NewAPIToken struct {
	Name   string  `json:"name"`
	Access *Access `json:"access"`
}

// Token returns the API key that a body asks for.
func (n NewAPIToken) Token(userID, projectID string, now time.Time) (Token, error) {
	if err := n.Access.Validate(); err != nil {
		return Token{}, err
	}
	return Token{
		ID: NewID(), Kind: "api-token", UserID: userID, ProjectID: projectID, Name: n.Name, CreatedAt: At(now), Access: n.Access.complete(),
	}, nil
}

// SigningKey is a public key that viewers' tokens may be signed for. weir keeps
// no private key: its owner gets it once.
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

// MaxSigningKeys is how many signing keys an account may have.
const MaxSigningKeys = 10

// ObjectStore is a bucket of the caller's.
type ObjectStore struct {
	ID        string `json:"id"`
	UserID    string `json:"userId"`
	Name      string `json:"name,omitempty"`
	PublicURL string `json:"publicUrl,omitempty"`
	Disabled  bool   `json:"disabled"`
	CreatedAt Millis `json:"createdAt"`
	Deleted   bool   `json:"-"`

	URL Secret `json:"-"` // has the bucket's credentials in it
}
