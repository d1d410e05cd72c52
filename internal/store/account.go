package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/weir"
)

var accounts = table[weir.User]{
	name:  "account",
	order: "id-false",
	columns: []column[weir.User]{
		{"id", func(_ *queries, u *weir.User) any { return u.ID }},
		{"email", func(_ *queries, u *weir.User) any { return u.Email }},
		{"email_valid", func(_ *queries, u *weir.User) any { return u.EmailValid }},
		{"admin", func(_ *queries, u *weir.User) any { return u.Admin }},
		{"created_at", func(_ *queries, u *weir.User) any { return int64(u.CreatedAt) }},
		{"password", func(_ *queries, u *weir.User) any { return u.Password }},
	},
	fields: map[string]field{
		"id": {"id", textField}, "email": {"email", textField}, "emailValid": {"email_valid", boolField},
		"admin": {"admin", boolField}, "createdAt": {"created_at", numberField}, "stripeProductId": {"''", textField},
	},
	hidden: func(u *weir.User) any { return &passwordHash{u.Password} },
	unhide: func(u *weir.User, hidden any) { u.Password = hidden.(*passwordHash).Hash },
}

type passwordHash struct {
	Hash string `json:"hash,omitempty"`
}

// User returns the user with the id.
func (q *queries) User(ctx context.Context, id string) (weir.User, error) {
	return accounts.get(ctx, q, id)
}

// UserByEmail returns the user with the address, which is in lower case.
func (q *queries) UserByEmail(ctx context.Context, email string) (weir.User, error) {
	return first(accounts.where(ctx, q, "email = $1", email))
}

// Users returns a page of users.
func (q *queries) Users(ctx context.Context, query Query) (Page[weir.User], error) {
	return accounts.list(ctx, q, query)
}

// FirstUser returns the first account, which first start made.
func (q *queries) FirstUser(ctx context.Context) (weir.User, error) {
	return first(accounts.where(ctx, q, "1 = 1 ORDER BY created_at, id LIMIT 1"))
}

// UsersByID returns users by their ids.
func (q *queries) UsersByID(ctx context.Context, ids []string) (map[string]weir.User, error) {
	found := map[string]weir.User{}
	if len(ids) == 0 {
		return found, nil
	}
	b := &builder{}
	all, err := accounts.where(ctx, q, "id IN ("+b.list(ids)+")", b.args...)
	for _, u := range all {
		found[u.ID] = u
	}
	return found, err
}

// CreateUser writes a new user and its default project.
func (tx *Tx) CreateUser(ctx context.Context, u *weir.User) error {
	p := weir.Project{ID: weir.NewID(), Name: "Default Project", UserID: u.ID, CreatedAt: u.CreatedAt}
	u.DefaultProjectID = p.ID
	if err := accounts.insert(ctx, tx, u); err != nil {
		if weir.KindOf(err) == weir.Conflict {
			return weir.Errorf(weir.Conflict, "email already registered - please sign in instead or check your verification email")
		}
		return err
	}
	return tx.CreateProject(ctx, &p)
}

// UpdateUser changes a user.
func (tx *Tx) UpdateUser(ctx context.Context, id string, change func(*weir.User) error) (weir.User, error) {
	u, err := accounts.update(ctx, tx, id, change)
	if err != nil {
		return u, err
	}
	if u.Suspended || u.Disabled {
		tx.bumpLater(TopicLive)
	}
	_, err = tx.bump(ctx, TopicAuth)
	return u, err
}

// DeleteUser removes a user for good; what it owns stays. Its keys and log-ins
// end at once.
func (tx *Tx) DeleteUser(ctx context.Context, id string) error {
	if err := accounts.remove(ctx, tx, id); err != nil {
		return err
	}
	for _, sql := range []string{
		"DELETE FROM api_token WHERE user_id = $1", "DELETE FROM refresh_token WHERE user_id = $1", "DELETE FROM password_link WHERE user_id = $1",
	} {
		if _, err := tx.conn.exec(ctx, sql, id); err != nil {
			return err
		}
	}
	tx.bumpLater(TopicLive)
	_, err := tx.bump(ctx, TopicAuth)
	return err
}

