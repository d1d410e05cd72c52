package ipfs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/ipld"
	"weir/internal/ucan"
	"weir/internal/weir"
)

// Service is a UCAN upload service, together with the proof of a space to write to. All its methods
// may be called at the same time.
type Service struct {
	url, did string
	identity ucan.Identity
	proof    ucan.Proof
	client   *http.Client

	waits []time.Duration // before an attempt is repeated
	poll  time.Duration   // between two questions for the receipt of a blob
}

var _ Remote = (*Service)(nil)

// Bounds of the requests to an upload service.
const (
	responseTimeout = time.Minute     // of an invocation, and for the receipt of a blob
	putTimeout      = 5 * time.Minute // of a PUT, and a second for each putRate bytes more
	putRate         = 256 << 10
	maxResponse     = 8 << 20 // bytes
)

// NewService returns the Remote that uploads to the service at url, whose DID is did, into the space
// of the proof.
func NewService(url, did string, identity ucan.Identity, proof ucan.Proof) *Service {
	return &Service{
		url: url, did: did, identity: identity, proof: proof,
		// An invocation, or the bytes of a caller, must not go to another server.
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		waits:  []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second},
		poll:   500 * time.Millisecond,
	}
}

// PutShard implements Remote.
func (s *Service) PutShard(ctx context.Context, shard Shard, open func() (io.ReadCloser, error)) error {
	return s.putBlob(ctx, shard.Digest, shard.Size, open)
}

// Finish implements Remote.
func (s *Service) Finish(ctx context.Context, root string, shards []Shard) error {
	index, err := shardIndex(root, shards)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(index)
	if err := s.putBlob(ctx, digest, int64(len(index)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(index)), nil }); err != nil {
		return err
	}
	if _, err := s.call(ctx, ucan.IndexAdd, ucan.Map{"index": ipld.NewCID(ipld.CAR, digest)}); err != nil {
		return err
	}
	var links []any
	for _, shard := range shards {
		links = append(links, ipld.NewCID(ipld.CAR, shard.Digest))
	}
	c, err := ipld.ParseCID(root)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, ucan.UploadAdd, ucan.Map{"root": c, "shards": links})
	return err
}

// Remove takes an upload out of the list of its space, if the proof allows that.
func (s *Service) Remove(ctx context.Context, root string) error {
	if !s.proof.Allows(ucan.UploadRemove) {
		return weir.Errorf(weir.Denied, "the proof does not allow %s", ucan.UploadRemove)
	}
	c, err := ipld.ParseCID(root)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, ucan.UploadRemove, ucan.Map{"root": c})
	return err
}

// List returns roots of uploads in the space, those after the cursor, if the proof allows that. After
// the last one there is no next cursor, or no root after it.
func (s *Service) List(ctx context.Context, cursor string) (roots []string, next string, err error) {
	if !s.proof.Allows(ucan.UploadList) {
		return nil, "", weir.Errorf(weir.Denied, "the proof does not allow %s", ucan.UploadList)
	}
	args := ucan.Map{}
	if cursor != "" {
		args["cursor"] = cursor
	}
	ok, err := s.call(ctx, ucan.UploadList, args)
	if err != nil {
		return nil, "", err
	}
	page, _ := ok.(ucan.Map)
	results, _ := page["results"].([]any)
	for _, r := range results {
		upload, _ := r.(ucan.Map)
		if root, ok := upload["root"].(ipld.CID); ok {
			roots = append(roots, root.String())
		}
	}
	if len(roots) > 0 {
		next, _ = page["cursor"].(string)
	}
	return roots, next, nil
}

// call sends an invocation to the service and returns its result, with retries.
func (s *Service) call(ctx context.Context, can string, args ucan.Map) (ok any, err error) {
	err = s.retry(ctx, func() error {
		_, receipt, err := s.invoke(ctx, can, args)
		ok = receipt.OK
		return err
	})
	return ok, err
}

