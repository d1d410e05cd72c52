package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"weir/internal/weir"
)

// Check finds out whether a task may write to a storage, by writing: it puts a small
// metadata.json, which stays, into each of the paths.
//
// The error is of kind weir.Invalid if the storage refused, with its own reason, or if
// it is at an address that may not be reached. A storage that can't be reached or fails
// at the moment is no error: the task tries again later. The log says so.
func Check(ctx context.Context, storageURL string, paths []string, taskID string, o Options) error {
	t := o.tempo.orDefault()
	o.tempo.tries = 1
	store, err := OpenDest(storageURL, o)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	body, err := json.Marshal(map[string]string{"external_id": taskID})
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, t.probe)
	defer cancel()
	g, gctx := errgroup.WithContext(limited)
	for _, path := range paths {
		g.Go(func() error {
			key := strings.TrimPrefix(strings.TrimSuffix(path, "/")+"/metadata.json", "/")
			return store.Put(gctx, key, bytes.NewReader(body), int64(len(body)), PutOptions{ContentType: "application/json"})
		})
	}
	err = g.Wait()
	if err == nil || ctx.Err() != nil {
		return err
	}
	if worthRetry(err) || limited.Err() != nil {
		o.log().WarnContext(ctx, "storage not reachable yet", "task", taskID, "storage", baseURL(storageURL), "err", err)
		return nil
	}
	if e, ok := errors.AsType[*weir.Error](err); ok {
		return weir.Errorf(weir.Invalid, "storage: %s", strings.Join(e.Messages, "; "))
	}
	return err
}
