package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"weir/internal/c2pa"
	"weir/internal/config"
	"weir/internal/publish"
	"weir/internal/weir"
)

// OpenSigner returns the signer of the operator's key.
func OpenSigner(cfg *config.Config) (*publish.Signer, error) {
	key, err := readSetting("--c2pa-key", cfg.C2PAKey)
	if err != nil {
		return nil, err
	}
	cert, err := readSetting("--c2pa-cert", cfg.C2PACert)
	if err != nil {
		return nil, err
	}
	return newSigner(cfg, c2pa.Chain{Key: key, Cert: cert})
}

func readSetting(name, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, weir.Errorf(weir.Invalid, "%s: %s", name, err.Error())
	}
	return data, nil
}

// newSigner returns the signer of a chain.
func newSigner(cfg *config.Config, chain c2pa.Chain) (*publish.Signer, error) {
	var post c2pa.PostFunc
	if cfg.C2PATimestamp != "" {
		post = timestamps(cfg.C2PATimestamp, &http.Client{Timeout: stampTimeout})
	}
	signer, err := c2pa.NewSigner(chain.Key, chain.Cert, time.Now(), post)
	if err != nil {
		return nil, err
	}
	return &publish.Signer{C2PA: signer, Version: ReadVersion().Tag}, nil
}

// openSigner sets the signer of the node and the root of its certificate. Without a key of the
// operator, all nodes share one that the first of them made.
func (s *server) openSigner(ctx context.Context) (err error) {
	if s.cfg.C2PAKey != "" {
		if s.signer, err = OpenSigner(s.cfg); err != nil {
			return err
		}
		chain, err := readSetting("--c2pa-cert", s.cfg.C2PACert)
		s.c2paRoot = c2pa.Root(chain)
		return err
	}
	data, err := s.store.NamedSecret(ctx, "c2pa", func() ([]byte, error) {
		chain, err := c2pa.NewChain(time.Now())
		if err != nil {
			return nil, err
		}
		return json.Marshal(chain)
	})
	if err != nil {
		return err
	}
	var chain c2pa.Chain
	if err := json.Unmarshal(data, &chain); err != nil {
		return err
	}
	s.c2paRoot = chain.Root
	if s.signer, err = newSigner(s.cfg, chain); err != nil {
		return err
	}
	return writeChain(filepath.Join(s.cfg.Data, "c2pa"), chain)
}

// writeChain writes a chain to files, with which commands on this machine can sign and verify. What counts is
// the one in the database, which all nodes have.
func writeChain(dir string, chain c2pa.Chain) error {
	for name, data := range map[string][]byte{"root.pem": chain.Root, "cert.pem": chain.Cert, "key.pem": chain.Key} {
		path := filepath.Join(dir, name)
		have, err := os.ReadFile(path)
		if err == nil && bytes.Equal(have, data) {
			continue
		}
		if err == nil { // of another database
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := writeDurably(path, data); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

const (
	stampTimeout = 30 * time.Second
	maxStamp     = 64 << 10
)

// timestamps returns a function that sends requests to a time stamp service.
func timestamps(url string, client *http.Client) c2pa.PostFunc {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/timestamp-query")
		resp, err := client.Do(r)
		if err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "the time stamp service does not answer")
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, weir.Errorf(weir.Upstream, "the time stamp service answers %s", resp.Status)
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxStamp))
		if err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "the time stamp service does not answer")
		}
		return data, nil
	}
}
