package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"weir/internal/weir"
)

const accountTable = "account"

var accounts = table[weir.User]{
	name:    accountTable,
	deleted: true,
	order:   "id-false",
	columns: func(_ *queries, u *weir.User) []column {
		return []column{
			{"id", u.ID},
			{"email", u.Email},
			{"email_valid", u.EmailValid},
			{"admin", u.Admin},
			{"created_at", int64(u.CreatedAt)},
			{"password", u.Password},
			{"deleted", u.Deleted},
			{"deleted_at", int64(u.DeletedAt)},
			{"purging", u.Purging},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "email": {"email", searchField}, "emailValid": {"email_valid", boolField},
		"admin": {"admin", boolField}, "createdAt": {"created_at", numberField}, "stripeProductId": {"''", textField},
	},
	hidden: func(u *weir.User) any { return &accountHidden{u.Password, u.Purging, u.RestoredAt} },
	unhide: func(u *weir.User, hidden any) {
		h := hidden.(*accountHidden)
		u.Password, u.Purging, u.RestoredAt = h.Hash, h.Purging, h.RestoredAt
	},
}

type accountHidden struct {
	Hash       string      `json:"hash,omitempty"`
	Purging    bool        `json:"purging,omitempty"`
	RestoredAt weir.Millis `json:"restoredAt,omitempty"`
}

// A deleted account does not exist for these queries, and so for whatever asks whether the owner of
// something exists. Only a list with Query.Deleted, DeletedUser and account_delete.go know it.

// User returns the user with the id.
func (q *queries) User(ctx context.Context, id string) (weir.User, error) {
	return first(accounts.where(ctx, q, "id = $1 AND NOT deleted", id))
}

// UserByEmail returns the user with the address, which must be in lower case.
func (q *queries) UserByEmail(ctx context.Context, email string) (weir.User, error) {
	return first(accounts.where(ctx, q, "email = $1 AND NOT deleted", email))
}

// DeletedUser returns the deleted user with the address, which must be in lower case.
func (q *queries) DeletedUser(ctx context.Context, email string) (weir.User, error) {
	return first(accounts.where(ctx, q, "email = $1 AND deleted", email))
}

// Users returns a page of users.
func (q *queries) Users(ctx context.Context, query Query) (Page[weir.User], error) {
	return accounts.list(ctx, q, query)
}

// FirstUser returns the oldest account, which the first start creates.
func (q *queries) FirstUser(ctx context.Context) (weir.User, error) {
	return first(accounts.where(ctx, q, "NOT deleted ORDER BY created_at, id LIMIT 1"))
}

// UsersByID returns users by their ids.
func (q *queries) UsersByID(ctx context.Context, ids []string) (map[string]weir.User, error) {
	all, err := accounts.byID(ctx, q, ids)
	maps.DeleteFunc(all, func(_ string, u weir.User) bool { return u.Deleted })
	return all, err
}

// ErrDeletedAccount is in the error for an e-mail address that a deleted account still has.
var ErrDeletedAccount = errors.New("the account with this e-mail address was deleted")

// FreeEmail returns an error of kind Conflict if an account has the address, which must be in lower
// case. A deleted account keeps it until it is removed for good, because it can be restored.
func (q *queries) FreeEmail(ctx context.Context, email string) error {
	taken, err := accounts.where(ctx, q, "email = $1", email)
	switch {
	case err != nil || len(taken) == 0:
		return err
	case taken[0].Deleted:
		return weir.Wrap(weir.Conflict, ErrDeletedAccount, "the account with this e-mail address was deleted a short time ago - please ask the operator to restore it or use another address")
	}
	return errEmailTaken()
}

func errEmailTaken() error {
	return weir.Errorf(weir.Conflict, "email already registered - please sign in instead or check your verification email")
}

// CreateUser writes a new user and its default project.
func (tx *Tx) CreateUser(ctx context.Context, u *weir.User) error {
	if err := tx.FreeEmail(ctx, u.Email); err != nil {
		return err
	}
	p := weir.Project{ID: weir.NewID(), Name: "Default Project", UserID: u.ID, CreatedAt: u.CreatedAt}
	u.DefaultProjectID = p.ID
	if err := accounts.insert(ctx, tx, u); err != nil {
		if weir.KindOf(err) == weir.Conflict {
			return errEmailTaken()
		}
		return err
	}
	return tx.CreateProject(ctx, &p)
}

// UpdateUser changes a user.
func (tx *Tx) UpdateUser(ctx context.Context, id string, change func(*weir.User) error) (weir.User, error) {
	tx.bumpLater(TopicAuth)
	u, err := accounts.update(ctx, tx, id, func(u *weir.User) error {
		if u.Deleted {
			return weir.ErrNotFound()
		}
		return change(u)
	})
	if u.Suspended || u.Disabled || u.Deleted {
		tx.bumpLater(TopicLive)
	}
	if err != nil {
		return u, err
	}
	return u, tx.forget(ctx, id)
}

var projects = table[weir.Project]{
	name:    "project",
	deleted: true,
	order:   "createdAt-false",
	columns: func(_ *queries, p *weir.Project) []column {
		return []column{
			{"id", p.ID},
			{"user_id", p.UserID},
			{"name", p.Name},
			{"created_at", int64(p.CreatedAt)},
			{"deleted", p.Deleted},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "createdAt": {"created_at", numberField}, "userId": {"user_id", textField},
	},
	hidden: func(p *weir.Project) any { return &deletedMark{p.Deleted} },
	unhide: func(p *weir.Project, hidden any) { p.Deleted = hidden.(*deletedMark).Deleted },
}

// Project returns the project with the id, also one that was deleted.
func (q *queries) Project(ctx context.Context, id string) (weir.Project, error) {
	return projects.get(ctx, q, id)
}

// Projects returns a page of projects.
func (q *queries) Projects(ctx context.Context, query Query) (Page[weir.Project], error) {
	return projects.list(ctx, q, query)
}

// CreateProject writes a new project.
func (tx *Tx) CreateProject(ctx context.Context, p *weir.Project) error {
	return projects.insert(ctx, tx, p)
}

// UpdateProject changes a project.
func (tx *Tx) UpdateProject(ctx context.Context, id string, change func(*weir.Project) error) (weir.Project, error) {
	tx.bumpLater(TopicAuth)
	return projects.update(ctx, tx, id, change)
}

type tokenHidden struct {
	Hash string `json:"hash"`
}

var tokens = table[weir.Token]{
	name:    "api_token",
	project: true,
	order:   "id-false",
	columns: func(_ *queries, t *weir.Token) []column {
		return []column{
			{"id", t.ID},
			{"user_id", t.UserID},
			{"project_id", t.ProjectID},
			{"name", t.Name},
			{"created_at", int64(t.CreatedAt)},
			{"last_seen", int64(t.LastSeen)},
			{"key_hash", t.KeyHash},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "lastSeen": {"last_seen", numberField},
		"userId": {"user_id", textField}, "projectId": {"project_id", textField}, "user.email": {"user_id", emailField},
		"createdAt": {"created_at", numberField},
	},
	hidden: func(t *weir.Token) any { return &tokenHidden{t.KeyHash} },
	unhide: func(t *weir.Token, hidden any) { t.KeyHash = hidden.(*tokenHidden).Hash },
}

// Token returns the API key with the id.
func (q *queries) Token(ctx context.Context, id string) (weir.Token, error) {
	return tokens.get(ctx, q, id)
}

// Tokens returns a page of API keys.
func (q *queries) Tokens(ctx context.Context, query Query) (Page[weir.Token], error) {
	return tokens.list(ctx, q, query)
}

// CreateToken writes a new API key. Only the hash of the key is stored.
func (tx *Tx) CreateToken(ctx context.Context, t *weir.Token, key weir.Secret) error {
	t.KeyHash = hashKey(key.Reveal())
	return tokens.insert(ctx, tx, t)
}

// UpdateToken changes an API key.
func (tx *Tx) UpdateToken(ctx context.Context, id string, change func(*weir.Token) error) (weir.Token, error) {
	tx.bumpLater(TopicAuth)
	return tokens.update(ctx, tx, id, change)
}

// DeleteToken revokes an API key.
func (tx *Tx) DeleteToken(ctx context.Context, id string) error {
	tx.bumpLater(TopicAuth)
	return tokens.remove(ctx, tx, id)
}

// HasKey reports whether the API key exists, in any account.
func (q *queries) HasKey(ctx context.Context, key weir.Secret) (bool, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM api_token WHERE key_hash = $1", hashKey(key.Reveal()))
	return n > 0, err
}

// RememberedKey returns the caller of an API key that was used lately, without a query.
func (s *Store) RememberedKey(key weir.Secret) (weir.Caller, bool) {
	caller, _, ok := s.auth.peek(hashKey(key.Reveal()))
	return caller, ok
}

// CallerByKey returns the caller of an API key. The error is NotFound when there is no such key, or
// its account is deleted.
func (s *Store) CallerByKey(ctx context.Context, key weir.Secret) (weir.Caller, error) {
	hash := hashKey(key.Reveal())
	return s.auth.get(hash, func() (weir.Caller, error) {
		t, err := first(tokens.where(ctx, &s.queries, "key_hash = $1", hash))
		if err != nil {
			return weir.Caller{}, err
		}
		c, err := s.caller(ctx, t.UserID, t.ProjectID)
		if weir.KindOf(err) == weir.Unauthenticated {
			return weir.Caller{}, weir.ErrNotFound() // the account is deleted, and so the key does not exist
		}
		c.Admin, c.TokenID, c.TokenName, c.Access = false, t.ID, t.Name, t.Access
		return c, err
	})
}

// CallerByUser returns the caller for a person who has logged in and works in a project; "" = the
// default project.
func (s *Store) CallerByUser(ctx context.Context, userID, projectID string) (weir.Caller, error) {
	return s.auth.get(userID+"/"+projectID, func() (weir.Caller, error) { return s.caller(ctx, userID, projectID) })
}

func (s *Store) caller(ctx context.Context, userID, projectID string) (weir.Caller, error) {
	u, err := s.User(ctx, userID)
	if weir.IsNotFound(err) {
		return weir.Caller{}, weir.Errorf(weir.Unauthenticated, "no user found from authorization header")
	}
	if err != nil {
		return weir.Caller{}, err
	}
	c := weir.Caller{
		UserID: u.ID, Email: u.Email, Admin: u.Admin, Suspended: u.Suspended,
		DefaultProjectID: u.DefaultProjectID,
	}
	c.ProjectID = cmp.Or(projectID, u.DefaultProjectID)
	if c.ProjectID != u.DefaultProjectID {
		p, exists, err := found(s.Project(ctx, c.ProjectID))
		if err != nil {
			return c, err
		}
		if !exists || p.UserID != u.ID || p.Deleted {
			return c, weir.Errorf(weir.Denied, "invalid user")
		}
	}
	return c, nil
}

// RefreshToken is the log-in of a person, with which access tokens are renewed.
type RefreshToken struct {
	Hash                 string // of the token; it names the row and opens nothing
	UserID               string
	CreatedAt, ExpiresAt weir.Millis
	UsedAt               weir.Millis
	Revoked              bool
}

const refreshColumns = "hash, user_id, created_at, expires_at, used_at, revoked"

func scanRefresh(r rows) (t RefreshToken, err error) {
	return t, r.Scan(&t.Hash, &t.UserID, &t.CreatedAt, &t.ExpiresAt, &t.UsedAt, &t.Revoked)
}

// RefreshToken returns a refresh token that is neither revoked nor expired; NotFound when there is
// none.
func (q *queries) RefreshToken(ctx context.Context, token weir.Secret, now weir.Millis) (RefreshToken, error) {
	return q.RefreshTokenByHash(ctx, hashKey(token.Reveal()), now)
}

// RefreshTokenByHash is RefreshToken for callers that know the hash of the token.
func (q *queries) RefreshTokenByHash(ctx context.Context, hash string, now weir.Millis) (RefreshToken, error) {
	return one(ctx, q.conn, scanRefresh, "SELECT "+refreshColumns+" FROM refresh_token WHERE hash = $1 AND expires_at > $2 AND NOT revoked", hash, now)
}

// CreateRefreshToken writes a new refresh token. Only its hash is stored.
func (tx *Tx) CreateRefreshToken(ctx context.Context, token weir.Secret, t RefreshToken) error {
	_, err := tx.conn.exec(ctx, "INSERT INTO refresh_token ("+refreshColumns+") VALUES ($1, $2, $3, $4, $5, $6)",
		hashKey(token.Reveal()), t.UserID, int64(t.CreatedAt), int64(t.ExpiresAt), int64(t.UsedAt), t.Revoked)
	return err
}

// UpdateRefreshToken changes a refresh token; NotFound when there is none.
func (tx *Tx) UpdateRefreshToken(ctx context.Context, token weir.Secret, change func(*RefreshToken) error) (RefreshToken, error) {
	hash := hashKey(token.Reveal())
	t, err := one(ctx, tx.conn, scanRefresh, "SELECT "+refreshColumns+" FROM refresh_token WHERE hash = $1"+tx.store.engine.forUpdate(), hash)
	if err != nil {
		return t, err
	}
	if err := change(&t); err != nil {
		return t, err
	}
	_, err = tx.conn.exec(ctx, "UPDATE refresh_token SET used_at = $2, revoked = $3 WHERE hash = $1", hash, int64(t.UsedAt), t.Revoked)
	return t, err
}

// RevokeRefreshTokens ends all log-ins of a user.
func (tx *Tx) RevokeRefreshTokens(ctx context.Context, userID string) error {
	_, err := tx.conn.exec(ctx, "DELETE FROM refresh_token WHERE user_id = $1", userID)
	return err
}

// CreatePasswordLink writes the token of a link that sets the user's password once. Older links of
// the user stop working.
func (tx *Tx) CreatePasswordLink(ctx context.Context, token weir.Secret, userID string, expires weir.Millis) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM password_link WHERE user_id = $1", userID); err != nil {
		return err
	}
	_, err := tx.conn.exec(ctx, "INSERT INTO password_link (hash, user_id, expires_at) VALUES ($1, $2, $3)", hashKey(token.Reveal()), userID, int64(expires))
	return err
}

// PasswordLink returns the user whose password a link may set; NotFound when the link was used, has
// expired or never existed.
func (q *queries) PasswordLink(ctx context.Context, token weir.Secret) (userID string, err error) {
	return one(ctx, q.conn, scanText, "SELECT user_id FROM password_link WHERE hash = $1 AND expires_at > $2", hashKey(token.Reveal()), time.Now().UnixMilli())
}

// UsePasswordLink is PasswordLink, and deletes the link.
func (tx *Tx) UsePasswordLink(ctx context.Context, token weir.Secret) (userID string, err error) {
	return one(ctx, tx.conn, scanText, "DELETE FROM password_link WHERE hash = $1 AND expires_at > $2 RETURNING user_id", hashKey(token.Reveal()), time.Now().UnixMilli())
}

// SawKey records that an API key was used. It is written a little later, together with others.
func (s *Store) SawKey(id string, at time.Time) {
	saw(s, &tokens, id, at, func(t *weir.Token) *weir.Millis { return &t.LastSeen })
}

// SawUser is SawKey for people who are logged in.
func (s *Store) SawUser(id string, at time.Time) {
	saw(s, &accounts, id, at, func(u *weir.User) *weir.Millis { return &u.LastSeen })
}

// SawSigningKey is SawKey for signing keys.
func (s *Store) SawSigningKey(id string, at time.Time) {
	saw(s, &signingKeys, id, at, func(k *weir.SigningKey) *weir.Millis { return &k.LastSeen })
}

// saw records when something was used last, in the member that lastSeen returns.
func saw[T any](s *Store, all *table[T], id string, at time.Time, lastSeen func(*T) *weir.Millis) {
	s.batch.add(all.name+"/"+id, func(ctx context.Context, tx *Tx) error {
		_, err := all.update(ctx, tx, id, func(v *T) error {
			last := lastSeen(v)
			*last = max(*last, weir.At(at))
			return nil
		})
		return ignoreNotFound(err)
	})
}

func ignoreNotFound(err error) error {
	if weir.IsNotFound(err) {
		return nil
	}
	return err
}
