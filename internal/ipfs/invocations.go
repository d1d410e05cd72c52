package ipfs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"weir/internal/ipld"
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

// Bounds of the invocations of others.
const (
	maxInvocations = 256 << 10     // bytes of a message
	maxRemovalLife = 1 * time.Hour // how long an invocation of upload/remove may be in force
	defaultPage    = 100           // uploads that a list has if the invocation has no size
	maxPage        = 1000
)

// Invocations returns the handler of UCAN invocations: upload/list and upload/remove, for those who
// have the key of a space or delegations from it. So tools for upload services such as storacha work
// with the uploads that this server keeps.
func Invocations(identity ucan.Identity, uploads Uploads) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "send UCAN invocations with POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInvocations))
		if err != nil {
			http.Error(w, "the message must be complete and have at most 256 KiB", http.StatusRequestEntityTooLarge)
			return
		}
		requests, err := ucan.ReadRequests(body, identity.DID(), time.Now())
		if err != nil {
			http.Error(w, err.Error(), weir.KindOf(err).Status())
			return
		}
		var replies []ucan.Reply
		for _, request := range requests {
			ok, failure := respond(r.Context(), uploads, request, time.Now())
			replies = append(replies, ucan.Reply{Request: request.Link, OK: ok, Error: failure})
		}
		message, err := identity.Reply(replies)
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", ucan.MessageType)
		_, _ = w.Write(message)
	})
}

// respond does what a request asks for. failure is nil if it succeeded.
func respond(ctx context.Context, uploads Uploads, r ucan.Request, now time.Time) (ok any, failure ucan.Map) {
	if r.Refused != nil {
		return nil, ucan.Failure("Unauthorized", r.Refused.Error())
	}
	switch r.Can {
	case ucan.UploadList:
		cursor, _ := r.Args["cursor"].(string)
		size, given := r.Args["size"].(int64)
		if !given {
			size = defaultPage
		}
		page, next, err := uploads.List(ctx, r.Space, cursor, int(min(max(size, 1), maxPage)))
		if err != nil {
			return nil, replyFailure(err)
		}
		results := []any{}
		for _, u := range page {
			root, err := ipld.ParseCID(u.Root)
			if err != nil {
				return nil, replyFailure(err)
			}
			results = append(results, ucan.Map{
				"root":       root,
				"insertedAt": u.CreatedAt.Time().UTC().Format(time.RFC3339Nano),
				"updatedAt":  u.UpdatedAt.Time().UTC().Format(time.RFC3339Nano),
			})
		}
		list := ucan.Map{"results": results, "size": int64(len(results))}
		if next != "" {
			list["cursor"] = next
		}
		return list, nil
	case ucan.UploadRemove:
		// Who has seen an old removal could send it again after the same files were uploaded again.
		if r.Ends.IsZero() || r.Ends.After(now.Add(maxRemovalLife)) {
			return nil, ucan.Failure("InvalidInvocation", "an invocation of upload/remove must end within an hour")
		}
		root, given := r.Args["root"].(ipld.CID)
		if !given {
			return nil, ucan.Failure("InvalidInvocation", "upload/remove needs the root of the upload")
		}
		if err := uploads.Remove(ctx, r.Space, root.String()); err != nil {
			return nil, replyFailure(err)
		}
		return ucan.Map{"root": root}, nil
	}
	return nil, ucan.Failure("HandlerNotFoundError", "this server has upload/list and upload/remove only")
}

// replyFailure returns the failure for an error of Uploads.
func replyFailure(err error) ucan.Map {
	e, ok := errors.AsType[*weir.Error](err)
	switch {
	case !ok || e.Kind == weir.Internal:
		return ucan.Failure("HandlerExecutionError", "internal error")
	case e.Kind == weir.NotFound:
		return ucan.Failure("UploadNotFound", "the space has no such upload")
	}
	return ucan.Failure("HandlerExecutionError", strings.Join(e.Messages, "; "))
}