var projects = table[weir.Project]{
	name:    "project",
	deleted: true,
	order:   "createdAt-false",
	columns: []column[weir.Project]{
		{"id", func(_ *queries, p *weir.Project) any { return p.ID }},
		{"user_id", func(_ *queries, p *weir.Project) any { return p.UserID }},
		{"name", func(_ *queries, p *weir.Project) any { return p.Name }},
		{"created_at", func(_ *queries, p *weir.Project) any { return int64(p.CreatedAt) }},
		{"deleted", func(_ *queries, p *weir.Project) any { return p.Deleted }},
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
	p, err := projects.update(ctx, tx, id, change)
	if err != nil {
		return p, err
	}
	_, err = tx.bump(ctx, TopicAuth)
	return p, err
}

// tokenHidden keeps the hash of a key in the document too, because columns are
// always written from it.
type tokenHidden struct {
	Hash string `json:"hash"`
}

// storedToken is a token with the hash of its key.
type storedToken struct {
	weir.Token
	hash string
}

var tokens = table[storedToken]{
	name:    "api_token",
	project: true,
	order:   "id-false",
	columns: []column[storedToken]{
		{"id", func(_ *queries, t *storedToken) any { return t.ID }},
		{"user_id", func(_ *queries, t *storedToken) any { return t.UserID }},
		{"project_id", func(_ *queries, t *storedToken) any { return t.ProjectID }},
		{"name", func(_ *queries, t *storedToken) any { return t.Name }},
		{"created_at", func(_ *queries, t *storedToken) any { return int64(t.CreatedAt) }},
		{"last_seen", func(_ *queries, t *storedToken) any { return int64(t.LastSeen) }},
		{"key_hash", func(_ *queries, t *storedToken) any { return t.hash }},
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "lastSeen": {"last_seen", numberField},
		"userId": {"user_id", textField}, "projectId": {"project_id", textField}, "user.email": {"user_id", emailField},
		"createdAt": {"created_at", numberField},
	},
	hidden: func(t *storedToken) any { return &tokenHidden{t.hash} },
	unhide: func(t *storedToken, hidden any) { t.hash = hidden.(*tokenHidden).Hash },
}

// Token returns the API key with the id.
func (q *queries) Token(ctx context.Context, id string) (weir.Token, error) {
	t, err := tokens.get(ctx, q, id)
	return t.Token, err
}

// Tokens returns a page of API keys.
func (q *queries) Tokens(ctx context.Context, query Query) (Page[weir.Token], error) {
	p, err := tokens.list(ctx, q, query)
	page := Page[weir.Token]{Next: p.Next, Total: p.Total, Items: make([]weir.Token, len(p.Items))}
	for i, t := range p.Items {
		page.Items[i] = t.Token
	}
	return page, err
}

// CreateToken writes a new API key, of which only the hash is kept.
func (tx *Tx) CreateToken(ctx context.Context, t *weir.Token, key weir.Secret) error {
	return tokens.insert(ctx, tx, &storedToken{*t, hashKey(key.Reveal())})
}

// UpdateToken changes what an API key is called and may do.
func (tx *Tx) UpdateToken(ctx context.Context, id string, change func(*weir.Token) error) (weir.Token, error) {
	t, err := tokens.update(ctx, tx, id, func(t *storedToken) error { return change(&t.Token) })
	if err != nil {
		return t.Token, err
	}
	_, err = tx.bump(ctx, TopicAuth)
	return t.Token, err
}

// DeleteToken revokes an API key.
func (tx *Tx) DeleteToken(ctx context.Context, id string) error {
	if err := tokens.remove(ctx, tx, id); err != nil {
		return err
	}
	_, err := tx.bump(ctx, TopicAuth)
	return err
}

// HasKey reports whether the API key exists, whoever it belongs to.
func (q *queries) HasKey(ctx context.Context, key weir.Secret) (bool, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM api_token WHERE key_hash = $1", hashKey(key.Reveal()))
	return n > 0, err
}

// authCache remembers who a credential belongs to until an account, a project or
// a key changes anywhere.
type authCache struct {
	mu         sync.RWMutex
	callers    map[string]weir.Caller
	generation int64
}

// maxCached bounds the cache.
const maxCached = 10_000

func (c *authCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.callers = nil
}

// get returns the remembered caller, or asks and remembers. What was read before
// a change and arrives after it is not remembered.
func (c *authCache) get(key string, ask func() (weir.Caller, error)) (weir.Caller, error) {
	c.mu.RLock()
	caller, ok := c.callers[key]
	generation := c.generation
	c.mu.RUnlock()
	if ok {
		return caller, nil
	}
	caller, err := ask()
	if err != nil {
		return caller, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return caller, nil
	}
	if c.callers == nil || len(c.callers) >= maxCached {
		c.callers = map[string]weir.Caller{}
	}
	c.callers[key] = caller
	return caller, nil
}

// RememberedKey returns who an API key belongs to if it was used lately, without
// asking the database.
func (s *Store) RememberedKey(key weir.Secret) (weir.Caller, bool) {
	s.auth.mu.RLock()
	defer s.auth.mu.RUnlock()
	caller, ok := s.auth.callers[hashKey(key.Reveal())]
	return caller, ok
}

// CallerByKey returns who an API key belongs to. The error is NotFound when there
// is no such key, and Unauthenticated when its user is gone.
func (s *Store) CallerByKey(ctx context.Context, key weir.Secret) (weir.Caller, error) {
	hash := hashKey(key.Reveal())
	return s.auth.get(hash, func() (weir.Caller, error) {
		t, err := first(tokens.where(ctx, &s.queries, "key_hash = $1", hash))
		if err != nil {
			return weir.Caller{}, err
		}
		c, err := s.caller(ctx, t.UserID, t.ProjectID)
		c.Admin, c.TokenID, c.TokenName, c.Access = false, t.ID, t.Name, t.Access
		return c, err
	})
}

// CallerByUser returns a person who has logged in and works in a project; "" is
// the person's default project.
func (s *Store) CallerByUser(ctx context.Context, userID, projectID string) (weir.Caller, error) {
	return s.auth.get(userID+"/"+projectID, func() (weir.Caller, error) { return s.caller(ctx, userID, projectID) })
}

func (s *Store) caller(ctx context.Context, userID, projectID string) (weir.Caller, error) {
	u, err := s.User(ctx, userID)
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return weir.Caller{}, weir.Errorf(weir.Unauthenticated, "no user found from authorization header")
	}
	if err != nil {
		return weir.Caller{}, err
	}
	c := weir.Caller{
		UserID: u.ID, Email: u.Email, Admin: u.Admin, Suspended: u.Suspended,
		DefaultProjectID: u.DefaultProjectID, ProjectID: projectID,
	}
	if projectID == "" {
		c.ProjectID = u.DefaultProjectID
	}
	if c.ProjectID != u.DefaultProjectID {
		p, err := s.Project(ctx, c.ProjectID)
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return c, err
		}
		if err != nil || p.UserID != u.ID || p.Deleted {
			return c, weir.Errorf(weir.Denied, "invalid user")
		}
	}
	return c, nil
}

