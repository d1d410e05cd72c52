package account

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// keyList is a page of a person's API keys.
type keyList struct {
	Keys     []weir.Token
	Next     string            // cursor of the next page
	Projects map[string]string // names by id; empty when there is only one
}

const keysOnPage = 50

// keys returns a page of the user's keys, newest first.
func (p *pages) keys(v *visit, cursor string) (keyList, error) {
	page, err := p.store.Tokens(v.Context(), store.Query{UserID: v.user(), Order: "createdAt-true", Limit: keysOnPage, Cursor: cursor})
	if err != nil {
		return keyList{}, err
	}
	projects, err := p.projects(v)
	if err != nil {
		return keyList{}, err
	}
	list := keyList{Keys: page.Items, Next: page.Next, Projects: map[string]string{}}
	if len(projects) > 1 {
		for _, project := range projects {
			list.Projects[project.ID] = project.Name
		}
	}
	return list, nil
}

func (p *pages) projects(v *visit) ([]weir.Project, error) {
	page, err := p.store.Projects(v.Context(), store.Query{UserID: v.user(), Limit: store.MaxLimit})
	return page.Items, err
}

// showKeys answers GET /keys.
func (p *pages) showKeys(v *visit) error {
	list, err := p.keys(v, v.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	return p.render(v, http.StatusOK, "keys", view{Title: "API keys", Here: "keys", Data: list})
}

// newKeyData is the data of the page for a new key.
type newKeyData struct {
	keyForm
	Projects []weir.Project // to choose from; empty when there is only one
}

func (p *pages) newKeyView(v *visit, f keyForm) (view, error) {
	d := newKeyData{keyForm: f}
	projects, err := p.projects(v)
	if len(projects) > 1 {
		d.Projects = projects
	}
	return view{Title: "New API key", Here: "keys", Data: d}, err
}

// showNewKey answers GET /keys/new.
func (p *pages) showNewKey(v *visit) error {
	in, err := p.newKeyView(v, keyForm{Project: v.session.user.DefaultProjectID, Where: fromServers, What: doAll})
	if err != nil {
		return err
	}
	return p.render(v, http.StatusOK, "key-new", in)
}

// madeKey is a new key. Only the page that answers the form shows it.
type madeKey struct {
	Token weir.Token
	Key   string
	Curl  string
}

// createKey answers POST /keys/new.
func (p *pages) createKey(v *visit) error {
	f := readKeyForm(v.PostForm)
	made, err := p.makeKey(v, f)
	if err != nil {
		in, viewErr := p.newKeyView(v, f)
		if viewErr != nil {
			return viewErr
		}
		return p.again(v, "key-new", in, err)
	}
	return p.render(v, http.StatusCreated, "key-made", view{Title: "Your new API key", Here: "keys", Data: made})
}

func (p *pages) makeKey(v *visit, f keyForm) (madeKey, error) {
	if err := f.checkName(); err != nil {
		return madeKey{}, err
	}
	access, err := f.access()
	if err != nil {
		return madeKey{}, err
	}
	project, err := p.chosenProject(v, f.Project)
	if err != nil {
		return madeKey{}, err
	}
	t, err := weir.NewAPIToken{Name: f.Name, Access: access}.Token(v.user(), project, time.Now())
	if err != nil {
		return madeKey{}, err
	}
	key := weir.NewAPIKey()
	ctx := v.Context()
	err = p.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CheckQuota(ctx, t.UserID, weir.Keys, 1); err != nil {
			return err
		}
		return tx.CreateToken(ctx, &t, key)
	})
	return madeKey{Token: t, Key: key.Reveal(), Curl: curlLine(v.base, key, t.Access)}, err
}

// chosenProject returns the project of a new key.
func (p *pages) chosenProject(v *visit, id string) (string, error) {
	if id == "" || id == v.session.user.DefaultProjectID {
		return v.session.user.DefaultProjectID, nil
	}
	project, err := p.store.Project(v.Context(), id)
	if weir.IsNotFound(err) || err == nil && (project.UserID != v.user() || project.Deleted) {
		return "", weir.Errorf(weir.Invalid, "The project that was chosen is gone. Choose another.")
	}
	return id, err
}

// keyData is the data of the page of a key.
type keyData struct {
	keyForm
	Token   weir.Token
	Project string // its name, when there are several
}

// key returns the user's key that the path names.
func (p *pages) key(v *visit) (weir.Token, error) {
	return p.own(v)(p.store.Token(v.Context(), v.PathValue("id")))
}

// own returns NotFound for the key of another user.
func (p *pages) own(v *visit) func(weir.Token, error) (weir.Token, error) {
	return func(t weir.Token, err error) (weir.Token, error) {
		if err == nil && t.UserID != v.user() {
			err = weir.ErrNotFound()
		}
		return t, err
	}
}

func (p *pages) keyView(v *visit, t weir.Token, f keyForm) (view, error) {
	d := keyData{keyForm: f, Token: t}
	projects, err := p.projects(v)
	if len(projects) > 1 {
		for _, project := range projects {
			if project.ID == t.ProjectID {
				d.Project = project.Name
			}
		}
	}
	return view{Title: t.Name, Here: "keys", Data: d}, err
}

// showKey answers GET /keys/{id}.
func (p *pages) showKey(v *visit) error {
	t, err := p.key(v)
	if err != nil {
		return err
	}
	in, err := p.keyView(v, t, keyFormOf(t))
	if err != nil {
		return err
	}
	return p.render(v, http.StatusOK, "key", in)
}

// changeKey answers POST /keys/{id}.
func (p *pages) changeKey(v *visit) error {
	t, err := p.key(v)
	if err != nil {
		return err
	}
	f := readKeyForm(v.PostForm)
	err = f.checkName()
	access := t.Access
	// The API allows restrictions that the form can't show. They stay as they are unless the form
	// changed them.
	if err == nil && f.restricts() != keyFormOf(t).restricts() {
		access, err = f.access()
	}
	if err == nil {
		ctx := v.Context()
		err = p.store.Tx(ctx, func(tx *store.Tx) error {
			_, err := tx.UpdateToken(ctx, t.ID, func(t *weir.Token) error {
				t.Name, t.Access = f.Name, access
				return nil
			})
			return err
		})
	}
	if err != nil {
		in, viewErr := p.keyView(v, t, f)
		if viewErr != nil {
			return viewErr
		}
		return p.again(v, "key", in, err)
	}
	return v.redirect("keys?done=saved")
}

// revokeKey answers POST /keys/{id}/revoke.
func (p *pages) revokeKey(v *visit) error {
	ctx := v.Context()
	err := p.store.Tx(ctx, func(tx *store.Tx) error {
		t, err := p.own(v)(tx.Token(ctx, v.PathValue("id")))
		if err != nil {
			return err
		}
		return tx.DeleteToken(ctx, t.ID)
	})
	if err != nil {
		return err
	}
	return v.redirect("keys?done=revoked")
}
