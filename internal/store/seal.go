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

// sealer keeps secrets unreadable to whoever has the database and not the master
// secret. Each sealed value is bound to its place, so that one can't be copied
// over another.
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

// sealed returns plain so that only open, at the same place, gets it back.
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
		return nil, fmt.Errorf("open %s: %w", place, err)
	}
	return plain, nil
}

// lookup returns what a sealed value is found by: the same for the same value,
// and of no use without the master secret. Nothing has no lookup.
func (s *sealer) lookup(value string) string {
	if value == "" {
		return ""
	}
	m := hmac.New(sha256.New, s.mac)
	m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// hashKey returns what an API key or a one-time token is stored as. They are
// random, so a plain hash says nothing about them.
func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// checkSecret refuses a database that was sealed with another master secret.
func (s *Store) checkSecret(ctx context.Context) error {
	const name, value = "check", "weir"
	got, err := s.NamedSecret(ctx, name, func() ([]byte, error) { return []byte(value), nil })
	if err != nil || string(got) != value {
		return fmt.Errorf("this database belongs to another master secret; give the right one with --secret-file")
	}
	return nil
}

// NamedSecret returns the secret of that name. It is made once, by whoever asks
// first, and never again: a second node, and a later start, get the same.
func (s *Store) NamedSecret(ctx context.Context, name string, create func() ([]byte, error)) ([]byte, error) {
	place := "secret/" + name
	scan := func(r rows) (b []byte, err error) { return b, r.Scan(&b) }
	const read = "SELECT sealed FROM secret WHERE name = $1"
	box, ok, err := found(one(ctx, s.conn, scan, read, name))
	if err != nil {
		return nil, err
	}
	if !ok {
		value, err := create() // before the transaction: nobody waits for a key to be found
		if err != nil {
			return nil, fmt.Errorf("make secret %s: %w", name, err)
		}
		err = s.Tx(ctx, func(tx *Tx) error {
			if _, err := tx.conn.exec(ctx, "INSERT INTO secret (name, sealed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
				name, s.seal.sealed(place, value)); err != nil {
				return err
			}
			box, err = one(ctx, tx.conn, scan, read, name) // somebody else may have been first
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("make secret %s: %w", name, err)
		}
	}
	return s.seal.open(place, box)
}
