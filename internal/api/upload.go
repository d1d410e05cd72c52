package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/weir"
)

// newAsset is the answer to a request for an asset.
type newAsset struct {
	Asset weir.Asset `json:"asset"`
	Task  taskID     `json:"task"`
}

// importAsset answers POST /asset/upload/url. A request that repeats another one,
// which is still being worked on, gets the asset of the first.
func (s *server) importAsset(w http.ResponseWriter, r *request) error {
	var body weir.NewAsset
	if err := r.decode(&body); err != nil {
		return err
	}
	now := time.Now()
	asset, task, err := body.Asset(r.caller, now)
	if err != nil {
		return err
	}
	if err := s.checkSource("url", task.InputURL()); err != nil {
		return err
	}
	answer, code := newAsset{}, http.StatusCreated
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		earlier, ok, err := repeated(ctx, tx, asset, task, now)
		if err != nil {
			return err
		}
		if ok {
			answer, code = earlier, http.StatusOK
			return nil
		}
		if err := s.createAsset(ctx, tx, r.caller, &asset, &task, now); err != nil {
			return err
		}
		answer = newAsset{asset, taskID{task.ID}}
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, code, answer)
}

// repeatable is how long after a request the same one is taken for a repetition.
const repeatable = 15 * time.Minute

// repeated looks for an asset that is being made already and is the same.
func repeated(ctx context.Context, tx *store.Tx, asset weir.Asset, task weir.Task, now time.Time) (newAsset, bool, error) {
	earlier, err := tx.AssetsBeingImported(ctx, asset.UserID, asset.ProjectID, asset.Source.URL, weir.At(now.Add(-repeatable)))
	if err != nil {
		return newAsset{}, false, err
	}
	for _, a := range earlier {
		t, err := tx.TaskOfAsset(ctx, a.ID)
		if orGone(err) != nil {
			return newAsset{}, false, err
		}
		if err == nil && weir.SameImport(asset, task, a, t) {
			return newAsset{a.WithoutTracks(), taskID{t.ID}}, true, nil
		}
	}
	return newAsset{}, false, nil
}

// createAsset writes an asset and the task that makes it, after the checks that
// need the store.
func (s *server) createAsset(ctx context.Context, tx *store.Tx, caller *weir.Caller, asset *weir.Asset, task *weir.Task, now time.Time) error {
	if err := checkAssetStore(ctx, tx, caller, asset.ObjectStoreID); err != nil {
		return err
	}
	if err := checkPolicyWebhook(ctx, tx, caller, asset.PlaybackPolicy); err != nil {
		return err
	}
	if err := s.checkPending(ctx, tx, caller); err != nil {
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

// checkAssetStore checks that the object store for an asset is the caller's and in
// use. What is missing and what is somebody else's look alike.
func checkAssetStore(ctx context.Context, tx *store.Tx, caller *weir.Caller, id string) error {
	if id == "" {
		return nil
	}
	o, err := tx.ObjectStore(ctx, id)
	if isNotFound(err) || err == nil && (o.Deleted || o.Disabled || !caller.Owns(o.UserID, "")) {
		return weir.Errorf(weir.Denied, "the provided object store is not owned by user")
	}
	return err
}

// checkPending refuses more work than an account may have waiting.
func (s *server) checkPending(ctx context.Context, tx *store.Tx, caller *weir.Caller) error {
	pending, err := tx.PendingTasks(ctx, caller.UserID)
	if err != nil || s.MaxPendingTasks == 0 || pending < s.MaxPendingTasks {
		return err
	}
	e := weir.Errorf(weir.Busy, "user %s has reached the maximum number of pending tasks", caller.UserID)
	e.RetryAfter = 10 * time.Second
	return e
}

// requestUpload answers POST /asset/request-upload. The asset and its task wait for
// the bytes.
func (s *server) requestUpload(w http.ResponseWriter, r *request) error {
	var body weir.NewAsset
	if err := r.decode(&body); err != nil {
		return err
	}
	ctx, now := r.Context(), time.Now()
	asset, task, err := body.Asset(r.caller, now)
	if err != nil {
		return err
	}
	key, err := s.uploadKey(ctx) // not in the transaction: the first time, it needs one of its own
	if err != nil {
		return err
	}
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		return s.createAsset(ctx, tx, r.caller, &asset, &task, now)
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

// uploadKey returns the key that upload tokens are signed with.
func (s *server) uploadKey(ctx context.Context) ([]byte, error) {
	return s.Store.NamedSecret(ctx, "upload", func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	})
}

// uploadValid is how long a file may be sent to the address of an upload.
const uploadValid = 12 * time.Hour

// uploadClaims is what the token in an upload's address says.
type uploadClaims struct {
	jwt.RegisteredClaims
	PlaybackID string `json:"playbackId"`
}

// signUpload returns the token with which the bytes of one asset may be sent,
// without any other credential.
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