// putBlob stores bytes in the space unless they are stored there already.
func (s *Service) putBlob(ctx context.Context, digest [sha256.Size]byte, size int64, open func() (io.ReadCloser, error)) error {
	return s.retry(ctx, func() error {
		response, receipt, err := s.invoke(ctx, ucan.BlobAdd, ucan.Map{"blob": ucan.Map{"digest": ipld.Multihash(digest), "size": size}})
		if err != nil {
			return err
		}
		allocate, ok1 := response.Task(receipt, "blob/allocate")
		put, ok2 := response.Task(receipt, "http/put")
		accept, ok3 := response.Task(receipt, "blob/accept")
		allocated, ok4 := response.Receipt(allocate.Link)
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return weir.Wrap(weir.Upstream, errors.New("a response without blob/allocate, http/put and blob/accept"), "the upload service sent an invalid response")
		}
		if allocated.Error != nil {
			return serviceError(allocated.Error)
		}
		// If another upload has stored these bytes, there is no address, or the PUT has a receipt.
		if stored, ok := response.Receipt(put.Link); !ok || stored.Error != nil {
			if address, ok := member[ucan.Map](allocated.OK, "address"); ok {
				if err := s.put(ctx, address, size, open); err != nil {
					return err
				}
			}
			if err := s.conclude(ctx, put); err != nil {
				return err
			}
		}
		accepted, ok := response.Receipt(accept.Link)
		if !ok || accepted.Error != nil {
			if accepted, err = s.await(ctx, accept.Link); err != nil {
				return err
			}
		}
		if accepted.Error != nil {
			return serviceError(accepted.Error)
		}
		return nil
	})
}

// put sends the bytes of a blob to the address that the service gave for it.
func (s *Service) put(ctx context.Context, address ucan.Map, size int64, open func() (io.ReadCloser, error)) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout+time.Duration(size/putRate)*time.Second)
	defer cancel()
	body, err := open()
	if err != nil {
		return err
	}
	defer body.Close()
	to, _ := address["url"].(string)
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, to, body)
	if err != nil {
		return weir.Wrap(weir.Upstream, err, "the upload service sent an invalid response")
	}
	// Without a length the body would be sent in chunks, which most storage refuses.
	if r.ContentLength = size; size == 0 {
		r.Body = http.NoBody
	}
	headers, _ := address["headers"].(ucan.Map)
	for name, v := range headers {
		if text, ok := v.(string); ok && !strings.EqualFold(name, "content-length") {
			r.Header.Set(name, text)
		}
	}
	_, err = s.send(r)
	return err
}

// conclude tells the service that the bytes of a blob were sent.
func (s *Service) conclude(ctx context.Context, put ucan.Task) error {
	var key []byte
	if len(put.Facts) > 0 {
		if keys, ok := member[ucan.Map](put.Facts[0], "keys"); ok {
			id, _ := keys["id"].(string)
			key, _ = member[[]byte](keys["keys"], id)
		}
	}
	invocation, err := s.identity.Conclude(s.did, put.Link, key)
	if err != nil {
		return weir.Wrap(weir.Upstream, err, "the upload service sent an invalid response")
	}
	_, _, err = s.post(ctx, invocation)
	return err
}

// await returns the receipt of a task that the service does by itself.
func (s *Service) await(ctx context.Context, task ipld.CID) (ucan.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	to, err := url.JoinPath(s.url, "receipt", task.String())
	if err != nil {
		return ucan.Receipt{}, err
	}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
		if err != nil {
			return ucan.Receipt{}, err
		}
		body, err := s.send(r)
		switch {
		case err == nil:
			response, err := ucan.ReadResponse(body)
			if err != nil {
				return ucan.Receipt{}, weir.Wrap(weir.Upstream, err, "the upload service sent an invalid response")
			}
			if receipt, ok := response.Receipt(task); ok {
				return receipt, nil
			}
		case !weir.IsNotFound(err):
			return ucan.Receipt{}, err
		}
		if err := sleep(ctx, s.poll); err != nil {
			return ucan.Receipt{}, weir.Wrap(weir.Upstream, err, "the upload service did not confirm an upload")
		}
	}
}

// invoke sends an invocation about the space to the service.
func (s *Service) invoke(ctx context.Context, can string, args ucan.Map) (*ucan.Response, ucan.Receipt, error) {
	command := ucan.Command{Audience: s.did, Can: can, With: s.proof.Space, Args: args, Nonce: rand.Text(), Expires: time.Now().Add(2 * responseTimeout)}
	invocation, err := s.identity.Invoke(command, &s.proof)
	if err != nil {
		return nil, ucan.Receipt{}, err
	}
	return s.post(ctx, invocation)
}

// post sends an invocation and returns its receipt.
func (s *Service) post(ctx context.Context, invocation ucan.Invocation) (*ucan.Response, ucan.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(invocation.Message))
	if err != nil {
		return nil, ucan.Receipt{}, err
	}
	r.Header.Set("Content-Type", ucan.MessageType)
	r.Header.Set("Accept", ucan.MessageType)
	body, err := s.send(r)
	if err != nil {
		return nil, ucan.Receipt{}, err
	}
	response, err := ucan.ReadResponse(body)
	if err != nil {
		return nil, ucan.Receipt{}, weir.Wrap(weir.Upstream, err, "the upload service sent an invalid response")
	}
	receipt, ok := response.Receipt(invocation.Link)
	if !ok {
		return nil, ucan.Receipt{}, weir.Errorf(weir.Upstream, "the upload service sent a response without a receipt")
	}
	if receipt.Error != nil {
		return nil, ucan.Receipt{}, serviceError(receipt.Error)
	}
	return response, receipt, nil
}

