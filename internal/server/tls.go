package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"weir/internal/config"
)

// TLSConfig returns the configuration of HTTPS and RTMPS, or nil if the settings name no
// certificate.
func TLSConfig(cfg *config.Config) (*tls.Config, error) {
	switch {
	case cfg.ACME != "":
		hosts := []string{cfg.ACME}
		if host := cfg.IPFSHost(); host != "" {
			hosts = append(hosts, host)
		}
		// It answers the challenge inside TLS (TLS-ALPN-01), so no second port is needed.
		manager := &autocert.Manager{
			Prompt:     autocert.AcceptTOS,
			HostPolicy: autocert.HostWhitelist(hosts...),
			Cache:      autocert.DirCache(filepath.Join(cfg.Data, "acme")),
		}
		secure := manager.TLSConfig()
		secure.MinVersion = tls.VersionTLS12
		return secure, nil
	case cfg.TLSCert != "":
		files := &certFiles{cert: cfg.TLSCert, key: cfg.TLSKey}
		if _, err := files.get(time.Now()); err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return files.get(time.Now())
			},
		}, nil
	default:
		return nil, nil
	}
}

// certificateAge is how long a certificate is used before its files are checked again.
const certificateAge = 10 * time.Second

// certFiles is a certificate in files that another program renews.
type certFiles struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // of the newer file, when they were loaded
	checked time.Time
}

// get returns the certificate. It reads changed files again. If they can't be read, perhaps
// because they are being renewed, the last good pair stays in use.
func (f *certFiles) get(now time.Time) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded != nil && now.Sub(f.checked) < certificateAge {
		return f.loaded, nil
	}
	f.checked = now
	changed, err := newest(f.cert, f.key)
	if err == nil && (f.loaded == nil || !changed.Equal(f.changed)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(f.cert, f.key); err == nil {
			f.loaded, f.changed = &pair, changed
		}
	}
	if f.loaded == nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	return f.loaded, nil
}

func newest(paths ...string) (time.Time, error) {
	var t time.Time
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return t, err
		}
		if info.ModTime().After(t) {
			t = info.ModTime()
		}
	}
	return t, nil
}
