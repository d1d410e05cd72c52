package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"weir/internal/account"
	"weir/internal/store"
	"weir/internal/weir"
)

// showUser leaves out what only an admin may see.
func showUser(r *request) func(weir.User) weir.User {
	return func(u weir.User) weir.User {
		if r.caller == nil || !r.caller.Admin {
			u.ViewerLimit, u.Quota = nil, nil
		}
		return u
	}
}

func (s *server) writeUser(w http.ResponseWriter, r *request, code int) func(weir.User, error) error {
	return func(u weir.User, err error) error {
		if err != nil {
			return err
		}
		return writeJSON(w, code, showUser(r)(u))
	}
}

// createUser answers POST /user. An admin makes accounts for others.
func (s *server) createUser(w http.ResponseWriter, r *request, body account.NewUser) error {
	if r.caller != nil && r.caller.Admin {
		return s.writeUser(w, r, http.StatusCreated)(s.Accounts.Create(r.Context(), body))
	}
	return s.writeUser(w, r, http.StatusCreated)(s.Accounts.Register(r.Context(), body, s.clientAddr(r.Request)))
}

// logInResponse is the response to a log-in, the only one that shows tokens.
type logInResponse struct {
	ID           string `json:"id,omitempty"`
	Email        string `json:"email,omitempty"`
	Token        string `json:"token"`
	RefreshToken string `json:"refreshToken,omitempty"`
}

// logInBody is a body of a log-in, a refresh or a new password. Each endpoint accepts some of its
// members.
type logInBody struct {
	Email        string      `json:"email"`
	Password     string      `json:"password"`
	RefreshToken weir.Secret `json:"refreshToken"`
	ResetToken   weir.Secret `json:"resetToken"`
}

// logIn answers POST /user/token.
func (s *server) logIn(w http.ResponseWriter, r *request, body logInBody) error {
	in, err := s.Accounts.LogIn(r.Context(), body.Email, body.Password, s.clientAddr(r.Request))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, logInResponse{
		ID: in.User.ID, Email: in.User.Email, Token: in.Token.Reveal(), RefreshToken: in.RefreshToken.Reveal(),
	})
}

// refreshLogIn answers POST /user/token/refresh.
func (s *server) refreshLogIn(w http.ResponseWriter, r *request, body logInBody) error {
	in, err := s.Accounts.Refresh(r.Context(), body.RefreshToken)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, logInResponse{Token: in.Token.Reveal(), RefreshToken: in.RefreshToken.Reveal()})
}

// requestPasswordReset answers POST /user/password/reset-token. The response is the same for every
// address, so that it does not reveal which ones have an account.
func (s *server) requestPasswordReset(http.ResponseWriter, *request) error {
	return weir.Errorf(weir.Unavailable, "this server sends no mail; ask its operator to run `weir user passwd EMAIL`, which prints a one-time link")
}

// resetPassword answers POST /user/password/reset, with the token of a one-time link.
func (s *server) resetPassword(w http.ResponseWriter, r *request, body logInBody) error {
	return s.writeUser(w, r, http.StatusOK)(s.Accounts.SetPassword(r.Context(), body.ResetToken, body.Email, body.Password))
}

// listUsers answers GET /user.
func (s *server) listUsers(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	q.UserID, q.ProjectID = "", ""
	page, err := s.Store.Users(r.Context(), q)
	if err != nil {
		return err
	}
	return writePage(s, w, r, q, page, showUser(r))
}

// getMe answers GET /user/me.
func (s *server) getMe(w http.ResponseWriter, r *request) error {
	return s.writeUser(w, r, http.StatusOK)(s.Store.User(r.Context(), r.caller.UserID))
}

// getUser answers GET /user/{id}.
func (s *server) getUser(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if id != r.caller.UserID && !r.caller.Admin {
		return weir.Errorf(weir.Denied, "user can only request information on their own user object")
	}
	return s.writeUser(w, r, http.StatusOK)(s.Store.User(r.Context(), id))
}

// getUserUsage answers GET /user/usage.
func (s *server) getUserUsage(w http.ResponseWriter, r *request) error {
	v := r.URL.Query()
	from, err1 := strconv.ParseInt(v.Get("fromTime"), 10, 64)
	to, err2 := strconv.ParseInt(v.Get("toTime"), 10, 64)
	if err1 != nil || err2 != nil {
		return weir.Errorf(weir.Refused, "should specify time range")
	}
	id, err := usageOf(r)
	if err != nil {
		return err
	}
	usage, err := s.Store.UserUsage(r.Context(), id, weir.Millis(from), weir.Millis(to))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, usage)
}

