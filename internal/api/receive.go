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
	"weir/internal/store"
	"weir/internal/weir"
)

// An upload is kept in parts, objects that are named after the byte they start
// at: what arrived before a connection broke, or a node, is there when the client
// comes back. A file that is sent at once is one part.

// uploadFolder is where the parts of an asset's upload are kept until the task has
// made the asset of them.
func uploadFolder(assetID string) string { return "upload/" + assetID }

func partKey(assetID string, offset int64) string {
	return fmt.Sprintf("%s/%020d", uploadFolder(assetID), offset)
}

// receiveTimeout is how long nothing may arrive of an upload.
const receiveTimeout = 60 * time.Second

// receiveFile answers PUT /asset/upload/direct. The token in the address is the only
// credential.
func (s *server) receiveFile(w http.ResponseWriter, r *request) error {
	asset, err := s.uploadOf(r.Context(), r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	if r.ContentLength > s.MaxUpload {
		return s.tooLarge()
	}
	if err := s.Room(); err != nil {
		return err
	}
	body := &limited{r: &patient{r: r.Body, control: http.NewResponseController(w)}, left: s.MaxUpload, over: s.tooLarge()}
	counted := &counter{r: body}
	ctx := r.Context()
	if err := s.Media.Put(ctx, partKey(asset.ID, 0), counted, r.ContentLength, blob.PutOptions{}); err != nil {
		if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return weir.Wrap(weir.TooLarge, e, "the file is too large")
		}
		if body.err != nil && !errors.Is(body.err, io.EOF) && weir.KindOf(err) == weir.Internal {
			return weir.Wrap(weir.Refused, err, "the file did not arrive whole: %d bytes came; send it again", counted.n)
		}
		return err
	}
	if counted.n == 0 {
		return weir.Errorf(weir.Invalid, "the file is empty; send its bytes as the body of the request")
	}
	if err := s.uploaded(ctx, asset.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *server) tooLarge() error {
	return weir.Errorf(weir.TooLarge, "the file is larger than the %d bytes that this service takes", s.MaxUpload)
}

// uploadOf returns the asset that a token of an upload's address is for, if its
// bytes are still to come.
func (s *server) uploadOf(ctx context.Context, token string) (weir.Asset, error) {
	key, err := s.uploadKey(ctx)
	if err != nil {
		return weir.Asset{}, err
	}
	var claims uploadClaims
	_, err = jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience("upload"), jwt.WithExpirationRequired())
	if err != nil {
		why := "use the address that request-upload answered"
		if errors.Is(err, jwt.ErrTokenExpired) {
			why = "it has expired, request a new upload"
		}
		return weir.Asset{}, weir.Wrap(weir.Denied, err, "Invalid signed upload URL: %s", why)
	}
	return s.uploading(ctx, claims.Subject)
}

// uploading returns an asset that waits for its bytes.
func (s *server) uploading(ctx context.Context, id string) (weir.Asset, error) {
	asset, err := s.Store.Asset(ctx, id)
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if err == nil && asset.Status.Phase != weir.AssetUploading {
		err = weir.Errorf(weir.Invalid, "asset has already been uploaded")
	}
	return asset, err
}

// uploaded makes the task of an asset wait for its turn, now that the bytes are
// there.
func (s *server) uploaded(ctx context.Context, assetID string) error {
	now := time.Now()
	return s.Store.Tx(ctx, func(tx *store.Tx) error {
		task, err := tx.TaskOfAsset(ctx, assetID)
		if err != nil {
			return err
		}
		n := s.news(now)
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
		n.task(weir.TaskUpdated, task)
		n.asset(weir.AssetUpdated, asset)
		return n.emit(ctx, tx)
	})
}

// patient is a body that may take as long as it likes, while something arrives.
type patient struct {
	r       io.Reader
	control *http.ResponseController
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(receiveTimeout))
	n, err := p.r.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = weir.Wrap(weir.Refused, err, "nothing arrived for %s; send the file again", receiveTimeout)
	}
	return n, err
}

// limited is a body that must not be longer than it may be.
type limited struct {
	r    io.Reader
	left int64
	over error
	err  error // what ended it
}

func (l *limited) Read(b []byte) (n int, err error) {
	n, err = l.r.Read(b)
	if l.left -= int64(n); l.left < 0 {
		err = l.over
	}
	l.err = cmp.Or(l.err, err)
	return n, err
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
