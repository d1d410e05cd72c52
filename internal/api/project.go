package api

import (
	"context"
	"net/http"
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

// checkEmpty returns an error if a project still has resources.
func checkEmpty(ctx context.Context, tx *store.Tx, p *weir.Project) error {
	q := store.Query{UserID: p.UserID, ProjectID: p.ID, Limit: 1}
	streams, err := tx.Streams(ctx, q)
	if err != nil {
		return err
	}
	assets, err := tx.Assets(ctx, q)
	if err != nil {
		return err
	}
	webhooks, err := tx.Webhooks(ctx, q)
	if err != nil {
		return err
	}
	if len(streams.Items)+len(assets.Items)+len(webhooks.Items) > 0 {
		return weir.Errorf(weir.Refused, "the project still has streams, assets or webhooks; delete them first")
	}
	return nil
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
