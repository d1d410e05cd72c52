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
	"weir/internal/store"
	"weir/internal/weir"
)

func showSigningKey(k weir.SigningKey) weir.SigningKey { return k }

func signingKeyOwner(k weir.SigningKey) (string, bool) { return k.UserID, k.Deleted }

// ownSigningKey turns what the caller may not see into what does not exist.
func ownSigningKey(r *request) func(weir.SigningKey, error) (weir.SigningKey, error) {
	return func(k weir.SigningKey, err error) (weir.SigningKey, error) {
		if err == nil && (k.Deleted && !r.caller.Admin || !r.caller.Owns(k.UserID, k.ProjectID)) {
			err = weir.ErrNotFound()
		}
		return k, err
	}
}

// createSigningKey answers POST /access-control/signing-key. The private half is
// in this answer only.
func (s *server) createSigningKey(w http.ResponseWriter, r *request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
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

// freeKeyName is `Signing Key N` with the number that is next, or the first behind
// it that no key has.
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

// newKeyPair makes a P-256 key; both halves are base64 of a PEM.
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

// listSigningKeys answers GET /access-control/signing-key.
func (s *server) listSigningKeys(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	page, err := s.Store.SigningKeys(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, showSigningKey, signingKeyOwner)
}

// getSigningKey answers GET /access-control/signing-key/{id}.
func (s *server) getSigningKey(w http.ResponseWriter, r *request) error {
	key, err := ownSigningKey(r)(s.Store.SigningKey(r.Context(), r.PathValue("id")))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showSigningKey(key))
}

// patchSigningKey answers PATCH /access-control/signing-key/{id}.
func (s *server) patchSigningKey(w http.ResponseWriter, r *request) error {
	var body struct {
		Name     *string `json:"name"`
		Disabled *bool   `json:"disabled"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
	return s.changeSigningKey(w, r, func(key *weir.SigningKey) {
		if body.Name != nil {
			key.Name = *body.Name
		}
		if body.Disabled != nil {
			key.Disabled = *body.Disabled
		}
	})
}

// deleteSigningKey answers DELETE /access-control/signing-key/{id}.
func (s *server) deleteSigningKey(w http.ResponseWriter, r *request) error {
	return s.changeSigningKey(w, r, func(key *weir.SigningKey) { key.Deleted = true })
}

// changeSigningKey changes the caller's signing key that the path names.
func (s *server) changeSigningKey(w http.ResponseWriter, r *request, change func(*weir.SigningKey)) error {
	ctx := r.Context()
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateSigningKey(ctx, r.PathValue("id"), func(key *weir.SigningKey) error {
			if _, err := ownSigningKey(r)(*key, nil); err != nil {
				return err
			}
			change(key)
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// maxViewer is how much a media server may tell of a viewer: it is passed on, and
// anybody can ask.
const maxViewer = 16 << 10

// gate answers POST /access-control/gate, by which a media server asks whether a
// viewer may play. It has checked the viewer's token itself and names the key.
func (s *server) gate(w http.ResponseWriter, r *request) error {
	w.Header().Set("Cache-Control", "max-age=120,stale-while-revalidate=600")
	var body struct {
		Type      string                     `json:"type"`
		Stream    string                     `json:"stream"`
		PublicKey string                     `json:"pub"`
		AccessKey string                     `json:"accessKey"`
		Viewer    map[string]json.RawMessage `json:"webhookPayload"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
	if len(body.AccessKey)+size(body.Viewer) > maxViewer {
		return weir.Errorf(weir.TooLarge, "accessKey and webhookPayload together are larger than %d KiB", maxViewer>>10)
	}
	ask := access.Request{PlaybackID: body.Stream, Headers: viewerHeaders(body.Viewer["headers"]), Viewer: body.Viewer}
	if _, id, ok := strings.Cut(body.Stream, "+"); ok { // video+ID
		ask.PlaybackID = id
	}
	switch body.Type { // a credential of the other type does not count
	case "jwt":
		ask.PublicKey = body.PublicKey
	case "accessKey":
		ask.AccessKey = weir.Secret(body.AccessKey)
	}
	d, err := s.Gate.Check(r.Context(), ask)
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

// viewerHeaders reads the viewer's headers, each a text or a list of texts; what
// is neither is left out.
func viewerHeaders(raw json.RawMessage) http.Header {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // what is no object has no headers
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
