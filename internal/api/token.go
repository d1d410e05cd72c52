package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// tokenResponse is an API key together with the key itself, which is shown once, when it is created.
type tokenResponse struct {
	weir.Token
	Key string `json:"key"`
}

// createToken answers POST /api-token.
func (s *server) createToken(w http.ResponseWriter, r *request, body weir.NewAPIToken) error {
	t, err := body.Token(r.caller.UserID, r.caller.ProjectID, time.Now())
	if err != nil {
		return err
	}
	key := weir.NewAPIKey()
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CheckQuota(ctx, t.UserID, weir.Keys, 1); err != nil {
			return err
		}
		return tx.CreateToken(ctx, &t, key)
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, tokenResponse{t, key.Reveal()})
}

// listTokens answers GET /api-token. It lists the keys of all projects unless the request names
// one.
func (s *server) listTokens(w http.ResponseWriter, r *request) error {
	q, err := queryOfUser(r, "user can only request information on their own tokens")
	if err != nil {
		return err
	}
	if r.URL.Query().Get("projectId") == "" {
		q.ProjectID = ""
	}
	page, err := s.Store.Tokens(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, asIs)
}

// patchToken answers PATCH /api-token/{id}.
func (s *server) patchToken(w http.ResponseWriter, r *request, patch weir.TokenPatch) error {
	t, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateToken, func(_ *store.Tx, t *weir.Token) error { return patch.Apply(t) })
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, t)
}

// deleteToken answers DELETE /api-token/{id}.
func (s *server) deleteToken(w http.ResponseWriter, r *request) error {
	ctx, id := r.Context(), r.PathValue("id")
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := get(r, tx.Token, id); err != nil {
			return err
		}
		return tx.DeleteToken(ctx, id)
	}))
}
