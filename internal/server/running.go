package server

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"weir/internal/config"
)

// runningFile is in the data folder: the addresses of the node that serves from there, for commands. The
// node holds a lock on it while it serves.
const runningFile = "addresses.json"

// noteAddresses writes down where this node listens, with the port of HTTP. The file is valid until it
// is closed.
func noteAddresses(cfg *config.Config, port int) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(cfg.Data, runningFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg.Addresses(port))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX) // a command that reads it holds a lock for a moment
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// FindRunning gives a command the addresses of the node that serves from the same data folder, as far as
// the settings of the command do not say them. Without such a node it changes nothing.
func FindRunning(cfg *config.Config) {
	f, err := os.Open(filepath.Join(cfg.Data, runningFile))
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return // nobody holds it: the node has ended
	}
	var addresses map[string]string
	if json.NewDecoder(f).Decode(&addresses) == nil {
		cfg.UseAddresses(addresses)
	}
}
