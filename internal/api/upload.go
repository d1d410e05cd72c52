package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/weir"
)

// newAsset is the response to a request that creates an asset.
type newAsset struct {
	Asset weir.Asset `json:"asset"`
	Task  taskID     `json:"task"`
}

// importAsset answers POST /asset/upload/url. A request that repeats an earlier one gets the asset
// of the earlier one, if that is not finished yet.
func (s *server) importAsset(w http.ResponseWriter, r *request, body weir.NewAsset) error {
	now := time.Now()
	asset, task, err := body.Asset(r.caller, now)
	if err != nil {
		return err
	}
	if err := s.checkSource("url", task.InputURL()); err != nil {
		return err
	}
	response, code := newAsset{}, http.StatusCreated
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		earlier, ok, err := repeated(ctx, tx, asset, task, now)
		if err != nil {
			return err
		}
		if ok {
			response, code = earlier, http.StatusOK
			return nil
		}
		if err := s.createAsset(ctx, tx, &asset, &task, now); err != nil {
			return err
		}
		response = newAsset{asset, taskID{task.ID}}
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, code, response)
}

// repeatable is how long after a request the same request counts as a repetition.
const repeatable = 15 * time.Minute

// repeated looks for the same asset among those that are being made.
func repeated(ctx context.Context, tx *store.Tx, asset weir.Asset, task weir.Task, now time.Time) (newAsset, bool, error) {
	earlier, err := tx.AssetsBeingImported(ctx, asset.UserID, asset.ProjectID, asset.Source.URL, weir.At(now.Add(-repeatable)))
	if err != nil {
		return newAsset{}, false, err
	}
	for _, a := range earlier {
		t, err := tx.TaskOfAsset(ctx, a.ID)
		if ignoreNotFound(err) != nil {
			return newAsset{}, false, err
		}
		if err == nil && weir.SameImport(asset, task, a, t) {
			return newAsset{a.WithoutTracks(), taskID{t.ID}}, true, nil
		}
	}
	return newAsset{}, false, nil
}

// createAsset writes an asset and the task that makes it, after the checks that need the store.
func (s *server) createAsset(ctx context.Context, tx *store.Tx, asset *weir.Asset, task *weir.Task, now time.Time) error {
	notOwned := weir.Errorf(weir.Denied, "the provided object store is not owned by user")
	if err := checkObjectStore(ctx, tx, asset.Owner(), "", asset.ObjectStoreID, notOwned); err != nil {
		return err
	}
	if err := checkPolicyWebhook(ctx, tx, asset.Owner(), nil, asset.PlaybackPolicy); err != nil {
		return err
	}
	if asset.Storage != nil {
		if err := s.checkCopy(ctx, tx, "storage.ipfs", *asset); err != nil {
			return err
		}
	}
	return s.writeAsset(ctx, tx, asset, task, now)
}

// writeAsset writes an asset and its task, if the account may have more of them.
func (s *server) writeAsset(ctx context.Context, tx *store.Tx, asset *weir.Asset, task *weir.Task, now time.Time) error {
	if err := s.checkPending(ctx, tx, asset.UserID); err != nil {
		return err
	}
	if err := tx.CheckQuota(ctx, asset.UserID, weir.Assets, 1); err != nil {
		return err
	}
	if err := tx.CheckQuota(ctx, asset.UserID, weir.Storage, 1); err != nil {
		return err
	}
	if err := tx.CreateAsset(ctx, asset); err != nil {
		return err
	}
	if err := tx.CreateTask(ctx, task); err != nil {
		return err
	}
	events := weir.NewEventBatch(s.EventBase, now)
	events.Asset(weir.AssetCreated, *asset)
	events.Task(weir.TaskSpawned, *task)
	return tx.EmitBatch(ctx, events)
}

// checkPending returns an error if the account has too many pending tasks.
func (s *server) checkPending(ctx context.Context, tx *store.Tx, userID string) error {
	pending, err := tx.PendingTasks(ctx, userID)
	if err != nil || s.MaxPendingTasks == 0 || pending < s.MaxPendingTasks {
		return err
	}
	return weir.TooMany(10*time.Second, "user %s has reached the maximum number of pending tasks", userID)
}

// requestUpload answers POST /asset/request-upload. The asset and its task wait for the bytes.
func (s *server) requestUpload(w http.ResponseWriter, r *request, body weir.NewAsset) error {
	ctx, now := r.Context(), time.Now()
	asset, task, err := body.Asset(r.caller, now)
	if err != nil {
		return err
	}
	key, err := s.uploadKey(ctx) // before the transaction: the first time, it needs its own one
	if err != nil {
		return err
	}
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		return s.createAsset(ctx, tx, &asset, &task, now)
	})
	if err != nil {
		return err
	}
	token, err := signUpload(key, asset, now)
	if err != nil {
		return err
	}
	where := s.base(r.Request) + "/api/asset/upload/"
	query := "?token=" + url.QueryEscape(token)
	return writeJSON(w, http.StatusOK, struct {
		URL         string `json:"url"`
		TusEndpoint string `json:"tusEndpoint"`
		newAsset
	}{where + "direct" + query, where + "tus" + query, newAsset{asset, taskID{task.ID}}})
}

// uploadKey returns the key that signs upload tokens.
func (s *server) uploadKey(ctx context.Context) ([]byte, error) {
	return s.Store.NamedKey(ctx, "upload")
}

// uploadValid is how long the URL of an upload is valid.
const uploadValid = 12 * time.Hour

// uploadClaims are the claims of the token in the URL of an upload.
type uploadClaims struct {
	jwt.RegisteredClaims
	PlaybackID string `json:"playbackId"`
}

// signUpload returns a token that allows the upload of one asset without another credential.
func signUpload(key []byte, asset weir.Asset, now time.Time) (string, error) {
	claims := uploadClaims{PlaybackID: asset.PlaybackID, RegisteredClaims: jwt.RegisteredClaims{
		Subject: asset.ID, Audience: jwt.ClaimStrings{"upload"},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(uploadValid)),
	}}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign upload token: %w", err)
	}
	return token, nil
}