// usageOf returns the user whose usage a request asks for: the caller, or for an admin another one.
func usageOf(r *request) (userID string, err error) {
	asked := cmp.Or(r.URL.Query().Get("userId"), r.caller.UserID)
	if asked != r.caller.UserID && !r.caller.Admin {
		return "", weir.Errorf(weir.Denied, "user can only request information on their own usage")
	}
	return asked, nil
}

// quotaResponse is how much an account has of a resource, and how much it may have.
type quotaResponse struct {
	Used  int64  `json:"used"`
	Limit *int64 `json:"limit,omitempty"` // nil = there is none
}

// getUserQuota answers GET /user/quota.
func (s *server) getUserQuota(w http.ResponseWriter, r *request) error {
	id, err := usageOf(r)
	if err != nil {
		return err
	}
	u, err := s.Store.User(r.Context(), id)
	if err != nil {
		return err
	}
	response := map[weir.Resource]quotaResponse{}
	for _, resource := range weir.Resources() {
		used, err := s.Store.Used(r.Context(), id, resource)
		if err != nil {
			return err
		}
		one := quotaResponse{Used: used}
		if limit, limited := u.Limit(resource); limited {
			one.Limit = &limit
		}
		response[resource] = one
	}
	return writeJSON(w, http.StatusOK, response)
}

// changeUser changes the user that the path names, for an admin.
func (s *server) changeUser(w http.ResponseWriter, r *request, do func(*store.Tx, *weir.User) error) error {
	ctx := r.Context()
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, r.PathValue("id"), func(u *weir.User) error { return do(tx, u) })
		return err
	}))
}

// userPatch is a body that changes a user. Each endpoint accepts some of its members.
type userPatch struct {
	DirectPlayback *bool      `json:"directPlayback"`
	ViewerLimit    *int       `json:"viewerLimit"`
	Quota          weir.Quota `json:"quota"`
	Suspended      bool       `json:"suspended"`
	Disabled       bool       `json:"disabled"`
}

// patchUser answers PATCH /user/{id}.
func (s *server) patchUser(w http.ResponseWriter, r *request, patch userPatch) error {
	return s.changeUser(w, r, func(_ *store.Tx, u *weir.User) error {
		if patch.DirectPlayback != nil {
			u.DirectPlayback = *patch.DirectPlayback
		}
		if patch.ViewerLimit != nil {
			u.ViewerLimit = patch.ViewerLimit
		}
		if patch.Quota != nil {
			u.SetQuota(patch.Quota)
		}
		return nil
	})
}

// passwordLink is the response to POST /user/{id}/password-link, the only one that shows the link.
type passwordLink struct {
	URL       string      `json:"url"`
	ExpiresAt weir.Millis `json:"expiresAt"`
}

// createPasswordLink answers POST /user/{id}/password-link.
func (s *server) createPasswordLink(w http.ResponseWriter, r *request) error {
	expires := weir.At(time.Now().Add(account.LinkLife))
	token, err := s.Accounts.NewLink(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, passwordLink{s.base(r.Request) + account.LinkPath(token), expires})
}

// setUserSuspended answers PATCH /user/{id}/suspended. After the suspension API keys work again,
// but people have to log in again.
func (s *server) setUserSuspended(w http.ResponseWriter, r *request, patch userPatch) error {
	if r.PathValue("id") == r.caller.UserID {
		return weir.Errorf(weir.Refused, "cannot suspend own user")
	}
	return s.changeUser(w, r, func(tx *store.Tx, u *weir.User) error {
		u.Suspended = patch.Suspended
		if !u.Suspended {
			return nil
		}
		return tx.RevokeRefreshTokens(r.Context(), u.ID)
	})
}

// setUserDisabled answers PATCH /user/{id}/disabled.
func (s *server) setUserDisabled(w http.ResponseWriter, r *request, patch userPatch) error {
	if r.PathValue("id") == r.caller.UserID {
		return weir.Errorf(weir.Refused, "cannot disable own user")
	}
	return s.changeUser(w, r, func(_ *store.Tx, u *weir.User) error {
		u.Disabled = patch.Disabled
		return nil
	})
}

// deleteUser answers DELETE /user/{id}. What the user has is removed later; until then the user can
// be restored.
func (s *server) deleteUser(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if id == r.caller.UserID {
		return weir.Errorf(weir.Refused, "cannot delete own user")
	}
	ctx := r.Context()
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.DeleteUser(ctx, id, s.EventBase, time.Now())
		return err
	}))
}

// restoreUser answers POST /user/{id}/restore. API keys work again, but people have to log in again.
func (s *server) restoreUser(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.RestoreUser(ctx, r.PathValue("id"), time.Now()) }))
}
