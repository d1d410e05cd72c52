package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/config"
	"weir/internal/store"
)

// openNode makes the data folder if there is none, locks it for this process, and reads the identity of
// the node.
func (s *server) openNode(context.Context) error {
	data := s.cfg.Data
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(data, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	s.onClose(func() { _ = lock.Close() }) // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("--data: another weir serves from %s; stop it, or give this one another folder", data)
	}
	if s.secret, err = masterSecret(s.cfg, true); err != nil {
		return err
	}
	id, err := readOrCreate(filepath.Join(data, nodeFile), 6)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	s.nodeID = hex.EncodeToString(id)
	return nil
}

// OpenStore opens the database for a command that runs beside the service.
func OpenStore(ctx context.Context, cfg *config.Config) (*store.Store, error) {
	if path, ok := cfg.SQLite(); ok {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("there is no database at %s; start the service once, or name another folder with --data", path)
		}
	}
	secret, err := masterSecret(cfg, false)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, cfg.Database.Reveal(), store.Options{Secret: secret, MaxConns: 4})
}

// masterSecret reads the master secret. With SQLite the first start makes it; with PostgreSQL
// the operator gives the same one to every machine.
func masterSecret(cfg *config.Config, create bool) ([]byte, error) {
	read := readHex
	if _, sqlite := cfg.SQLite(); create && sqlite {
		read = readOrCreate
	}
	secret, err := read(cfg.SecretFile, 32)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--secret-file: %s does not exist; copy the one this database was made with or, for a new PostgreSQL database, make one with: openssl rand -hex 32", cfg.SecretFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	return secret, nil
}

// readOrCreate reads size bytes from a file. If there is none, it makes one with random bytes.
func readOrCreate(path string, size int) ([]byte, error) {
	b, err := readHex(path, size)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	b = make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	if err := writeDurably(path, []byte(hex.EncodeToString(b)+"\n")); err != nil {
		return nil, err
	}
	return b, nil
}

func readHex(path string, size int) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != size {
		return nil, fmt.Errorf("%s must hold %d hexadecimal digits", path, 2*size)
	}
	return b, nil
}

// writeDurably writes a new file and syncs it: without the secret, the database that is encrypted with it
// would be lost.
func writeDurably(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // fails if another process was first
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
