package blob

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"

	"weir/internal/weir"
)

// Check tests whether a task may write to a storage: it puts a small file with a random name into
// each of the paths, and deletes it. If the storage refuses the deletion, the file stays.
//
// The error is of kind weir.Invalid if the storage refused, with its own reason, or if its address is
// not allowed. A storage that is unreachable or fails at the moment is only logged: the task tries
// again later.
func Check(ctx context.Context, storageURL string, paths []string, taskID string, o Options) error {
	t := o.timing.orDefault()
	o.timing.tries = 1
	store, err := OpenDest(storageURL, o)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	limited, cancel := context.WithTimeout(ctx, t.probe)
	defer cancel()
	keys := make([]string, len(paths)) // of the files that were put
	g, gctx := errgroup.WithContext(limited)
	for i, path := range paths {
		g.Go(func() error {
			key := strings.TrimPrefix(strings.TrimSuffix(path, "/")+"/.weir-check-"+weir.NewID(), "/")
			const text = "weir wrote this to see whether it may write here\n"
			err := store.Put(gctx, key, strings.NewReader(text), int64(len(text)), PutOptions{ContentType: "text/plain"})
			if err == nil {
				keys[i] = key
			}
			return err
		})
	}
	err = g.Wait()
	// Only now: a server that keeps files in folders may remove the folder of a deleted file while
	// another file is put there.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.probe)
	defer cancel()
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := store.Delete(after, key); err != nil {
			o.log().WarnContext(ctx, "test file in a storage could not be deleted; it stays there", "task", taskID, "storage", baseURL(storageURL), "key", key, "err", err)
		}
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if worthRetry(err) || limited.Err() != nil {
		o.log().WarnContext(ctx, "storage could not be checked; the task will try it again", "task", taskID, "storage", baseURL(storageURL), "err", err)
		return nil
	}
	if e, ok := errors.AsType[*weir.Error](err); ok {
		return weir.Errorf(weir.Invalid, "storage: %s", strings.Join(e.Messages, "; "))
	}
	return err
}
