package playback

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/rtc"
	"weir/internal/store"
)

// NodePath is the path prefix for requests between nodes.
const NodePath = "/_node/"

const (
	// signatureHeader has the time of a request and its signature.
	signatureHeader = "Weir-Node"
	// signatureLife is how long a signature is valid; clocks may differ by as much.
	signatureLife = 30 * time.Second
	// maxBody is the maximum size of the body of a request between nodes: an offer.
	maxBody = rtc.MaxOffer
)

// Peers sends and checks requests between nodes. They are signed with a secret that is in the
// store, encrypted with the master secret.
type Peers struct {
	key    []byte
	client *http.Client
}

// OpenPeers reads the secret of the nodes. Close must be called at the end.
func OpenPeers(ctx context.Context, st *store.Store) (*Peers, error) {
	key, err := st.NamedSecret(ctx, "node", newSecret)
	if err != nil {
		return nil, err
	}
	return &Peers{key: key, client: &http.Client{
		// Nodes are reached directly, whatever proxy the environment names.
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, TLSHandshakeTimeout: 2 * time.Second,
			MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func newSecret() ([]byte, error) {
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	return secret, err
}

// Close closes idle connections.
func (p *Peers) Close() { p.client.CloseIdleConnections() }

// Do sends a request to the node at base; path begins with NodePath and may have a query. The
// caller closes the body of the response.
func (p *Peers) Do(ctx context.Context, method, base, path string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set(signatureHeader, now+" "+p.sign(now, method, path, body))
	response, err := p.client.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which can contain a stream key
	}
	return response, err
}

func (p *Peers) sign(now, method, path string, body []byte) string {
	mac := hmac.New(sha256.New, p.key)
	fmt.Fprintf(mac, "weir node\n%s\n%s\n%s\n%x", now, method, path, sha256.Sum256(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// Only passes requests of other nodes to a handler. Other clients get 404.
func (p *Peers) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil || !p.signed(r, body, time.Now()) {
			http.NotFound(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// signed reports whether a request has a valid signature.
func (p *Peers) signed(r *http.Request, body []byte, now time.Time) bool {
	at, signature, _ := strings.Cut(r.Header.Get(signatureHeader), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > signatureLife {
		return false
	}
	return hmac.Equal([]byte(signature), []byte(p.sign(at, r.Method, r.RequestURI, body)))
}
