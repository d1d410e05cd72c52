package ipfs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/weir"
)

// kuboStall is how long an IPFS node may neither take nor send a byte.
const kuboStall = 2 * time.Minute

// errLost means that a Remote no longer has shards that it took, so all of them must be sent again.
var errLost = errors.New("shards are lost")

// NewKubo returns an IPFS node as a Remote, by the URL of its RPC, like http://127.0.0.1:5001. A user
// and a password in the URL are sent as basic authentication, a user alone as a bearer token. The node
// imports every shard and pins the root at the end; Remove removes the pin, and the node deletes the
// blocks when it collects garbage.
func NewKubo(rpcURL string) (Remote, error) {
	u, err := url.Parse(rpcURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, weir.Errorf(weir.Invalid, "the URL of the IPFS node can't be read; write it as http://host:5001")
	}
	k := &kubo{base: *u, stall: kuboStall}
	k.base.User = nil
	k.base.Path = strings.TrimSuffix(u.Path, "/")
	if u.User != nil {
		k.user = u.User.Username()
		k.password, k.basic = u.User.Password()
	}
	// A request is a shard, so connections are not worth keeping. The node is asked before a shard is
	// sent, because the refusal of one that is being sent is often lost with the connection.
	k.client = &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ExpectContinueTimeout: 10 * time.Second,
	}}
	return k, nil
}

type kubo struct {
	base           url.URL
	user, password string
	basic          bool
	client         *http.Client
	stall          time.Duration
}

// PutShard sends a shard even if the node has it: the node has no call that says so for many blocks,
// and dest does not ask for stored shards again.
func (k *kubo) PutShard(ctx context.Context, s Shard, open func() (io.ReadCloser, error)) error {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if _, err := w.CreateFormFile("file", "shard.car"); err != nil {
		return err
	}
	start := form.Len()
	if err := w.Close(); err != nil {
		return err
	}
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	head, tail := form.Bytes()[:start], form.Bytes()[start:]
	return k.call(ctx, "dag/import", url.Values{"pin-roots": {"false"}}, &upload{
		Reader: io.MultiReader(bytes.NewReader(head), r, bytes.NewReader(tail)),
		size:   int64(form.Len()) + s.Size, kind: w.FormDataContentType(),
	})
}

// Finish pins the root. The node must have all blocks: it does not look for them on the network.
func (k *kubo) Finish(ctx context.Context, root string, _ []Shard) error {
	err := k.call(ctx, "pin/add", url.Values{"arg": {root}, "recursive": {"true"}, "progress": {"true"}, "offline": {"true"}}, nil)
	if err != nil && strings.Contains(err.Error(), "not found locally") {
		return weir.Wrap(weir.Upstream, errors.Join(errLost, err), "the IPFS node removed blocks before the upload was complete")
	}
	return err
}

func (k *kubo) Remove(ctx context.Context, root string) error {
	err := k.call(ctx, "pin/rm", url.Values{"arg": {root}, "recursive": {"true"}}, nil)
	if err != nil && strings.Contains(err.Error(), "not pinned") {
		return nil
	}
	return err
}

// upload is the body of a request. It tells when bytes are taken.
type upload struct {
	io.Reader
	size  int64
	kind  string
	moved func()
}

func (u *upload) Read(p []byte) (int, error) {
	u.moved()
	return u.Reader.Read(p)
}

// keptResponse bounds what is read of the response of a node.
const keptResponse = 1 << 20

// call sends a command to the node and waits for its end.
func (k *kubo) call(ctx context.Context, command string, query url.Values, body *upload) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := weir.Errorf(weir.Upstream, "the IPFS node at %s stopped answering", k.base.Host)
	timer := time.AfterFunc(k.stall, func() { cancel(stalled) })
	defer timer.Stop()
	moved := func() { timer.Reset(k.stall) }

	u := k.base
	u.Path += "/api/v0/" + command
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return err
	}
	if body != nil {
		body.moved = moved
		r.Body, r.ContentLength = io.NopCloser(body), body.size
		r.Header.Set("Content-Type", body.kind)
		r.Header.Set("Expect", "100-continue")
	}
	switch {
	case k.basic:
		r.SetBasicAuth(k.user, k.password)
	case k.user != "":
		r.Header.Set("Authorization", "Bearer "+k.user)
	}
	resp, err := k.client.Do(r)
	if err != nil {
		return k.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	var response bytes.Buffer
	for part := make([]byte, 16<<10); err == nil; moved() {
		var n int
		n, err = resp.Body.Read(part)
		response.Write(part[:min(n, keptResponse-response.Len())])
	}
	if !errors.Is(err, io.EOF) {
		return k.failed(ctx, err)
	}
	// A command that fails after it began to answer says so at the end.
	return k.refusal(resp, response.Bytes())
}

// failed returns the error for a connection that failed.
func (k *kubo) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return weir.Wrap(weir.Upstream, err, "the IPFS node at %s can't be reached", k.base.Host)
}

// refusal returns the error in a response, if there is one.
func (k *kubo) refusal(resp *http.Response, response []byte) error {
	message := resp.Trailer.Get("X-Stream-Error")
	if resp.StatusCode != http.StatusOK {
		var e struct{ Message string }
		_ = json.Unmarshal(response, &e)
		message = cmp.Or(e.Message, resp.Status)
	}
	const longest = 300 // of a sentence of the node
	switch code := resp.StatusCode; {
	case message == "":
		return nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return weir.Errorf(weir.Unavailable, "the IPFS node at %s refuses weir's credentials", k.base.Host)
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return weir.Errorf(weir.Unavailable, "%s is not the RPC of an IPFS node", k.base.Host)
	default:
		return weir.Errorf(weir.Upstream, "the IPFS node at %s failed: %s", k.base.Host, weir.Shorten(message, longest))
	}
}
