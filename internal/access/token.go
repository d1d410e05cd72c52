package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"time"

	"weir/internal/weir"
)

// Token proves in the addresses of later requests that a viewer was admitted. It is bound to the
// title and to the kind of its policy.
type Token struct {
	Text   string   // as it is in addresses
	Viewer string   // identifies a viewer of a title
	mac    tokenMAC // unique
	ends   time.Time
	key    string // the signing key of the viewer's JWT; "" = none
	// accessKey is checked again by the access webhook of a stream.
	accessKey weir.Secret
}

// tokenMAC authenticates a token.
type tokenMAC [macBytes]byte

func (t *Token) expired(now time.Time) bool { return now.After(t.ends) }

// TokenFor returns the token of a viewer for another title with the same policy: the recording of a
// stream, which the viewer may play because of the token for the stream.
func (c *Control) TokenFor(t Title, from *Token, now time.Time) *Token {
	return c.tokens.issue(&t, Decision{KeyID: from.key}, "", from.Viewer, now)
}

// ViewerID returns a hash of what is known about a viewer, such as network and device. It is the
// same on every node.
func (c *Control) ViewerID(known ...string) string {
	return hex.EncodeToString(c.tokens.mac(append([]string{"viewer"}, known...)...)[:12])
}

// tokens makes and reads tokens.
type tokens struct {
	secret []byte
	sealer cipher.AEAD // for access keys
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

// A token is 16 bytes that identify the viewer, 8 bytes of its end time, the id of the signing key
// or the encrypted access key, and the HMAC of all that, of the playback id and of the policy.
const (
	viewerBytes = 16
	macBytes    = 16
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
func (t *tokens) issue(title *Title, by Decision, accessKey, viewer string, now time.Time) *Token {
	ends := now.Add(max(storedLife, 2*title.Length)).Truncate(rounded)
	switch {
	case title.endsWithJWT():
		ends = by.Expires
	case title.Stream:
		ends = now.Add(liveLife).Truncate(liveRounded).Add(liveRounded)
	}
	body := t.mac("viewing", title.PlaybackID, viewer)[:viewerBytes:viewerBytes]
	one := &Token{Viewer: base64.RawURLEncoding.EncodeToString(body), ends: ends, key: by.KeyID}
	body = binary.BigEndian.AppendUint64(body, uint64(ends.UnixMilli()))
	if title.asksAgain() {
		one.accessKey = weir.Secret(accessKey)
		body = t.seal(body, accessKey)
	} else {
		body = append(body, by.KeyID...)
	}
	one.mac = t.sign(title, body)
	body = append(body, one.mac[:]...)
	one.Text = base64.RawURLEncoding.EncodeToString(body)
	return one
}

// open parses a token and checks that it is valid for this title with its current policy.
func (t *tokens) open(title *Title, text string) (*Token, error) {
	if len(text) > maxToken {
		return nil, errToken()
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(body) < viewerBytes+8+macBytes {
		return nil, errToken()
	}
	body, mac := body[:len(body)-macBytes], tokenMAC(body[len(body)-macBytes:])
	if want := t.sign(title, body); !hmac.Equal(mac[:], want[:]) {
		return nil, errToken()
	}
	one := &Token{
		Text: text, mac: mac, Viewer: base64.RawURLEncoding.EncodeToString(body[:viewerBytes]),
		ends: time.UnixMilli(int64(binary.BigEndian.Uint64(body[viewerBytes:]))),
	}
	if !title.asksAgain() {
		one.key = string(body[viewerBytes+8:])
		return one, nil
	}
	accessKey, err := t.unseal(body[:viewerBytes+8], body[viewerBytes+8:])
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
	return weir.Errorf(weir.Denied, "the URL has expired; load the master playlist again")
}

func errToken() error {
	return weir.Errorf(weir.Denied, "the URL is not valid; load the master playlist")
}

// sign binds a token to the title and its policy.
func (t *tokens) sign(title *Title, body []byte) tokenMAC {
	var kind, hook string
	if p := title.Policy; p != nil {
		kind, hook = p.Type, p.WebhookID
	}
	return tokenMAC(t.mac("token", title.PlaybackID, kind, hook, string(body))[:macBytes])
}

func (t *tokens) mac(parts ...string) []byte {
	h := hmac.New(sha256.New, t.secret)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}
