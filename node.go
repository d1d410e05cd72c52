package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// node is what the data folder says of this node.
type node struct {
	id     string
	secret []byte
	lock   *os.File
}

// openNode makes the data folder if there is none, takes it for this process
// alone and reads who the node is.
func openNode(cfg *Config) (_ *node, err error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	n := &node{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.lock, err = os.OpenFile(filepath.Join(cfg.Data, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if err := unix.Flock(int(n.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("--data: another weir serves from %s; end it, or give this one a folder of its own", cfg.Data)
	}
	if n.secret, err = masterSecret(cfg, true); err != nil {
		return nil, err
	}
	id, err := once(filepath.Join(cfg.Data, "node"), 6)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	n.id = hex.EncodeToString(id)
	return n, nil
}

func (n *node) close() {
	if n.lock != nil {
		_ = n.lock.Close() // and with it the lock
	}
}

// masterSecret reads the master secret. With SQLite the first start makes it;
// with PostgreSQL every machine must be given the same one.
func masterSecret(cfg *Config, create bool) ([]byte, error) {
	read := readHex
	if create && strings.HasPrefix(cfg.Database.Reveal(), "sqlite:") {
		read = once
	}
	secret, err := read(cfg.SecretFile, 32)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--secret-file: %s does not exist; bring the one this database was made with, or, for a new PostgreSQL database, make one with: openssl rand -hex 32", cfg.SecretFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	return secret, nil
}

// once reads size bytes from a file, and makes the file with random ones if there
// is none.
func once(path string, size int) ([]byte, error) {
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

// writeDurably writes a new file that is on the disk when it returns: a database
// sealed with a secret that a crash takes away is lost.
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
	if err := os.Link(f.Name(), path); err != nil { // fails when somebody else was first
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
