package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// tokenAnswer is an API key together with the key itself. It is shown once, when
// it is made.
type tokenAnswer struct {
	weir.Token
	Key string `json:"key"`
}

func showToken(t weir.Token) weir.Token { return t }

func tokenOwner(t weir.Token) (string, bool) { return t.UserID, false }

// createToken answers POST /api-token.
func (s *server) createToken(w http.ResponseWriter, r *request) error {
	var body weir.NewAPIToken
	if err := r.decode(&body); err != nil {
		return err
	}
	t, err := body.Token(r.caller.UserID, r.caller.ProjectID, time.Now())
	if err != nil {
		return err
	}
	key := weir.NewAPIKey()
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateToken(ctx, &t, key) }); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, tokenAnswer{t, key.Reveal()})
}

// listTokens answers GET /api-token. A person's keys belong to the person, so
// those of all projects are listed unless one is asked for.
func (s *server) listTokens(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	v := r.URL.Query()
	if user := v.Get("userId"); user != "" {
		if user != r.caller.UserID && !r.caller.Admin {
			return weir.Errorf(weir.Denied, "user can only request information on their own tokens")
		}
		q.UserID = user
	}
	if v.Get("projectId") == "" {
		q.ProjectID = ""
	}
	page, err := s.Store.Tokens(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, showToken, tokenOwner)
}

// getToken answers GET /api-token/{id}.
func (s *server) getToken(w http.ResponseWriter, r *request) error {
	t, err := s.Store.Token(r.Context(), r.PathValue("id"))
	if err == nil && !r.caller.Owns(t.UserID, "") {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, t)
}

// deleteToken answers DELETE /api-token/{id}.
func (s *server) deleteToken(w http.ResponseWriter, r *request) error {
	ctx, id := r.Context(), r.PathValue("id")
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		t, err := tx.Token(ctx, id)
		if err != nil {
			return err
		}
		if !r.caller.Owns(t.UserID, "") {
			return weir.Errorf(weir.Denied, "users may only delete their own API tokens")
		}
		return tx.DeleteToken(ctx, id)
	})
	if err != nil {
		return err
	}
	return noContent(w)
}
