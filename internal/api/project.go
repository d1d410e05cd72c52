package api

import (
	"context"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

func showProject(p weir.Project) weir.Project { return p }

func projectOwner(p weir.Project) (string, bool) { return p.UserID, p.Deleted }

// ownProject turns what the caller may not see into what does not exist.
func ownProject(r *request) func(weir.Project, error) (weir.Project, error) {
	return func(p weir.Project, err error) (weir.Project, error) {
		if isNotFound(err) || err == nil && (p.Deleted && !r.caller.Admin || !r.caller.Owns(p.UserID, "")) {
			err = weir.Errorf(weir.NotFound, "project not found")
		}
		return p, err
	}
}

// decodeProject reads the one member of a project that callers may set.
func decodeProject(r *request) (name string, err error) {
	var body struct {
		Name string `json:"name"`
	}
	err = r.decode(&body)
	return body.Name, err
}

// createProject answers POST /project.
func (s *server) createProject(w http.ResponseWriter, r *request) error {
	name, err := decodeProject(r)
	if err != nil {
		return err
	}
	p := weir.Project{ID: weir.NewID(), Name: name, UserID: r.caller.UserID, CreatedAt: weir.At(time.Now())}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateProject(ctx, &p) }); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, p)
}

// listProjects answers GET /project.
func (s *server) listProjects(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	page, err := s.Store.Projects(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, showProject, projectOwner)
}

// getProject answers GET /project/{id}.
func (s *server) getProject(w http.ResponseWriter, r *request) error {
	p, err := ownProject(r)(s.Store.Project(r.Context(), r.PathValue("id")))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, p)
}

// changeProject changes a project of the caller's in one transaction.
func (s *server) changeProject(w http.ResponseWriter, r *request, change func(*store.Tx, *weir.Project) error) error {
	ctx, id := r.Context(), r.PathValue("id")
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := ownProject(r)(tx.Project(ctx, id)); err != nil {
			return err
		}
		_, err := tx.UpdateProject(ctx, id, func(p *weir.Project) error { return change(tx, p) })
		return err
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// patchProject answers PATCH /project/{id}.
func (s *server) patchProject(w http.ResponseWriter, r *request) error {
	name, err := decodeProject(r)
	if err != nil {
		return err
	}
	return s.changeProject(w, r, func(_ *store.Tx, p *weir.Project) error {
		p.Name = name
		return nil
	})
}

// deleteProject answers DELETE /project/{id}. What is in a project can only be
// reached through it, so it must be empty; its API keys go with it.
func (s *server) deleteProject(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	return s.changeProject(w, r, func(tx *store.Tx, p *weir.Project) error {
		u, err := tx.User(ctx, p.UserID)
		if err != nil && !isNotFound(err) {
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

// checkEmpty refuses a project that still has something in it.
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

// revokeKeys ends all API keys of a project.
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
