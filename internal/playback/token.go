package playback

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// token is what a viewer who was let in at a playlist carries from then on.
type token struct {
	text    string
	viewing string // one viewer, watching one thing
	key     string // the signing key that let the viewer in; "" = none
}

// tokens makes and reads tokens.
type tokens struct{ secret []byte }

func (t *tokens) init(ctx context.Context, st *store.Store) (err error) {
	t.secret, err = st.NamedSecret(ctx, "playback", func() ([]byte, error) {
		secret := make([]byte, 32)
		_, err := rand.Read(secret)
		return secret, err
	})
	return err
}

// A token is 16 bytes that name the viewing, 8 bytes of the time it ends, the id of
// the signing key, and the HMAC of all that, of the playback id and of the policy.
const (
	viewingBytes = 16
	macBytes     = 16
	tokenMark    = "t/"
	longestToken = 200 // of its text
)

const (
	// shortest is how long a token holds at least: players keep a playlist for as long
	// as the page is open.
	shortest = 6 * time.Hour
	// rounded is what the end of a token is a multiple of. So a viewer who loads a
	// playlist again gets the same addresses, which is what players of a playlist that
	// grows expect.
	rounded = time.Hour
)

// issue makes a token for a viewer who was let in by a signing key, if there was one.
// What is told of the viewer decides what counts as one viewing.
func (t *tokens) issue(title *title, key, viewer string, now time.Time) *token {
	ends := now.Add(max(shortest, 2*title.length)).Truncate(rounded).Add(rounded)
	asset := &title.asset
	body := t.mac("viewing", asset.PlaybackID, viewer)[:viewingBytes:viewingBytes]
	viewing := base64.RawURLEncoding.EncodeToString(body)
	body = binary.BigEndian.AppendUint64(body, uint64(ends.UnixMilli()))
	body = append(body, key...)
	body = append(body, t.sign(asset, body)...)
	return &token{text: base64.RawURLEncoding.EncodeToString(body), viewing: viewing, key: key}
}

// open reads a token and checks that it is ours, for this asset with the policy that
// it has now, and still holds.
func (t *tokens) open(asset *weir.Asset, text string, now time.Time) (*token, error) {
	body, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(body) < viewingBytes+8+macBytes || len(text) > longestToken {
		return nil, errToken()
	}
	body, mac := body[:len(body)-macBytes], body[len(body)-macBytes:]
	if !hmac.Equal(mac, t.sign(asset, body)) {
		return nil, errToken()
	}
	ends := time.UnixMilli(int64(binary.BigEndian.Uint64(body[viewingBytes:])))
	if now.After(ends) {
		return nil, weir.Errorf(weir.Denied, "the address has expired; load the master playlist again")
	}
	return &token{text: text, viewing: base64.RawURLEncoding.EncodeToString(body[:viewingBytes]), key: string(body[viewingBytes+8:])}, nil
}

func errToken() error {
	return weir.Errorf(weir.Denied, "the address is not valid; load the master playlist")
}

// sign binds a token to an asset and to who may play it.
func (t *tokens) sign(asset *weir.Asset, body []byte) []byte {
	var kind, hook string
	if p := asset.PlaybackPolicy; p != nil {
		kind, hook = p.Type, p.WebhookID
	}
	return t.mac("token", asset.PlaybackID, kind, hook, string(body))[:macBytes]
}

func (t *tokens) mac(parts ...string) []byte {
	h := hmac.New(sha256.New, t.secret)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// cutToken splits a path that begins with t/<token>/.
func cutToken(path string) (text, rest string, ok bool) {
	after, ok := strings.CutPrefix(path, tokenMark)
	if !ok {
		return "", path, false
	}
	text, rest, _ = strings.Cut(after, "/")
	return text, rest, true
}
