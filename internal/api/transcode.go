package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// transcode answers POST /transcode. A destination that does not take our files is
// refused here, and not by a task that fails later.
func (s *server) transcode(w http.ResponseWriter, r *request) error {
	var body weir.NewTranscode
	if err := r.decode(&body); err != nil {
		return err
	}
	ctx, now := r.Context(), time.Now()
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
	if err := s.checkDestination(ctx, r.caller, task); err != nil {
		return err
	}
	// The answer shows the task as it was asked for; it waits from the next moment on.
	answer := task
	task.Queue(now)
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := s.checkPending(ctx, tx, r.caller); err != nil {
			return err
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
	return writeJSON(w, http.StatusOK, answer)
}

// checkSource refuses a source that could never be fetched; field is what the caller calls
// it.
func (s *server) checkSource(field, source string) error {
	err := s.CheckSource(source)
	if e, ok := errors.AsType[*weir.Error](err); ok {
		return weir.Errorf(e.Kind, "%s: %s", field, strings.Join(e.Messages, "; "))
	}
	return err
}

const (
	// destinationChecks is how many destinations of one account are tried at once: a
	// request waits for another's server meanwhile.
	destinationChecks = 4
	// destinationTimeout is how long a destination may take to answer.
	destinationTimeout = 5 * time.Second
)

// checkDestination writes a small file into every folder of the caller's storage
// that the task will write to. A storage that can't be reached now is no reason to
// refuse: the task will try again.
func (s *server) checkDestination(ctx context.Context, caller *weir.Caller, task weir.Task) error {
	leave, err := s.destinations.enter(caller.UserID)
	if err != nil {
		return err
	}
	defer leave()
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

// turnstile lets a few requests of each account through at a time.
type turnstile struct {
	mu     sync.Mutex
	inside map[string]int
}

// enter lets one of the account's requests in, or says that there are enough.
func (t *turnstile) enter(account string) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside[account] >= destinationChecks {
		e := weir.Errorf(weir.Busy, "%d destinations of this account are being checked already; send the request again in a moment", destinationChecks)
		e.RetryAfter = time.Second
		return nil, e
	}
	if t.inside == nil {
		t.inside = map[string]int{}
	}
	t.inside[account]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.inside[account]--; t.inside[account] == 0 {
			delete(t.inside, account)
		}
	}, nil
}
