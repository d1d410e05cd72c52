package ipfs

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/ipld"
	"weir/internal/ucan"
	"weir/internal/weir"
)

// someUploads is one upload of a space.
type someUploads struct {
	space, root string
	asked       int // size of the last list
}

func (u *someUploads) List(_ context.Context, space, cursor string, size int) ([]weir.IPFSUpload, string, error) {
	u.asked = size
	if space != u.space || cursor != "" {
		return nil, "", nil
	}
	return []weir.IPFSUpload{{Root: u.root, CreatedAt: 1000, UpdatedAt: 2000}}, "next", nil
}

func (u *someUploads) Remove(_ context.Context, space, root string) error {
	if space != u.space || root != u.root {
		return weir.ErrNotFound()
	}
	u.root = ""
	return nil
}

func mustParse(t *testing.T, text string) ipld.CID {
	t.Helper()
	c, err := ipld.ParseCID(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInvocations(t *testing.T) {
	const root, other = "bafybeihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	service, space := ucan.NewIdentity([32]byte{1}), ucan.NewIdentity([32]byte{2})
	uploads := &someUploads{space: space.DID(), root: root}
	handler := Invocations(service, uploads)
	post := func(body []byte) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
		return w
	}
	invoke := func(by ucan.Identity, can string, args ucan.Map, life time.Duration) ucan.Receipt {
		t.Helper()
		o := ucan.Command{Audience: service.DID(), Can: can, With: space.DID(), Args: args}
		if life != 0 {
			o.Expires = time.Now().Add(life)
		}
		inv, err := by.Invoke(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := post(inv.Message)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != ucan.MessageType {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		response, err := ucan.ReadResponse(w.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		receipt, ok := response.Receipt(inv.Link)
		if !ok {
			t.Fatal("no receipt")
		}
		return receipt
	}
	refused := func(what string, r ucan.Receipt, name, text string) {
		t.Helper()
		message, _ := r.Error["message"].(string)
		if r.Error["name"] != name || !strings.Contains(message, text) {
			t.Errorf("%s: %v", what, r)
		}
	}
	list := invoke(space, ucan.UploadList, ucan.Map{}, 0)
	want := ucan.Map{
		"size": int64(1), "cursor": "next",
		"results": []any{ucan.Map{"root": mustParse(t, root), "insertedAt": "1970-01-01T00:00:01Z", "updatedAt": "1970-01-01T00:00:02Z"}},
	}
	if diff := cmp.Diff(want, list.OK); diff != "" {
		t.Error(diff)
	}
	for size, asked := range map[int64]int{5: 5, -1: 1, 1 << 40: maxPage} {
		if invoke(space, ucan.UploadList, ucan.Map{"size": size}, time.Minute); uploads.asked != asked {
			t.Errorf("size %d asks for %d", size, uploads.asked)
		}
	}
	if r := invoke(space, ucan.UploadList, ucan.Map{"cursor": "next"}, time.Minute); r.OK.(ucan.Map)["size"] != int64(0) {
		t.Errorf("second page: %v", r)
	}
	remove := ucan.Map{"root": mustParse(t, root)}
	refused("stranger", invoke(service, ucan.UploadRemove, remove, time.Minute), "Unauthorized", "no delegation of the space")
	refused("no end", invoke(space, ucan.UploadRemove, remove, 0), "InvalidInvocation", "within an hour")
	refused("late end", invoke(space, ucan.UploadRemove, remove, 2*time.Hour), "InvalidInvocation", "within an hour")
	refused("expired", invoke(space, ucan.UploadRemove, remove, -time.Minute), "Unauthorized", "ended at")
	refused("no root", invoke(space, ucan.UploadRemove, ucan.Map{"root": root}, time.Minute), "InvalidInvocation", "needs the root")
	refused("other root", invoke(space, ucan.UploadRemove, ucan.Map{"root": mustParse(t, other)}, time.Minute), "UploadNotFound", "no such upload")
	refused("other ability", invoke(space, ucan.UploadAdd, remove, time.Minute), "HandlerNotFoundError", "upload/list and upload/remove only")
	if uploads.root == "" {
		t.Fatal("removed by a refused invocation")
	}
	if r := invoke(space, ucan.UploadRemove, remove, time.Minute); r.Error != nil || uploads.root != "" {
		t.Errorf("remove: %v", r)
	}
	refused("again", invoke(space, ucan.UploadRemove, remove, time.Minute), "UploadNotFound", "")

	if w := post([]byte("hello")); w.Code != http.StatusBadRequest {
		t.Errorf("not a message: status %d", w.Code)
	}
	if w := post(make([]byte, maxInvocations+1)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("long message: status %d", w.Code)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d", w.Code)
	}
}

// TestServiceErrors has responses of upload services, and whether a task is tried again.
func TestServiceErrors(t *testing.T) {
	for _, tt := range []struct {
		name, message string
		kind          weir.Kind
		retried       bool
	}{
		{"Unauthorized", "Claim {\"can\":\"space/blob/add\"} is not authorized\n  - Proof bafyreib has been revoked", weir.Denied, false},
		{"Unauthorized", "Delegated capability not found", weir.Denied, false},
		{"InsufficientStorage", "did:key:z6 has no storage provider", weir.Denied, false},
		{"ServiceUnavailable", `The "space/blob/add" capability is currently disabled.`, weir.Unavailable, false},
		{"InvalidAudience", "Delegation audience is 'did:web:a' instead of 'did:web:b'", weir.Unavailable, false},
		{"HandlerExecutionError", "database is away", weir.Upstream, true},
		{"", "", weir.Upstream, true},
	} {
		err := serviceError(ucan.Map{"name": tt.name, "message": tt.message})
		if weir.KindOf(err) != tt.kind || weir.Retriable(err) != tt.retried {
			t.Errorf("%s: %v of kind %s, tried again: %t", tt.name, err, weir.KindOf(err), weir.Retriable(err))
		}
		if strings.Contains(tt.message, "revoked") && strings.Contains(err.Error(), "bafy") {
			t.Errorf("%v names a CID", err)
		}
	}
}
