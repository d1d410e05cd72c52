package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weir/internal/config"
)

// writeCertificate writes a self-signed certificate with the serial number into the folder.
func writeCertificate(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		DNSNames:     []string{"localhost"},
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// A time of its own for each certificate, however coarse the clock of the disk.
		if err := os.Chtimes(path, time.Time{}, time.Unix(serial, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSOff(t *testing.T) {
	if secure, err := TLSConfig(&config.Config{}); secure != nil || err != nil {
		t.Errorf("got %v, %v, want no TLS", secure, err)
	}
}

func TestTLSFromFiles(t *testing.T) {
	cert, key := writeCertificate(t, t.TempDir(), 1)
	secure, err := TLSConfig(&config.Config{TLSCert: cert, TLSKey: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secure.GetCertificate(&tls.ClientHelloInfo{ServerName: "localhost"}); err != nil {
		t.Error(err)
	}
	if _, err := TLSConfig(&config.Config{TLSCert: cert, TLSKey: cert}); err == nil {
		t.Error("a key file without a key was accepted")
	}
	if _, err := TLSConfig(&config.Config{TLSCert: "nowhere", TLSKey: key}); err == nil {
		t.Error("a missing certificate was accepted")
	}
}

func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, 1)
	files := &certFiles{cert: cert, key: key}
	now := time.Now()
	serial := func() int64 {
		t.Helper()
		pair, err := files.get(now)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("serial %d, want 1", got)
	}
	writeCertificate(t, dir, 2)
	if got := serial(); got != 1 {
		t.Errorf("serial %d right after the renewal, want 1: the files are not read at each connection", got)
	}
	now = now.Add(certificateAge)
	if got := serial(); got != 2 {
		t.Errorf("serial %d later, want the renewed 2", got)
	}
	if err := os.WriteFile(key, []byte("half written"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(certificateAge)
	if got := serial(); got != 2 {
		t.Errorf("serial %d with a broken key file, want the last good 2", got)
	}
	writeCertificate(t, dir, 3)
	now = now.Add(certificateAge)
	if got := serial(); got != 3 {
		t.Errorf("serial %d after repair, want 3", got)
	}
}

func TestACME(t *testing.T) {
	secure, err := TLSConfig(&config.Config{ACME: "video.example.com", Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(secure.NextProtos, "acme-tls/1") {
		t.Errorf("protocols %v do not have the challenge", secure.NextProtos)
	}
	// Refused before a certificate is requested.
	if _, err := secure.GetCertificate(&tls.ClientHelloInfo{ServerName: "other.example.com"}); err == nil {
		t.Error("a certificate for a host that is not ours")
	}
}
