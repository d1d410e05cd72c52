package store

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// sealer encrypts secrets, so that the database is of no use without the master secret. Each sealed
// value is bound to its place, so that it can't be copied over another.
type sealer struct {
	aead cipher.AEAD
	mac  []byte
}

// newSealer derives its keys from the master secret.
func newSealer(master []byte) (*sealer, error) {
	if len(master) != 32 {
		return nil, fmt.Errorf("the master secret has %d bytes, want 32", len(master))
	}
	derive := func(label string) ([]byte, error) { return hkdf.Key(sha256.New, master, nil, "weir/"+label, 32) }
	key, err := derive("seal")
	if err != nil {
		return nil, err
	}
	mac, err := derive("lookup")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &sealer{aead: aead, mac: mac}, err
}

// sealed encrypts plain, so that only open with the same place returns it.
func (s *sealer) sealed(place string, plain []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	_, _ = rand.Read(nonce)
	return s.aead.Seal(nonce, nonce, plain, []byte(place))
}

// open is the reverse of sealed.
func (s *sealer) open(place string, box []byte) ([]byte, error) {
	if len(box) < s.aead.NonceSize() {
		return nil, errors.New("sealed value is too short")
	}
	nonce, box := box[:s.aead.NonceSize()], box[s.aead.NonceSize():]
	plain, err := s.aead.Open(nil, nonce, box, []byte(place))
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", place, err)
	}
	return plain, nil
}

// lookup returns a hash by which a sealed value is found: the same for the same value, and of no
// use without the master secret. An empty value has none.
func (s *sealer) lookup(value string) string {
	if value == "" {
		return ""
	}
	m := hmac.New(sha256.New, s.mac)
	m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// hashKey returns the hash under which an API key or a one-time token is stored. They are random,
// so a plain hash is enough.
func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// checkSecret returns an error if the database was sealed with another master secret.
func (s *Store) checkSecret(ctx context.Context) error {
	const name, value = "check", "weir"
	got, err := s.NamedSecret(ctx, name, func() ([]byte, error) { return []byte(value), nil })
	if err != nil || string(got) != value {
		return fmt.Errorf("this database belongs to another master secret; give the right one with --secret-file")
	}
	return nil
}

// NamedSecret returns the secret of that name. The first call creates it; all nodes and later
// starts get the same.
func (s *Store) NamedSecret(ctx context.Context, name string, create func() ([]byte, error)) ([]byte, error) {
	place := "secret/" + name
	scan := func(r rows) (b []byte, err error) { return b, r.Scan(&b) }
	const read = "SELECT sealed FROM secret WHERE name = $1"
	box, ok, err := found(one(ctx, s.conn, scan, read, name))
	if err != nil {
		return nil, err
	}
	if !ok {
		value, err := create() // before the transaction, because making a key takes long
		if err != nil {
			return nil, fmt.Errorf("make secret %s: %w", name, err)
		}
		err = s.Tx(ctx, func(tx *Tx) error {
			if _, err := tx.conn.exec(ctx, "INSERT INTO secret (name, sealed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
				name, s.seal.sealed(place, value)); err != nil {
				return err
			}
			box, err = one(ctx, tx.conn, scan, read, name) // another node may have been faster
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("make secret %s: %w", name, err)
		}
	}
	return s.seal.open(place, box)
}

// NamedKey is NamedSecret for a random key of 32 bytes.
func (s *Store) NamedKey(ctx context.Context, name string) ([]byte, error) {
	return s.NamedSecret(ctx, name, func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	})
}