// send sends a request and returns the body of the response.
func (s *Service) send(r *http.Request) ([]byte, error) {
	res, err := s.client.Do(r)
	if err != nil {
		if ctx := r.Context(); ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ctx.Err()
		}
		return nil, weir.Wrap(weir.Upstream, withoutURL(err), "the upload service is not available")
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, weir.Wrap(weir.Upstream, err, "the upload service is not available")
	case res.StatusCode == http.StatusNotFound && r.Method == http.MethodGet:
		return nil, weir.ErrNotFound()
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, weir.Wrap(weir.Upstream, fmt.Errorf("%s: status %d", r.Method, res.StatusCode), "the upload service is not available")
	case len(body) > maxResponse:
		return nil, weir.Errorf(weir.Upstream, "the upload service sent a response that is too long")
	}
	return body, nil
}

// withoutURL returns an error of an HTTP client without the address, which may have a signature.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// serviceError returns the error for a failed receipt. The texts of the service are not for the
// caller: they name CIDs of other delegations than the caller's.
func serviceError(failure ucan.Map) error {
	name, _ := failure["name"].(string)
	text, _ := failure["message"].(string)
	cause := fmt.Errorf("%s: %s", name, weir.Shorten(text, 500))
	switch {
	case strings.Contains(text, "has been revoked"):
		return weir.Errorf(weir.Denied, "the delegation was revoked; make another proof")
	case name == "InsufficientStorage" || strings.Contains(text, "no storage provider"):
		return weir.Wrap(weir.Denied, cause, "the space has no storage provider at the upload service, or no free space")
	case name == "ServiceUnavailable" || strings.Contains(text, "currently disabled"):
		return weir.Wrap(weir.Unavailable, cause, "the upload service does not take uploads any more")
	case name == "InvalidAudience":
		return weir.Wrap(weir.Unavailable, cause, "the DID of the upload service differs from that in the settings of this server")
	case name == "Unauthorized":
		return weir.Wrap(weir.Denied, cause, "the upload service does not accept the proof; make another one")
	case name == "UploadNotFound":
		return weir.Wrap(weir.NotFound, cause, "not found")
	}
	return weir.Wrap(weir.Upstream, cause, "the upload service failed")
}

// retry repeats an attempt while its error may go away.
func (s *Service) retry(ctx context.Context, attempt func() error) error {
	for _, wait := range s.waits {
		err := attempt()
		if err == nil || !weir.Retriable(err) || ctx.Err() != nil {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
	return attempt()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// shardIndex returns the index of an upload, a CAR file that says where the blocks are:
// index/sharded/dag@0.1. Shards and blocks are sorted by their hashes.
func shardIndex(root string, shards []Shard) ([]byte, error) {
	content, err := ipld.ParseCID(root)
	if err != nil {
		return nil, err
	}
	shards = slices.SortedFunc(slices.Values(shards), func(a, b Shard) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	var blocks []byte
	links := []any{}
	for _, s := range shards {
		type place struct {
			hash         []byte
			offset, size int64
		}
		places := []place{{ipld.Multihash(s.Digest), 0, s.Size}} // the shard itself is a block, too
		for _, b := range s.Blocks {
			places = append(places, place{b.Hash, b.Offset, b.Size})
		}
		slices.SortFunc(places, func(a, b place) int { return cmp.Or(bytes.Compare(a.hash, b.hash), cmp.Compare(a.offset, b.offset)) })
		var slots []any
		for _, p := range places {
			slots = append(slots, []any{p.hash, []any{p.offset, p.size}})
		}
		block, err := ipld.EncodeCBOR([]any{ipld.Multihash(s.Digest), slots})
		if err != nil {
			return nil, err
		}
		c := ipld.Sum(ipld.DagCBOR, block)
		links = append(links, c)
		blocks = ipld.AppendCARBlock(blocks, c, block)
	}
	block, err := ipld.EncodeCBOR(ipld.Map{"index/sharded/dag@0.1": ipld.Map{"content": content, "shards": links}})
	if err != nil {
		return nil, err
	}
	c := ipld.Sum(ipld.DagCBOR, block)
	return append(ipld.AppendCARBlock(ipld.AppendCARHeader(nil, c), c, block), blocks...), nil
}

// member returns a member of a map, if the value is a map and the member has the type.
func member[T any](value any, name string) (T, bool) {
	m, _ := value.(ucan.Map)
	v, ok := m[name].(T)
	return v, ok
}