// RefreshToken is what a person who has logged in gets new access tokens with.
type RefreshToken struct {
	UserID               string
	CreatedAt, ExpiresAt weir.Millis
	UsedAt               weir.Millis
	Revoked              bool
}

// CreateRefreshToken writes a new refresh token, of which only the hash is kept.
func (tx *Tx) CreateRefreshToken(ctx context.Context, token weir.Secret, t RefreshToken) error {
	_, err := tx.conn.exec(ctx, "INSERT INTO refresh_token (hash, user_id, created_at, expires_at, used_at, revoked) VALUES ($1, $2, $3, $4, $5, $6)",
		hashKey(token.Reveal()), t.UserID, int64(t.CreatedAt), int64(t.ExpiresAt), int64(t.UsedAt), t.Revoked)
	return err
}

// UpdateRefreshToken changes a refresh token; NotFound when there is none. The
// change is written even when it returns an error of the kind Unauthenticated,
// because that is how a token that was stolen is revoked.
func (tx *Tx) UpdateRefreshToken(ctx context.Context, token weir.Secret, change func(*RefreshToken) error) (RefreshToken, error) {
	hash := hashKey(token.Reveal())
	t, err := one(ctx, tx.conn, func(r rows) (t RefreshToken, err error) {
		return t, r.Scan(&t.UserID, &t.CreatedAt, &t.ExpiresAt, &t.UsedAt, &t.Revoked)
	}, "SELECT user_id, created_at, expires_at, used_at, revoked FROM refresh_token WHERE hash = $1"+tx.store.engine.forUpdate(), hash)
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

// CreatePasswordLink writes the token of a link with which a person sets a
// password once. Older links of the person stop working.
func (tx *Tx) CreatePasswordLink(ctx context.Context, token weir.Secret, userID string, expires weir.Millis) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM password_link WHERE user_id = $1", userID); err != nil {
		return err
	}
	_, err := tx.conn.exec(ctx, "INSERT INTO password_link (hash, user_id, expires_at) VALUES ($1, $2, $3)", hashKey(token.Reveal()), userID, int64(expires))
	return err
}

// PasswordLink returns whose password a link may set; NotFound when the link was
// used, has expired or never was.
func (q *queries) PasswordLink(ctx context.Context, token weir.Secret) (userID string, err error) {
	return one(ctx, q.conn, scanText, "SELECT user_id FROM password_link WHERE hash = $1 AND expires_at > $2", hashKey(token.Reveal()), time.Now().UnixMilli())
}

// UsePasswordLink is PasswordLink, and the link stops working.
func (tx *Tx) UsePasswordLink(ctx context.Context, token weir.Secret) (userID string, err error) {
	return one(ctx, tx.conn, scanText, "DELETE FROM password_link WHERE hash = $1 AND expires_at > $2 RETURNING user_id", hashKey(token.Reveal()), time.Now().UnixMilli())
}

// SawKey notes that an API key was used; it is written a little later, together
// with others.
func (s *Store) SawKey(id string, at time.Time) {
	s.batch.add("token/"+id, func(ctx context.Context, tx *Tx) error {
		_, err := tokens.update(ctx, tx, id, func(t *storedToken) error {
			t.LastSeen = max(t.LastSeen, weir.At(at))
			return nil
		})
		return ignoreNotFound(err)
	})
}

// SawSigningKey is SawKey for signing keys.
func (s *Store) SawSigningKey(id string, at time.Time) {
	s.batch.add("signing-key/"+id, func(ctx context.Context, tx *Tx) error {
		_, err := signingKeys.update(ctx, tx, id, func(k *weir.SigningKey) error {
			k.LastSeen = max(k.LastSeen, weir.At(at))
			return nil
		})
		return ignoreNotFound(err)
	})
}

func ignoreNotFound(err error) error {
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind == weir.NotFound {
		return nil
	}
	return err
}
