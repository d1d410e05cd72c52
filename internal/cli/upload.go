package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weir/internal/weir"
)

const (
	// maxUploadRequest is how much of a file goes into one request. What arrived of a request that broke counts.
	maxUploadRequest = 64 << 20
	// maxUploadFailures is how many requests in a row may fail without a byte that arrived.
	maxUploadFailures = 12
	// The delay after the first failure, and the longest.
	firstUploadDelay = 500 * time.Millisecond
	lastUploadDelay  = 30 * time.Second
)

// tusUpload is the upload of a file to an asset, by the tus protocol. It is kept in a file until it is finished, so
// that the same command continues it when it was interrupted.
type tusUpload struct {
	Asset    weir.Asset  `json:"asset"`
	Location weir.Secret `json:"-"` // of the upload at the server, which is a credential

	client *client
	state  string // file that keeps the upload; "" = there is no place for it
}

// storedUpload is what the file of an upload has.
type storedUpload struct {
	ID         string `json:"id"`
	PlaybackID string `json:"playbackId"`
	Location   string `json:"location"`
}

// openUpload continues the upload of a file, or begins one.
func (c *client) openUpload(ctx context.Context, path, name string, info os.FileInfo) (u *tusUpload, offset int64, err error) {
	u = &tusUpload{client: c, state: uploadState(c.base, path, name, info)}
	if u.load() {
		if offset, err = u.offset(ctx); err == nil || weir.Retriable(err) || ctx.Err() != nil {
			return u, offset, err
		}
		u.forget() // it expired, or the asset was deleted
	}
	var created struct {
		TusEndpoint string     `json:"tusEndpoint"`
		Asset       weir.Asset `json:"asset"`
	}
	if err := c.call(ctx, http.MethodPost, "/api/asset/request-upload", map[string]string{"name": name}, &created); err != nil {
		return nil, 0, err
	}
	u.Asset = created.Asset
	endpoint, err := c.own(created.TusEndpoint)
	if err != nil {
		return nil, 0, err
	}
	header, err := u.request(ctx, http.MethodPost, endpoint, http.Header{"Upload-Length": {strconv.FormatInt(info.Size(), 10)}}, nil, 0)
	if err != nil {
		return nil, 0, err
	}
	location, err := c.own(header.Get("Location"))
	if err != nil {
		return nil, 0, err
	}
	u.Location = weir.Secret(location)
	u.save()
	return u, 0, nil
}

// send sends the file from the offset on. After a failure it continues with what has arrived.
func (u *tusUpload) send(ctx context.Context, file io.ReaderAt, size, offset int64, progress func(done int64)) error {
	failures, delay := 0, firstUploadDelay
	for offset < size {
		n := min(maxUploadRequest, size-offset)
		body := &countedReader{r: io.NewSectionReader(file, offset, n), count: func(read int64) { progress(offset + read) }}
		_, err := u.request(ctx, http.MethodPatch, u.Location.Reveal(), http.Header{
			"Content-Type": {"application/offset+octet-stream"}, "Upload-Offset": {strconv.FormatInt(offset, 10)},
		}, body, n)
		if err == nil {
			offset, failures, delay = offset+n, 0, firstUploadDelay
			progress(offset)
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		arrived, headErr := u.offset(ctx)
		switch {
		case headErr == nil && arrived > offset:
			offset, failures, delay = arrived, 0, firstUploadDelay
		case headErr != nil && !weir.Retriable(headErr):
			return headErr
		default:
			if failures++; failures == maxUploadFailures {
				return fmt.Errorf("%d requests in a row failed; give the same command again to continue: %w", failures, err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		delay = min(2*delay, lastUploadDelay)
	}
	u.forget()
	return nil
}

// offset asks the server how many bytes have arrived.
func (u *tusUpload) offset(ctx context.Context) (int64, error) {
	header, err := u.request(ctx, http.MethodHead, u.Location.Reveal(), nil, nil, 0)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(header.Get("Upload-Offset"), 10, 64)
}

// request sends a request of the tus protocol and returns the headers of the response. The address is the credential.
func (u *tusUpload) request(ctx context.Context, method, address string, header http.Header, body io.Reader, size int64) (http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Tus-Resumable", "1.0.0")
	r.ContentLength = size
	resp, err := u.client.do(r)
	if err != nil {
		return nil, err
	}
	return resp.Header, resp.Body.Close()
}

// uploadState returns the file that keeps the upload of a file to a server. Another file at the same path has
// another one.
func uploadState(base, path, name string, info os.FileInfo) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%d", base, full, name, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(cache, "weir", "uploads", hex.EncodeToString(sum[:16])+".json")
}

// load reads the upload from its file.
func (u *tusUpload) load() bool {
	text, err := os.ReadFile(u.state)
	var stored storedUpload
	if err != nil || json.Unmarshal(text, &stored) != nil || stored.Location == "" {
		return false
	}
	u.Asset, u.Location = weir.Asset{ID: stored.ID, PlaybackID: stored.PlaybackID}, weir.Secret(stored.Location)
	return true
}

// save writes the upload to its file. Without it, only this command can continue the upload.
func (u *tusUpload) save() {
	if u.state == "" || os.MkdirAll(filepath.Dir(u.state), 0o700) != nil {
		return
	}
	if text, err := json.Marshal(storedUpload{u.Asset.ID, u.Asset.PlaybackID, u.Location.Reveal()}); err == nil {
		_ = os.WriteFile(u.state, text, 0o600)
	}
}

func (u *tusUpload) forget() { _ = os.Remove(u.state) }

// countedReader tells how many bytes were read.
type countedReader struct {
	r     io.Reader
	n     int64
	count func(n int64)
}

func (c *countedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	c.count(c.n)
	return n, err
}
