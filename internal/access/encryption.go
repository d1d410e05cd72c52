package access

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"weir/internal/store"
	"weir/internal/weir"
)

const encryptionKeyBits = 3072

// Encryption is the key pair with which callers encrypt the keys of their sources (RSA OAEP,
// SHA-256).
type Encryption struct {
	private *rsa.PrivateKey
	public  string
}

// OpenEncryption returns the key pair. The first call creates it.
func OpenEncryption(ctx context.Context, st *store.Store) (*Encryption, error) {
	private, err := st.NamedSecret(ctx, "encryption", func() ([]byte, error) {
		key, err := rsa.GenerateKey(rand.Reader, encryptionKeyBits)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKCS8PrivateKey(key)
	})
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encryption key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("encryption key: %T is not an RSA key", parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	body := base64.StdEncoding.EncodeToString(public)
	return &Encryption{key, base64.StdEncoding.EncodeToString([]byte(body))}, nil
}

// PublicKey returns the key for callers: base64 of the base64 of an SPKI public key.
func (e *Encryption) PublicKey() string { return e.public }

// sourceKeyBytes is the length of an AES-256 key.
const sourceKeyBytes = 32

// Decrypt decrypts the key of a source, which is in base64.
func (e *Encryption) Decrypt(encryptedKey string) ([]byte, error) {
	sealed, err := base64.StdEncoding.DecodeString(encryptedKey)
	if err != nil {
		return nil, weir.Errorf(weir.Invalid, "encryptedKey must be valid base64")
	}
	key, err := rsa.DecryptOAEP(sha256.New(), nil, e.private, sealed, nil)
	if err != nil || len(key) != sourceKeyBytes {
		return nil, weir.Errorf(weir.Invalid, "encryptedKey: encrypt the %d bytes of the AES key with the key of /api/access-control/public-key, RSA-OAEP with SHA-256", sourceKeyBytes)
	}
	return key, nil
}
