package access

import (
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/weir"
)

// maxLifetime is the maximum time until a JWT expires.
const maxLifetime = 7 * 24 * time.Hour

const (
	// maxJWT is the maximum size of a JWT.
	maxJWT = 16 << 10
	// verifiedOfNetwork is how many JWTs from one network are verified at once.
	verifiedOfNetwork = 2
	// maxOwners is the maximum number of accounts whose terms, signing keys and access webhooks are
	// remembered.
	maxOwners = 10_000
)

// claims are the claims of a viewer's JWT.
type claims struct {
	jwt.RegisteredClaims
	PublicKey string `json:"pub"` // of the signing key, as the API shows it
}

// knownKey is a signing key that can be used without a query.
type knownKey struct {
	weir.SigningKey
	public *ecdsa.PublicKey
}

// checkJWT returns the owner's key that signed the viewer's JWT and the time when the JWT
// expires, or an error if the JWT is invalid. Only an invalid one counts as a wrong credential: a valid
// one is never refused for those that others at the same address send.
func (g *Gate) checkJWT(ctx context.Context, c content, r Request) (keyID string, expires time.Time, err error) {
	publicKey := r.PublicKey
	if r.JWT != "" {
		var found claims
		if len(r.JWT) > maxJWT {
			return "", expires, g.guesses.count(c, r, badJWT("it is too long"))
		}
		if _, _, err := jwt.NewParser().ParseUnverified(r.JWT.Reveal(), &found); err != nil {
			return "", expires, g.guesses.count(c, r, badJWT("it is malformed"))
		}
		publicKey = found.PublicKey
	}
	if publicKey == "" {
		return "", expires, weir.Errorf(weir.Denied, "Content is gated and requires a public key")
	}
	key, err := g.signingKey(ctx, c, r, publicKey)
	if err != nil {
		return "", expires, err
	}
	if r.JWT != "" {
		if expires, err = g.verify(ctx, c, r, key); err != nil {
			return "", expires, g.guesses.count(c, r, err)
		}
	}
	g.store.SawSigningKey(key.ID, time.Now())
	return key.ID, expires, nil
}

// verify checks that a viewer's JWT is signed with a key, and returns when it expires.
func (g *Gate) verify(ctx context.Context, c content, r Request, key knownKey) (expires time.Time, err error) {
	leave, err := g.verifying.enter(ctx, "", r.From)
	if err != nil {
		return expires, err
	}
	defer leave()
	var found claims
	_, err = jwt.ParseWithClaims(r.JWT.Reveal(), &found, func(*jwt.Token) (any, error) { return key.public, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithExpirationRequired())
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return expires, badJWT("it has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return expires, badJWT("it is not valid yet")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return expires, badJWT("it has no exp")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return expires, badJWT("its signature is wrong")
	case err != nil:
		return expires, badJWT("it is malformed")
	case found.Subject != c.playbackID:
		return expires, badJWT("its sub is not this playback id")
	case time.Until(found.ExpiresAt.Time) > maxLifetime:
		return expires, badJWT("its exp is more than 7 days ahead")
	}
	return found.ExpiresAt.Time, nil
}

func badJWT(why string) *weir.Error {
	return weir.Errorf(weir.Denied, "Content is gated and the token is not valid: %s", why)
}

// signingKey returns the key of the content's project with that public key. One that is not among the
// known ones counts as a wrong credential before it is looked up: it may be new. A media server is never
// told what was known before.
func (g *Gate) signingKey(ctx context.Context, c content, r Request, publicKey string) (key knownKey, err error) {
	if r.JWT != "" {
		known, err := g.keysOf(ctx, c.userID)
		if err != nil {
			return key, err
		}
		if key, ok := known.byPublicKey[publicKey]; ok && c.owns(key.SigningKey) {
			if key.Disabled {
				return key, g.guesses.count(c, r, errRevoked())
			}
			return key, nil
		}
	}
	return key, g.guesses.try(c, r, func() error {
		key, err = g.storedKey(ctx, c, publicKey)
		return err
	})
}

// accountKeys are the signing keys of an account that are not deleted.
type accountKeys struct {
	byID        map[string]weir.SigningKey
	byPublicKey map[string]knownKey
}

// keysOf returns the signing keys of an account, as they were a moment ago.
func (g *Gate) keysOf(ctx context.Context, userID string) (accountKeys, error) {
	return g.keys.Get(ctx, userID, time.Now(), func(ctx context.Context) (accountKeys, error) {
		page, err := g.store.SigningKeys(ctx, store.Query{UserID: userID, Limit: store.MaxLimit})
		if err != nil {
			return accountKeys{}, err
		}
		keys, strange := accountKeys{map[string]weir.SigningKey{}, map[string]knownKey{}}, map[string]bool{}
		for _, key := range page.Items {
			known, err := newKnownKey(key)
			if _, twice := keys.byPublicKey[key.PublicKey]; twice || err != nil {
				strange[key.PublicKey] = true
			}
			keys.byID[key.ID], keys.byPublicKey[key.PublicKey] = key, known
		}
		// storedKey says what is wrong with those.
		maps.DeleteFunc(keys.byPublicKey, func(public string, _ knownKey) bool { return strange[public] })
		return keys, nil
	})
}

// keyByID returns a signing key, as it was a moment ago.
func (g *Gate) keyByID(ctx context.Context, userID, id string) (weir.SigningKey, error) {
	keys, err := g.keysOf(ctx, userID)
	if err != nil {
		return weir.SigningKey{}, err
	}
	if key, ok := keys.byID[id]; ok {
		return key, nil
	}
	// It was made a moment ago, or is deleted.
	return g.others.Get(ctx, id, time.Now(), func(ctx context.Context) (weir.SigningKey, error) { return g.store.SigningKey(ctx, id) })
}

func newKnownKey(key weir.SigningKey) (knownKey, error) {
	public, err := parsePublicKey(key.PublicKey)
	if err != nil {
		return knownKey{}, fmt.Errorf("signing key %s: %w", key.ID, err)
	}
	return knownKey{key, public}, nil
}

// storedKey reads the key of the content's project with that public key. A key of another project or
// account looks as if the content did not exist.
func (g *Gate) storedKey(ctx context.Context, c content, publicKey string) (knownKey, error) {
	keys, err := g.store.SigningKeysByPublicKey(ctx, publicKey)
	switch {
	case err != nil:
		return knownKey{}, err
	case len(keys) == 0:
		return knownKey{}, weir.Errorf(weir.Denied, "Content is gated and corresponding public key not found")
	case len(keys) > 1:
		return knownKey{}, weir.Errorf(weir.Refused, "Multiple signing keys found for the same public key.")
	case !c.owns(keys[0]):
		return knownKey{}, errNoContent()
	case keys[0].Disabled || keys[0].Deleted:
		return knownKey{}, errRevoked()
	}
	return newKnownKey(keys[0])
}

func errRevoked() error {
	return weir.Errorf(weir.Denied, "The public key is disabled or deleted")
}

// parsePublicKey reads a public key in the form of the API.
func parsePublicKey(encoded string) (*ecdsa.PublicKey, error) {
	pem, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	return jwt.ParseECPublicKeyFromPEM(pem)
}
