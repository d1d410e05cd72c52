package playback

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"weir/internal/access"
	"weir/internal/store"
	"weir/internal/weir"
)

// token proves in the paths of later requests that a viewer was admitted at a playlist.
type token struct {
	text    string
	mac     tokenMAC // unique
	viewing string   // identifies a viewer of a title
	ends    time.Time
	key     string // the signing key of the viewer's JWT; "" = none
	// accessKey is checked again by the access webhook of a stream.
	accessKey weir.Secret
}

// tokenMAC authenticates a token.
type tokenMAC [macBytes]byte

func (t *token) over(now time.Time) bool { return now.After(t.ends) }

// tokens makes and reads tokens.
type tokens struct {
	secret []byte
	sealer cipher.AEAD // for access keys
}

func (t *tokens) init(ctx context.Context, st *store.Store) (err error) {
	secret, err := st.NamedSecret(ctx, "playback", newSecret)
	if err != nil {
		return err
	}
	return t.use(secret)
}

func (t *tokens) use(secret []byte) error {
	t.secret = secret
	block, err := aes.NewCipher(t.mac("access keys"))
	if err != nil {
		return err
	}
	t.sealer, err = cipher.NewGCM(block)
	return err
}

// A token is 16 bytes that identify the viewing, 8 bytes of its end time, the id of the signing key
// or the encrypted access key, and the HMAC of all that, of the playback id and of the policy.
const (
	viewingBytes = 16
	macBytes     = 16
	tokenMark    = "t/"
	// maxAccessKey is the maximum size that fits into a URL, as proxies allow it.
	maxAccessKey = 4096
	maxToken     = 6000 // of its text
)

const (
	// A token of a video is valid for storedLife, or for twice the length of the video if that is
	// longer: players keep a playlist for as long as the page is open, and viewers pause.
	storedLife = 6 * time.Hour
	// The end of a token is rounded down to a multiple of rounded. So a player that loads a playlist
	// again gets the same URIs, as it must while the playlist grows. What is left is still longer
	// than the video.
	rounded = time.Hour

	// A token of a stream is valid for liveLife, and longer while it is used (renew.go).
	liveLife    = 10 * time.Minute
	liveRounded = time.Minute
)

// issue makes a token for a viewer who was admitted by a JWT (the decision says by which key) or by
// an access key. viewer identifies the viewer.
func (t *tokens) issue(title *title, by access.Decision, accessKey, viewer string, now time.Time) *token {
	ends := now.Add(max(storedLife, 2*title.length)).Truncate(rounded)
	switch {
	case title.endsWithJWT():
		ends = by.Expires
	case title.live():
		ends = now.Add(liveLife).Truncate(liveRounded).Add(liveRounded)
	}
	body := t.mac("viewing", title.PlaybackID, viewer)[:viewingBytes:viewingBytes]
	one := &token{viewing: base64.RawURLEncoding.EncodeToString(body), ends: ends, key: by.KeyID}
	body = binary.BigEndian.AppendUint64(body, uint64(ends.UnixMilli()))
	if title.asksAgain() {
		one.accessKey = weir.Secret(accessKey)
		body = t.seal(body, accessKey)
	} else {
		body = append(body, by.KeyID...)
	}
	one.mac = t.sign(&title.content, body)
	body = append(body, one.mac[:]...)
	one.text = base64.RawURLEncoding.EncodeToString(body)
	return one
}

// open parses a token and checks that it is valid for this content with its current policy.
func (t *tokens) open(c *content, text string) (*token, error) {
	if len(text) > maxToken {
		return nil, errToken()
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(body) < viewingBytes+8+macBytes {
		return nil, errToken()
	}
	body, mac := body[:len(body)-macBytes], tokenMAC(body[len(body)-macBytes:])
	if want := t.sign(c, body); !hmac.Equal(mac[:], want[:]) {
		return nil, errToken()
	}
	one := &token{
		text: text, mac: mac, viewing: base64.RawURLEncoding.EncodeToString(body[:viewingBytes]),
		ends: time.UnixMilli(int64(binary.BigEndian.Uint64(body[viewingBytes:]))),
	}
	if !c.asksAgain() {
		one.key = string(body[viewingBytes+8:])
		return one, nil
	}
	accessKey, err := t.unseal(body[:viewingBytes+8], body[viewingBytes+8:])
	one.accessKey = weir.Secret(accessKey)
	return one, err
}

// seal appends an encrypted access key to the body of a token. The nonce is derived from both, so
// that the URIs of a viewer do not change.
func (t *tokens) seal(body []byte, accessKey string) []byte {
	nonce := t.mac("nonce", string(body), accessKey)[:t.sealer.NonceSize()]
	return t.sealer.Seal(append(body, nonce...), nonce, []byte(accessKey), body)
}

func (t *tokens) unseal(body, sealed []byte) (accessKey string, err error) {
	size := t.sealer.NonceSize()
	if len(sealed) < size {
		return "", errToken()
	}
	plain, err := t.sealer.Open(nil, sealed[:size], sealed[size:], body)
	if err != nil {
		return "", errToken()
	}
	return string(plain), nil
}

func errExpired() error {
	return weir.Errorf(weir.Denied, "the address has expired; load the master playlist again")
}

func errToken() error {
	return weir.Errorf(weir.Denied, "the address is not valid; load the master playlist")
}

// sign binds a token to the content and its policy.
func (t *tokens) sign(c *content, body []byte) tokenMAC {
	var kind, hook string
	if p := c.policy; p != nil {
		kind, hook = p.Type, p.WebhookID
	}
	return tokenMAC(t.mac("token", c.PlaybackID, kind, hook, string(body))[:macBytes])
}

// viewerID returns the id of a viewer, from what is known about the viewer.
func (t *tokens) viewerID(known ...string) string {
	return hex.EncodeToString(t.mac(append([]string{"viewer"}, known...)...)[:12])
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
