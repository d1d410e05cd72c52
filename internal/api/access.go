package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"time"

	"weir/internal/access"
	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

// createSigningKey answers POST /access-control/signing-key. Only this response has the private key.
func (s *server) createSigningKey(w http.ResponseWriter, r *request, body nameBody) error {
	public, private, err := newKeyPair()
	if err != nil {
		return err
	}
	key := weir.SigningKey{
		ID: weir.NewID(), Name: body.Name, UserID: r.caller.UserID, ProjectID: r.caller.ProjectID,
		CreatedAt: weir.At(time.Now()), PublicKey: public,
	}
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.LockSigningKeys(ctx, key.UserID); err != nil {
			return err
		}
		others, err := tx.SigningKeys(ctx, store.Query{UserID: key.UserID, Limit: store.MaxLimit})
		if err != nil {
			return err
		}
		if len(others.Items) >= weir.MaxSigningKeys {
			return weir.Errorf(weir.Denied, "user can only have up to %d signing keys, delete some first", weir.MaxSigningKeys)
		}
		if key.Name == "" {
			key.Name = freeKeyName(others.Items)
		}
		return tx.CreateSigningKey(ctx, &key)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		weir.SigningKey
		PrivateKey string `json:"privateKey"`
	}{key, private})
}

// freeKeyName returns `Signing Key N` with the next number that no key has.
func freeKeyName(keys []weir.SigningKey) string {
	taken := map[string]bool{}
	for _, k := range keys {
		taken[k.Name] = true
	}
	for n := len(keys) + 1; ; n++ {
		if name := fmt.Sprintf("Signing Key %d", n); !taken[name] {
			return name
		}
	}
}

// newKeyPair makes a P-256 key pair; both keys are base64 of a PEM.
func newKeyPair() (public, private string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("PUBLIC KEY", spki), encode("PRIVATE KEY", pkcs8), nil
}

type signingKeyPatch struct {
	Name     *string `json:"name"`
	Disabled *bool   `json:"disabled"`
}

// patchSigningKey answers PATCH /access-control/signing-key/{id}.
func (s *server) patchSigningKey(w http.ResponseWriter, r *request, patch signingKeyPatch) error {
	return s.changeSigningKey(w, r, func(key *weir.SigningKey) {
		if patch.Name != nil {
			key.Name = *patch.Name
		}
		if patch.Disabled != nil {
			key.Disabled = *patch.Disabled
		}
	})
}

// deleteSigningKey answers DELETE /access-control/signing-key/{id}.
func (s *server) deleteSigningKey(w http.ResponseWriter, r *request) error {
	return s.changeSigningKey(w, r, func(key *weir.SigningKey) { key.Deleted = true })
}

func (s *server) changeSigningKey(w http.ResponseWriter, r *request, do func(*weir.SigningKey)) error {
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateSigningKey, func(_ *store.Tx, key *weir.SigningKey) error {
		do(key)
		return nil
	})
	return noContent(w, err)
}

// maxViewer is the maximum size of what a media server sends about a viewer: it is passed on, and
// the endpoint needs no credential.
const maxViewer = 16 << 10

type gateBody struct {
	Type      string                     `json:"type"`
	Stream    string                     `json:"stream"`
	PublicKey string                     `json:"pub"`
	AccessKey string                     `json:"accessKey"`
	Viewer    map[string]json.RawMessage `json:"webhookPayload"`
}

// gate answers POST /access-control/gate, by which a media server asks whether a viewer may play.
// It has checked the viewer's token itself and names the key. Without an API key of the content's
// owner, it may send as many wrong credentials as one viewer.
func (s *server) gate(w http.ResponseWriter, r *request, body gateBody) error {
	if len(body.AccessKey)+size(body.Viewer) > maxViewer {
		return weir.Errorf(weir.TooLarge, "accessKey and webhookPayload together are larger than %d KiB", maxViewer>>10)
	}
	ask := access.Request{
		PlaybackID: body.Stream, From: weir.Network(s.clientAddr(r.Request)), ServerOf: r.user(),
		Headers: viewerHeaders(body.Viewer["headers"]), Viewer: body.Viewer,
	}
	if _, id, ok := strings.Cut(body.Stream, "+"); ok { // video+ID
		ask.PlaybackID = id
	}
	switch body.Type { // a credential of the other type is ignored
	case "jwt":
		ask.PublicKey = body.PublicKey
	case "accessKey":
		ask.AccessKey = weir.Secret(body.AccessKey)
	}
	d, err := s.Gate.Check(r.Context(), ask)
	if weir.KindOf(err) != weir.Busy { // that is nothing about the viewer
		endpoint.TwoMinutesThenStale.Set(w.Header())
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		ViewerLimit     int     `json:"user_viewer_limit"`
		UserID          string  `json:"user_id"`
		RefreshInterval float64 `json:"refresh_interval,omitempty"`
	}{d.ViewerLimit, d.UserID, d.RefreshInterval.Seconds()})
}

func size(members map[string]json.RawMessage) int {
	n := 0
	for name, value := range members {
		n += len(name) + len(value)
	}
	return n
}

// viewerHeaders reads the viewer's headers. Each is a string or a list of strings; others are left
// out.
func viewerHeaders(raw json.RawMessage) http.Header {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // anything but an object has no headers
	headers := http.Header{}
	for name, value := range members {
		var one string
		var many []string
		switch {
		case json.Unmarshal(value, &one) == nil:
			headers.Add(name, one)
		case json.Unmarshal(value, &many) == nil:
			for _, text := range many {
				headers.Add(name, text)
			}
		}
	}
	return headers
}

// getPublicKey answers GET /access-control/public-key.
func (s *server) getPublicKey(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"spki_public_key": s.EncryptionKey})
}
