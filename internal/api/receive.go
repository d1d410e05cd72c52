package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/blob"
	"weir/internal/budget"
	"weir/internal/store"
	"weir/internal/weir"
)

// An upload is stored in parts, objects that are named after their offset: what arrived before a
// connection or a node failed is there when the client comes back. A file that is sent in one
// request is one part.

// uploadFolder returns the folder of the parts of an asset's upload, until the task has made the
// asset of them.
func uploadFolder(assetID string) string { return "upload/" + assetID }

func uploadPartKey(assetID string, offset int64) string {
	return fmt.Sprintf("%s/%020d", uploadFolder(assetID), offset)
}

const (
	// uploadTimeout is how long a client may take to send uploadStep bytes. The whole file has no
	// timeout.
	uploadTimeout = 60 * time.Second
	uploadStep    = 64 << 10
	// spaceStep is after how many bytes of an upload the free space is checked again. Many uploads at
	// once must not fill the disk in between.
	spaceStep = 4 << 20
)

// receiveFile answers PUT /asset/upload/direct. The token in the URL is the only credential.
func (s *server) receiveFile(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	asset, err := s.uploadOf(ctx, r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	if r.ContentLength > s.MaxUpload {
		return s.tooLarge()
	}
	body := &uploadBody{server: s, body: r.Body, size: r.ContentLength, control: http.NewResponseController(w)}
	body.atEnd = func() error {
		if body.n == 0 {
			return weir.Errorf(weir.Invalid, "the file is empty; send its bytes as the body of the request")
		}
		_, err := s.uploading(ctx, asset.ID) // another upload may have been faster
		return err
	}
	if err := s.reserve(ctx, asset.ID, r.ContentLength); err != nil {
		return err
	}
	if err := s.Media.Put(ctx, uploadPartKey(asset.ID, 0), body, r.ContentLength, blob.PutOptions{}); err != nil {
		if body.err != nil {
			return body.err // the storage only wraps it
		}
		return err
	}
	ctx = context.WithoutCancel(ctx) // the whole file has arrived, so the client need not wait
	if err := s.deleteOtherParts(ctx, asset.ID); err != nil {
		return err
	}
	if err := s.uploaded(ctx, asset.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// reserve returns an error if there is no room for an upload, in the storage or in the quota of its
// account. size is negative if it is not known.
func (s *server) reserve(ctx context.Context, assetID string, size int64) error {
	if err := s.FreeSpace(); err != nil {
		return err
	}
	return s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ReserveStorage(ctx, assetID, max(size, 1)) })
}

// deleteOtherParts deletes the parts of an earlier upload by tus.
func (s *server) deleteOtherParts(ctx context.Context, assetID string) error {
	var others []string
	for info, err := range s.Media.List(ctx, uploadFolder(assetID)) {
		if err != nil {
			return err
		}
		if info.Key != uploadPartKey(assetID, 0) {
			others = append(others, info.Key)
		}
	}
	for _, key := range others {
		if err := s.Media.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) tooLarge() error {
	return weir.Errorf(weir.TooLarge, "the file is larger than %d bytes, the maximum of this server", s.MaxUpload)
}

// uploadOf returns the asset of an upload token, if it waits for its bytes.
func (s *server) uploadOf(ctx context.Context, token string) (weir.Asset, error) {
	key, err := s.uploadKey(ctx)
	if err != nil {
		return weir.Asset{}, err
	}
	var claims uploadClaims
	_, err = jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience("upload"), jwt.WithExpirationRequired())
	if err != nil {
		why := "use a URL from the response of request-upload"
		if errors.Is(err, jwt.ErrTokenExpired) {
			why = "it has expired, request a new upload"
		}
		return weir.Asset{}, weir.Wrap(weir.Denied, err, "Invalid signed upload URL: %s", why)
	}
	budget.Authenticated(ctx)
	return s.uploading(ctx, claims.Subject)
}

// uploading returns an asset that waits for its bytes.
func (s *server) uploading(ctx context.Context, id string) (weir.Asset, error) {
	asset, err := s.Store.Asset(ctx, id)
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return asset, err
	}
	switch asset.Status.Phase {
	case weir.AssetUploading:
		return asset, nil
	case weir.AssetFailed:
		return asset, weir.Errorf(weir.Invalid, "asset has failed and accepts no upload; request a new one")
	}
	return asset, weir.Errorf(weir.Invalid, "asset has already been uploaded")
}

// uploaded queues the task of an asset whose bytes have arrived.
func (s *server) uploaded(ctx context.Context, assetID string) error {
	now := time.Now()
	return s.Store.Tx(ctx, func(tx *store.Tx) error {
		task, err := tx.TaskOfAsset(ctx, assetID)
		if err != nil {
			return err
		}
		events := weir.NewEventBatch(s.EventBase, now)
		task, err = tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error {
			if t.Status.Phase != weir.TaskPending {
				return weir.Errorf(weir.Invalid, "asset has already been uploaded")
			}
			t.Queue(now)
			return nil
		})
		if err != nil {
			return err
		}
		asset, err := tx.UpdateAsset(ctx, assetID, func(a *weir.Asset) error {
			if a.Deleted {
				return weir.ErrNotFound()
			}
			a.Requeue(now)
			return nil
		})
		if err != nil {
			return err
		}
		events.Task(weir.TaskUpdated, task)
		events.Asset(weir.AssetUpdated, asset)
		return tx.EmitBatch(ctx, events)
	})
}

// uploadBody is the body of an upload. It enforces the timeout for each step and the maximum size.
type uploadBody struct {
	server  *server
	body    io.Reader
	size    int64 // -1 = unknown
	control *http.ResponseController
	// atEnd is called when all bytes have arrived; its error makes the storage discard them.
	atEnd func() error

	n       int64 // bytes that have arrived
	next    int64 // at how many bytes the deadline moves
	until   time.Time
	checked int64 // at how many bytes the free space was last checked
	ended   bool
	err     error // why the upload fails
}

func (in *uploadBody) Read(b []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	if in.n >= in.next {
		in.next, in.until = in.n+uploadStep, time.Now().Add(in.server.timeout)
		_ = in.control.SetReadDeadline(in.until)
	}
	n, err := in.body.Read(b)
	in.n += int64(n)
	in.err = in.check(err)
	return n, cmp.Or(in.err, err)
}

// check returns why the upload fails, if it does. err is the error of the connection.
func (in *uploadBody) check(err error) error {
	switch {
	case in.n > in.server.MaxUpload:
		return in.server.tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded), err == nil && in.n < in.next && time.Now().After(in.until):
		return weir.Errorf(weir.Refused, "the upload is too slow: less than %d bytes arrived in %s; send the file again, with tus if the connection is bad", uploadStep, in.server.timeout)
	case errors.Is(err, io.EOF), err == nil && in.n == in.size:
		if in.ended {
			return nil
		}
		in.ended = true
		return in.atEnd()
	case err != nil:
		return weir.Wrap(weir.Refused, err, "the upload broke off after %d bytes; send the file again", in.n)
	case in.n-in.checked >= spaceStep:
		in.checked = in.n
		return in.server.FreeSpace()
	}
	return nil
}
