package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// nameBody is a body that has only a name.
type nameBody struct {
	Name string `json:"name"`
}

// createProject answers POST /project.
func (s *server) createProject(w http.ResponseWriter, r *request, body nameBody) error {
	p := weir.Project{ID: weir.NewID(), Name: body.Name, UserID: r.caller.UserID, CreatedAt: weir.At(time.Now())}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CheckQuota(ctx, p.UserID, weir.Projects, 1); err != nil {
			return err
		}
		return tx.CreateProject(ctx, &p)
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, p)
}

// getProject answers GET /project/{id}.
func (s *server) getProject(w http.ResponseWriter, r *request) error {
	p, err := get(r, s.Store.Project, r.PathValue("id"))
	if err != nil {
		return notFoundAs(err, "project not found")
	}
	return writeJSON(w, http.StatusOK, p)
}

// changeProject changes the project that the path names.
func (s *server) changeProject(w http.ResponseWriter, r *request, do func(*store.Tx, *weir.Project) error) error {
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateProject, do)
	return noContent(w, notFoundAs(err, "project not found"))
}

// patchProject answers PATCH /project/{id}. Only the name can be changed.
func (s *server) patchProject(w http.ResponseWriter, r *request, body nameBody) error {
	return s.changeProject(w, r, func(_ *store.Tx, p *weir.Project) error {
		p.Name = body.Name
		return nil
	})
}

// deleteProject answers DELETE /project/{id}. The project must be empty, because its resources
// could not be reached any more. Its API keys are deleted too.
func (s *server) deleteProject(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	return s.changeProject(w, r, func(tx *store.Tx, p *weir.Project) error {
		u, err := tx.User(ctx, p.UserID)
		if ignoreNotFound(err) != nil {
			return err
		}
		if u.DefaultProjectID == p.ID {
			return weir.Errorf(weir.Refused, "the default project cannot be deleted")
		}
		if err := checkEmpty(ctx, tx, p); err != nil {
			return err
		}
		p.Deleted = true
		return revokeKeys(ctx, tx, p)
	})
}

// checkEmpty returns an error that names what a project still has.
func checkEmpty(ctx context.Context, tx *store.Tx, p *weir.Project) error {
	var left []string
	for _, kind := range []struct {
		name string
		any  func() (bool, error)
	}{
		{"streams", anyOf(ctx, p, tx.Streams)},
		{"assets", anyOf(ctx, p, tx.Assets)},
		{"webhooks", anyOf(ctx, p, tx.Webhooks)},
		{"multistream targets", anyOf(ctx, p, tx.Targets)},
		{"object stores", anyOf(ctx, p, tx.ObjectStores)},
		{"signing keys", anyOf(ctx, p, tx.SigningKeys)},
	} {
		some, err := kind.any()
		if err != nil {
			return err
		}
		if some {
			left = append(left, kind.name)
		}
	}
	if len(left) > 0 {
		return weir.Errorf(weir.Refused, "the project still has %s; delete them first", strings.Join(left, ", "))
	}
	return nil
}

// anyOf returns a function that reports whether a list has anything of a project.
func anyOf[T any](ctx context.Context, p *weir.Project, list func(context.Context, store.Query) (store.Page[T], error)) func() (bool, error) {
	return func() (bool, error) {
		page, err := list(ctx, store.Query{UserID: p.UserID, ProjectID: p.ID, Limit: 1})
		return len(page.Items) > 0, err
	}
}

// revokeKeys deletes all API keys of a project.
func revokeKeys(ctx context.Context, tx *store.Tx, p *weir.Project) error {
	for {
		page, err := tx.Tokens(ctx, store.Query{UserID: p.UserID, ProjectID: p.ID, Limit: store.MaxLimit})
		if err != nil || len(page.Items) == 0 {
			return err
		}
		for _, t := range page.Items {
			if err := tx.DeleteToken(ctx, t.ID); err != nil {
				return err
			}
		}
	}
}
