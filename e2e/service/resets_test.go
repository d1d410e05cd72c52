package service

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// startSecure starts weir with HTTPS, and returns its address.
func startSecure(t *testing.T, w *harness.Weir, args ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	for name, text := range map[string][]byte{"cert.pem": chain, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	w.Trust = &tls.Config{RootCAs: roots}
	w.Start(append([]string{"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem")}, args...)...)
	return strings.TrimPrefix(w.URL, "https://")
}

// rapid is a connection of HTTP/2 that begins requests and resets them. It speaks frames itself, because a
// client waits before it resets.
type rapid struct {
	*tls.Conn
	next   uint32 // number of the next request
	head   []byte // of a request
	answer chan error
}

const (
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	flagAck       = 1
	endHeaders    = 4
)

func newRapid(t *testing.T, w *harness.Weir, address string) *rapid {
	t.Helper()
	trust := w.Trust.Clone()
	trust.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", address, trust)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rapid{Conn: conn, next: 1, answer: make(chan error, 1)}
	// POST /ucan over HTTPS, in HPACK without compression. Its handler waits for the body.
	c.head = append([]byte{0x83, 0x87, 0x04, 5}, "/ucan"...)
	c.head = append(append(c.head, 0x01, byte(len(address))), address...)
	go c.read()
	if _, err := conn.Write(frame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)); err != nil {
		t.Fatal(err)
	}
	return c
}

// frame appends a frame.
func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// read reports the answers to pings, and the end of the connection.
func (c *rapid) read() {
	for {
		var head [9]byte
		_, err := io.ReadFull(c, head[:])
		if err == nil {
			_, err = io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
		}
		if err != nil {
			c.answer <- err
			return
		}
		if head[3] == framePing && head[4]&flagAck != 0 {
			c.answer <- nil
		}
	}
}

// reset begins n requests and resets them, and waits until weir has seen that. An error means that the
// connection has ended.
func (c *rapid) reset(n int) error {
	var b []byte
	for range n {
		b = frame(b, frameHeaders, endHeaders, c.next, c.head)
		b = frame(b, frameReset, 0, c.next, []byte{0, 0, 0, 8})
		c.next += 2
	}
	if _, err := c.Write(frame(b, framePing, 0, 0, bytes.Repeat([]byte{1}, 8))); err != nil {
		return err
	}
	return <-c.answer
}

// TestResets: the connection of a client that resets its requests at once is closed. Others stay.
func TestResets(t *testing.T) {
	w := harness.NewWeir(t)
	address := startSecure(t, w)
	honest, flood := newRapid(t, w, address), newRapid(t, w, address)
	if err := honest.reset(100); err != nil {
		t.Fatal("a client that reset 100 requests lost its connection:", err)
	}
	// Some handlers still run, at most as many as net/http lets wait.
	const most = 500 + 5*250
	var ended error
	for ended == nil && flood.next/2 < most {
		ended = flood.reset(50)
	}
	if resets := flood.next / 2; ended == nil || resets < 500 {
		t.Errorf("after %d resets the connection ended with %v, want its end after 500 to %d", resets, ended, most)
	}
	if err := honest.reset(1); err != nil {
		t.Error("another client lost its connection:", err)
	}
	if status, _ := w.Do("GET", "/api/stream", nil); status != http.StatusOK {
		t.Errorf("weir answers %d", status)
	}
}
