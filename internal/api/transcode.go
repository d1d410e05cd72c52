package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// transcode answers POST /transcode. It refuses a destination that does not accept files, so that
// no task fails because of it later.
func (s *server) transcode(w http.ResponseWriter, r *request, body weir.NewTranscode) error {
	ctx, now := r.Context(), time.Now()
	if id := body.Storage.ObjectStoreID; id != "" {
		bucket, err := s.bucketOf(r, id)
		if err != nil {
			return err
		}
		body.Storage.URL = bucket.Reveal()
	}
	task, err := body.Task(r.caller, now)
	if err != nil {
		return err
	}
	if err := s.checkSource("input", task.InputURL()); err != nil {
		return err
	}
	if err := s.FreeSpace(); err != nil {
		return err
	}
	if task.OnIPFS() {
		err = s.checkProof(task)
	} else {
		err = s.checkDestination(ctx, r.caller, task)
	}
	if err != nil {
		return err
	}
	// The response shows the task before it is queued.
	response := task
	task.Queue(now)
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := s.checkPending(ctx, tx, r.caller.UserID); err != nil {
			return err
		}
		if task.OnIPFS() {
			if err := s.checkRoom(ctx, tx, r.caller.UserID); err != nil {
				return err
			}
		}
		if err := tx.CreateTask(ctx, &task); err != nil {
			return err
		}
		events := weir.NewEventBatch(s.EventBase, now)
		events.Task(weir.TaskSpawned, task)
		return tx.EmitBatch(ctx, events)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, response)
}

// bucketOf returns the URL of an object store of the caller's project, with its credentials.
func (s *server) bucketOf(r *request, id string) (weir.Secret, error) {
	o, err := s.Store.ObjectStore(r.Context(), id)
	caller := weir.Owner{UserID: r.caller.UserID, ProjectID: r.caller.ProjectID}
	if weir.IsNotFound(err) || err == nil && (o.Disabled || !caller.MayName(o.Owner(), false)) {
		return "", weir.Errorf(weir.Refused, "storage.objectStoreId: object store %s not found or disabled", id)
	}
	return o.URL, err
}

// checkSource refuses a source that can't be fetched. field is its name in the request.
func (s *server) checkSource(field, source string) error {
	err := s.CheckSource(source)
	if e, ok := errors.AsType[*weir.Error](err); ok {
		return weir.Errorf(e.Kind, "%s: %s", field, strings.Join(e.Messages, "; "))
	}
	return err
}

const (
	// destinationChecks is how many destinations of one account are checked at once, because each
	// request waits for another server.
	destinationChecks = 4
	// destinationTimeout bounds the check of a destination.
	destinationTimeout = 5 * time.Second
)

// checkDestination writes a small file into every folder of the caller's storage that the task will
// write to. It accepts a storage that can't be reached now: the task will try again.
func (s *server) checkDestination(ctx context.Context, caller *weir.Caller, task weir.Task) error {
	release, ok := s.destinations.acquire(caller.UserID, destinationChecks)
	if !ok {
		return weir.TooMany(time.Second, "%d destinations of this account are being checked already; send the request again in a moment", destinationChecks)
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, destinationTimeout)
	defer cancel()
	var paths []string
	outputs := task.Params.Transcode.Outputs
	for _, p := range []*weir.PathParam{outputs.HLS, outputs.MP4, outputs.FMP4} {
		if p != nil {
			paths = append(paths, p.Path)
		}
	}
	return s.CheckDestination(ctx, task.Secrets.StorageURL, paths, task.ID)
}
