package ipfs

import (
	"context"
	"net/http"

	"weir/internal/ucan"
	"weir/internal/weir"
)

// Uploads are the uploads of spaces. Their owners list and remove them with UCAN invocations.
type Uploads interface {
	// List returns at most size complete uploads of a space, those after the cursor, and the cursor
	// for the next call, which is empty after the last upload. The first call has no cursor.
	List(ctx context.Context, space, cursor string, size int) (uploads []weir.IPFSUpload, next string, err error)

	// Remove removes the uploads of a space with this root. It returns a NotFound error if there is
	// none.
	Remove(ctx context.Context, space, root string) error
}

// Invocations returns the handler of UCAN invocations: upload/list and upload/remove.
func Invocations(identity ucan.Identity, uploads Uploads) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not written yet", http.StatusNotImplemented)
	})
}
