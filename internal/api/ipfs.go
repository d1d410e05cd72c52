package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// IPFS says what the service can store on IPFS.
type IPFS struct {
	// CheckProof refuses a proof with which no task could write to a space.
	CheckProof func(proof string) error
	// CheckCopy refuses copies of assets, which have no proof; nil = they are possible.
	CheckCopy func() error
	// URL is that of the gateway, if it has a host of its own.
	URL string
	// Local says that uploads are in weir's own storage.
	Local bool
}

// checkProof refuses a task for IPFS that has no proof, or one that will not do.
func (s *server) checkProof(t weir.Task) error {
	if !t.OnIPFS() {
		return nil
	}
	err := s.IPFS.CheckProof(t.Secrets.Proof)
	if e, ok := errors.AsType[*weir.Error](err); ok {
		return weir.Wrap(e.Kind, e.Err, "storage.credentials.proof: %s", strings.Join(e.Messages, "; "))
	}
	return err
}

// checkRoom refuses an upload for which the account has no storage left.
func (s *server) checkRoom(ctx context.Context, tx *store.Tx, userID string) error {
	if !s.IPFS.Local {
		return nil
	}
	return tx.CheckQuota(ctx, userID, weir.Storage, 1)
}

// checkCopy refuses a copy of an asset that can't be made. field is what asks for it in the request.
func (s *server) checkCopy(ctx context.Context, tx *store.Tx, field string, a weir.Asset) error {
	if s.IPFS.CheckCopy != nil {
		if err := s.IPFS.CheckCopy(); err != nil {
			return weir.Errorf(weir.KindOf(err), "%s: %s", field, err)
		}
	}
	if a.Source.Encryption != nil {
		return weir.Errorf(weir.Invalid, "%s: the file of an encrypted source is not kept, so there is nothing to copy to IPFS; leave it out", field)
	}
	return s.checkRoom(ctx, tx, a.UserID)
}

// shownUpload is an upload with its addresses.
type shownUpload struct {
	weir.IPFSUpload
	URL        string `json:"url"`
	GatewayURL string `json:"gatewayUrl,omitempty"`
}

// showUpload shows an upload.
func (s *server) showUpload(r *request) func(weir.IPFSUpload) shownUpload {
	base := s.addresses(r.Request)
	return func(u weir.IPFSUpload) shownUpload {
		shown := shownUpload{IPFSUpload: u, URL: weir.IPFSScheme + u.Root}
		if u.Remote == weir.IPFSLocal {
			shown.GatewayURL = base.GatewayURL(u.Root)
		}
		return shown
	}
}

// listIPFSUploads answers GET /ipfs/upload.
func (s *server) listIPFSUploads(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	q.Filters = append(q.Filters, equals(r.URL.Query(), "cid", "space", "taskId", "assetId")...)
	page, err := s.Store.CompleteIPFSUploads(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, s.showUpload(r))
}

// getIPFSUpload answers GET /ipfs/upload/{id}.
func (s *server) getIPFSUpload(w http.ResponseWriter, r *request) error {
	u, err := get(r, s.Store.IPFSUpload, r.PathValue("id"))
	if err == nil && !u.Complete {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.showUpload(r)(u))
}

// deleteIPFSUpload answers DELETE /ipfs/upload/{id}. A job removes the bytes.
func (s *server) deleteIPFSUpload(w http.ResponseWriter, r *request) error {
	ctx, events := r.Context(), weir.NewEventBatch(s.EventBase, time.Now())
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error {
		u, err := tx.DeleteIPFSUpload(ctx, r.PathValue("id"), func(u *weir.IPFSUpload) error {
			if !u.Complete || u.Deleted {
				return weir.ErrNotFound()
			}
			return checkOwner(r, u.Owner())
		})
		if err != nil {
			return err
		}
		if err := tx.ForgetCopy(ctx, u, events); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	}))
}
