package access

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"weir/internal/store"
)

// EncryptionKeyName is the store's name of the private key (PKCS 8) that callers'
// encrypted keys are opened with.
const EncryptionKeyName = "encryption"

const encryptionKeyBits = 3072

// EncryptionKey returns what callers encrypt the keys of their sources with (RSA
// OAEP, SHA-256): base64 of the base64 of an SPKI public key. The key pair is made
// by whoever asks first and never again.
func EncryptionKey(ctx context.Context, st *store.Store) (string, error) {
	private, err := st.NamedSecret(ctx, EncryptionKeyName, func() ([]byte, error) {
		key, err := rsa.GenerateKey(rand.Reader, encryptionKeyBits)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKCS8PrivateKey(key)
	})
	if err != nil {
		return "", err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("encryption key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("encryption key: %T is not an RSA key", parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", err
	}
	body := base64.StdEncoding.EncodeToString(public)
	return base64.StdEncoding.EncodeToString([]byte(body)), nil
}
