package access

import (
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/weir"
)

// maxLifetime is the maximum time until a JWT expires.
const maxLifetime = 7 * 24 * time.Hour

// maxJWT is the maximum size of a JWT.
const maxJWT = 16 << 10

// claims are the claims of a viewer's JWT.
type claims struct {
	jwt.RegisteredClaims
	PublicKey string `json:"pub"` // of the signing key, as the API shows it
}

// checkJWT returns the owner's key that signed the viewer's JWT and the time when the JWT
// expires, or an error if the JWT is invalid.
func (g *Gate) checkJWT(ctx context.Context, c content, r Request) (keyID string, expires time.Time, err error) {
	var key weir.SigningKey
	check := func() error {
		if r.JWT != "" {
			key, expires, err = g.verify(ctx, c, r.JWT.Reveal())
		} else {
			key, err = g.signingKey(ctx, c, r.PublicKey)
		}
		return err
	}
	if r.JWT == "" && r.PublicKey == "" {
		err = check()
	} else {
		err = g.guesses.try(c, r, check)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	g.store.SawSigningKey(key.ID, time.Now())
	return key.ID, expires, nil
}

// verify checks a viewer's JWT. It returns the key it was signed with and when it expires.
func (g *Gate) verify(ctx context.Context, c content, text string) (key weir.SigningKey, expires time.Time, err error) {
	if len(text) > maxJWT {
		return key, expires, badJWT("it is too long")
	}
	var found claims
	var keyErr error // our own error, which is more precise than the parser's
	_, err = jwt.ParseWithClaims(text, &found, func(*jwt.Token) (any, error) {
		if key, keyErr = g.signingKey(ctx, c, found.PublicKey); keyErr != nil {
			return nil, keyErr
		}
		public, err := parsePublicKey(key.PublicKey)
		if err != nil {
			keyErr = fmt.Errorf("signing key %s: %w", key.ID, err)
		}
		return public, keyErr
	}, jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithExpirationRequired())
	switch {
	case keyErr != nil:
		return key, expires, keyErr
	case errors.Is(err, jwt.ErrTokenExpired):
		return key, expires, badJWT("it has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return key, expires, badJWT("it is not valid yet")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return key, expires, badJWT("it has no exp")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return key, expires, badJWT("its signature is wrong")
	case err != nil:
		return key, expires, badJWT("it is malformed")
	case found.Subject != c.playbackID:
		return key, expires, badJWT("its sub is not this playback id")
	case time.Until(found.ExpiresAt.Time) > maxLifetime:
		return key, expires, badJWT("its exp is more than 7 days ahead")
	}
	return key, found.ExpiresAt.Time, nil
}

func badJWT(why string) *weir.Error {
	return weir.Errorf(weir.Denied, "Content is gated and the token is not valid: %s", why)
}

// signingKey returns the key of the content's project with that public key. A key of another project
// or account looks as if the content did not exist.
func (g *Gate) signingKey(ctx context.Context, c content, publicKey string) (weir.SigningKey, error) {
	if publicKey == "" {
		return weir.SigningKey{}, weir.Errorf(weir.Denied, "Content is gated and requires a public key")
	}
	keys, err := g.store.SigningKeysByPublicKey(ctx, publicKey)
	switch {
	case err != nil:
		return weir.SigningKey{}, err
	case len(keys) == 0:
		return weir.SigningKey{}, weir.Errorf(weir.Denied, "Content is gated and corresponding public key not found")
	case len(keys) > 1:
		return weir.SigningKey{}, weir.Errorf(weir.Refused, "Multiple signing keys found for the same public key.")
	case !c.owns(keys[0]):
		return weir.SigningKey{}, errNoContent()
	case keys[0].Disabled || keys[0].Deleted:
		return weir.SigningKey{}, weir.Errorf(weir.Denied, "The public key is disabled or deleted")
	}
	return keys[0], nil
}

// parsePublicKey reads a public key in the form of the API.
func parsePublicKey(encoded string) (*ecdsa.PublicKey, error) {
	pem, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	return jwt.ParseECPublicKeyFromPEM(pem)
}
