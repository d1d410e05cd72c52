package playback

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
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
	mac     tokenMAC // no other token has it
	viewing string   // one viewer, watching one thing
	ends    time.Time
	key     string // the signing key that let the viewer in; "" = none
	// accessKey is what the access webhook of a stream is asked about again.
	accessKey weir.Secret
}

// tokenMAC is what shows that a token is ours.
type tokenMAC [macBytes]byte

// over reports whether the time of a token is up.
func (t *token) over(now time.Time) bool { return now.After(t.ends) }

// tokens makes and reads tokens.
type tokens struct {
	secret []byte
	sealer cipher.AEAD // for access keys
}

func (t *tokens) init(ctx context.Context, st *store.Store) (err error) {
	secret, err := st.NamedSecret(ctx, "playback", func() ([]byte, error) {
		secret := make([]byte, 32)
		_, err := rand.Read(secret)
		return secret, err
	})
	if err != nil {
		return err
	}
	return t.use(secret)
}

// use makes tokens with a secret.
func (t *tokens) use(secret []byte) error {
	t.secret = secret
	block, err := aes.NewCipher(t.mac("access keys"))
	if err != nil {
		return err
	}
	t.sealer, err = cipher.NewGCM(block)
	return err
}

// A token is 16 bytes that name the viewing, 8 bytes of the time it ends, the id of
// the signing key or the sealed access key, and the HMAC of all that, of the playback
// id and of the policy.
const (
	viewingBytes = 16
	macBytes     = 16
	tokenMark    = "t/"
	// maxAccessKey is what fits into an address, with what proxies allow for one.
	maxAccessKey = 4096
	maxToken     = 6000 // of its text
)

const (
	// shortest is how long a token holds at least: players keep a playlist for as long
	// as the page is open.
	shortest = 6 * time.Hour
	// rounded is what the end of a token is a multiple of. So a viewer who loads a
	// playlist again gets the same addresses, which is what players of a playlist that
	// grows expect.
	rounded = time.Hour

	// A token of a stream holds for liveLife, and longer while it is used (renew.go).
	liveLife    = 10 * time.Minute
	liveRounded = time.Minute
)

// issue makes a token for a viewer who was let in by a signing key or an access key.
// What is told of the viewer decides what counts as one viewing.
func (t *tokens) issue(title *title, key, accessKey, viewer string, now time.Time) *token {
	ends := now.Add(max(shortest, 2*title.length)).Truncate(rounded).Add(rounded)
	if title.live() {
		ends = now.Add(liveLife).Truncate(liveRounded).Add(liveRounded)
	}
	body := t.mac("viewing", title.playbackID, viewer)[:viewingBytes:viewingBytes]
	one := &token{viewing: base64.RawURLEncoding.EncodeToString(body), ends: ends, key: key}
	body = binary.BigEndian.AppendUint64(body, uint64(ends.UnixMilli()))
	if title.asksAgain() {
		one.accessKey = weir.Secret(accessKey)
		body = t.seal(body, accessKey)
	} else {
		body = append(body, key...)
	}
	one.mac = t.sign(&title.content, body)
	body = append(body, one.mac[:]...)
	one.text = base64.RawURLEncoding.EncodeToString(body)
	return one
}

// open reads a token and checks that it is ours, for this content with the policy
// that it has now.
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

// seal appends an access key to the body of a token, so that nobody can read it there.
// The same key in the same token is sealed the same way, so that the address of a
// viewer does not change.
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

// sign binds a token to what is played and to who may play it.
func (t *tokens) sign(c *content, body []byte) tokenMAC {
	var kind, hook string
	if p := c.policy; p != nil {
		kind, hook = p.Type, p.WebhookID
	}
	return tokenMAC(t.mac("token", c.playbackID, kind, hook, string(body))[:macBytes])
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
