package ucan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/multiformats/go-varint"

	"weir/internal/ipfs"
	"weir/internal/ucan"
	"weir/internal/weir"
)

var identity = ucan.NewIdentity([32]byte{1, 2, 3})

// shard makes a CAR file with one block of content, and the CID of that block.
func shard(t *testing.T, content string) (s ipfs.Shard, file []byte, root string) {
	t.Helper()
	hash, err := multihash.Sum([]byte(content), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	c := cid.NewCidV1(cid.Raw, hash)
	file = append([]byte{17}, "\xa2eroots\x80gversion\x01"...)
	file = append(file, varint.ToUvarint(uint64(c.ByteLen()+len(content)))...)
	file = append(file, c.Bytes()...)
	block := weir.IPFSBlock{Hash: hash, Offset: int64(len(file)), Size: int64(len(content))}
	file = append(file, content...)
	return ipfs.Shard{Size: int64(len(file)), Digest: sha256.Sum256(file), Blocks: []weir.IPFSBlock{block}}, file, c.String()
}

func check(t *testing.T, text string) ucan.Proof {
	t.Helper()
	now := time.Now()
	p, err := ucan.Check(text, ucan.Conditions{Audience: identity.DID(), Now: now, Until: now.Add(time.Hour), Abilities: ucan.UploadAbilities()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// upload puts a shard and finishes the upload.
func upload(t *testing.T, s *ipfs.Service, content string) (root string, err error) {
	t.Helper()
	sh, file, root := shard(t, content)
	err = s.PutShard(t.Context(), sh, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil })
	if err == nil {
		err = s.Finish(t.Context(), root, []ipfs.Shard{sh})
	}
	return root, err
}

func TestService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	space := r.space(t)
	remote := func(text string) *ipfs.Service { return ipfs.NewService(r.URL, r.DID, identity, check(t, text)) }
	good := r.prove(t, space, identity.DID(), ucan.UploadAbilities(), nil)

	t.Run("forms", func(t *testing.T) {
		for form, text := range good.Forms {
			content := "uploaded with the form " + form
			root, err := upload(t, remote(text), content)
			if err != nil {
				t.Fatalf("%s: %v", form, err)
			}
			found := false
			for _, u := range r.list(t, space) {
				if u.Root != root {
					continue
				}
				found = true
				blocks := call[map[string]string](t, r, "blocks", map[string]any{"shards": u.Shards})
				if got, _ := base64.StdEncoding.DecodeString(blocks[root]); string(got) != content {
					t.Errorf("%s: content %q", form, got)
				}
			}
			if !found {
				t.Errorf("%s: the owner does not see the upload", form)
			}
		}
		if n := len(good.Forms); n != 5 || len(r.list(t, space)) != n {
			t.Errorf("%d forms, %d uploads", n, len(r.list(t, space)))
		}
	})

	t.Run("nothing is sent twice", func(t *testing.T) {
		s := remote(good.Forms["storacha"])
		first, err := upload(t, s, "sent once")
		if err != nil {
			t.Fatal(err)
		}
		before := r.stats(t)
		again, err := upload(t, s, "sent once")
		if err != nil || again != first {
			t.Fatal(again, err)
		}
		if after := r.stats(t); after.Count != before.Count {
			t.Errorf("%d PUTs for what is stored", after.Count-before.Count)
		}
	})

	t.Run("failing storage", func(t *testing.T) {
		before := r.stats(t)
		r.failPuts(t, 2)
		if _, err := upload(t, remote(good.Forms["storacha"]), "the third PUT succeeds"); err != nil {
			t.Fatal(err)
		}
		if n := r.stats(t).Count - before.Count; n != 4 { // three of the shard, one of the index
			t.Errorf("%d PUTs", n)
		}
	})

	t.Run("outage", func(t *testing.T) {
		call[any](t, r, "outage", map[string]any{"count": 1})
		if _, err := upload(t, remote(good.Forms["storacha"]), "the second invocation succeeds"); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("no more writes", func(t *testing.T) {
		call[any](t, r, "disable", map[string]any{"abilities": []string{ucan.BlobAdd}})
		defer call[any](t, r, "disable", map[string]any{"abilities": []string{}})
		_, err := upload(t, remote(good.Forms["storacha"]), "disabled")
		if err == nil || weir.Retriable(err) || !strings.HasPrefix(err.Error(), "the upload service does not take uploads any more") {
			t.Error(err)
		}
	})

	t.Run("list and remove", func(t *testing.T) {
		if err := remote(good.Forms["storacha"]).Remove(t.Context(), "bafkqaaa"); weir.KindOf(err) != weir.Denied {
			t.Error("removed without the ability: ", err)
		}
		other := r.space(t)
		all := r.prove(t, other, identity.DID(), []string{"space/*", "upload/*"}, nil)
		s := remote(all.Forms["storacha --base64"])
		root, err := upload(t, s, "listed and removed")
		if err != nil {
			t.Fatal(err)
		}
		if roots, _, err := s.List(t.Context(), ""); err != nil || len(roots) != 1 || roots[0] != root {
			t.Errorf("%v, %v", roots, err)
		}
		if err := s.Remove(t.Context(), root); err != nil {
			t.Error(err)
		}
		if roots, _, err := s.List(t.Context(), ""); err != nil || len(roots) > 0 {
			t.Errorf("%v, %v after it was removed", roots, err)
		}
	})

	// The rights of a second device come from an account, which only the service can verify.
	t.Run("account", func(t *testing.T) {
		space := r.space(t)
		call[any](t, r, "device", map[string]any{"space": space, "email": "user@example.com"})
		p := check(t, r.prove(t, space, identity.DID(), ucan.UploadAbilities(), nil).Forms["storacha"])
		if !p.AccountIssued || p.Space != space {
			t.Errorf("%+v", p)
		}
		root, err := upload(t, ipfs.NewService(r.URL, r.DID, identity, p), "from a second device")
		if err != nil {
			t.Fatal(err)
		}
		if all := r.list(t, space); len(all) != 1 || all[0].Root != root {
			t.Errorf("uploads %v", all)
		}
	})

	t.Run("failures", func(t *testing.T) {
		revoked := r.prove(t, space, identity.DID(), ucan.UploadAbilities(), map[string]any{"nonce": "to be revoked"})
		call[any](t, r, "revoke", map[string]any{"space": space, "cid": revoked.CID})
		bare := call[string](t, r, "space", map[string]any{"bare": true})
		noProvider := r.prove(t, bare, identity.DID(), ucan.UploadAbilities(), nil)
		for name, tt := range map[string]struct {
			remote *ipfs.Service
			want   string
		}{
			"revoked":           {remote(revoked.Forms["storacha"]), "the delegation was revoked; make another proof"},
			"no provider":       {remote(noProvider.Forms["storacha"]), "the space has no storage provider at the upload service"},
			"wrong service DID": {ipfs.NewService(r.URL, "did:web:other.example.com", identity, check(t, good.Forms["w3"])), "the upload service has another DID"},
			"other key":         {ipfs.NewService(r.URL, r.DID, ucan.NewIdentity([32]byte{9}), check(t, good.Forms["w3"])), "the upload service does not accept the proof"},
		} {
			before := r.stats(t)
			_, err := upload(t, tt.remote, name)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			if weir.Retriable(err) {
				t.Errorf("%s: will be tried again", name)
			}
			if n := r.stats(t).Orders[ucan.BlobAdd] - before.Orders[ucan.BlobAdd]; n != 1 {
				t.Errorf("%s: %d attempts", name, n)
			}
			if strings.Contains(err.Error(), "bafy") && name == "revoked" {
				t.Errorf("%s: the error names a CID", name)
			}
		}
	})

	t.Run("invocations", func(t *testing.T) { invocations(t, r) })
}

// kept are uploads in memory.
type kept struct {
	mu  sync.Mutex
	all []weir.IPFSUpload
}

func (k *kept) List(_ context.Context, space, cursor string, size int) ([]weir.IPFSUpload, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var page []weir.IPFSUpload
	from, _ := strconv.Atoi(cursor)
	for i, u := range k.all {
		if u.Space != space || i < from {
			continue
		}
		if len(page) == size {
			return page, strconv.Itoa(i), nil
		}
		page = append(page, u)
	}
	return page, "", nil
}

func (k *kept) Remove(_ context.Context, space, root string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, u := range k.all {
		if u.Space == space && u.Root == root {
			k.all = append(k.all[:i], k.all[i+1:]...)
			return nil
		}
	}
	return weir.ErrNotFound()
}

// invocations lists and removes uploads that weir keeps, with the client and the command line tool of
// the upload service.
func invocations(t *testing.T, r *rig) {
	mine, others := r.space(t), r.space(t)
	_, _, a := shard(t, "a")
	_, _, b := shard(t, "b")
	_, _, c := shard(t, "c")
	uploads := &kept{all: []weir.IPFSUpload{{Space: mine, Root: a}, {Space: others, Root: b}, {Space: mine, Root: c}}}
	server := httptest.NewServer(ipfs.Invocations(identity, uploads))
	defer server.Close()
	type result struct {
		OK      any
		Error   string
		Message string
		Cursor  string
	}
	act := func(in map[string]any) result {
		t.Helper()
		in["to"] = server.URL
		if in["did"] == nil {
			in["did"] = identity.DID()
		}
		return call[result](t, r, "elsewhere", in)
	}
	roots := func(res result) string {
		var all []string
		list, _ := res.OK.([]any)
		for _, root := range list {
			all = append(all, root.(string))
		}
		return strings.Join(all, " ")
	}
	if res := act(map[string]any{"space": mine, "what": "ls"}); roots(res) != a+" "+c || res.Cursor != "" {
		t.Errorf("list: %+v", res)
	}
	first := act(map[string]any{"space": mine, "what": "ls", "size": 1})
	if roots(first) != a || first.Cursor == "" {
		t.Errorf("first page: %+v", first)
	}
	if res := act(map[string]any{"space": mine, "what": "ls", "size": 1, "cursor": first.Cursor}); roots(res) != c || res.Cursor != "" {
		t.Errorf("second page: %+v", res)
	}
	if res := act(map[string]any{"space": mine, "what": "rm", "root": b}); res.Error != "UploadNotFound" {
		t.Errorf("upload of another space: %+v", res)
	}
	if res := act(map[string]any{"space": mine, "what": "ls", "did": "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"}); res.Error != "Unauthorized" {
		t.Errorf("other audience: %+v", res)
	}
	if res := act(map[string]any{"space": mine, "what": "rm", "root": a}); res.OK == nil {
		t.Errorf("remove: %+v", res)
	}

	// The same with the command line tool.
	agent := call[struct{ Key, Proof string }](t, r, "agent", map[string]any{"space": mine})
	home := t.TempDir()
	storacha := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("node", append([]string{"node_modules/@storacha/cli/bin.js"}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home, "HOME="+home, "STORACHA_PRINCIPAL="+agent.Key,
			"STORACHA_SERVICE_URL="+server.URL, "STORACHA_SERVICE_DID="+identity.DID(), "STORACHA_RECEIPTS_URL="+server.URL+"/receipt/")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("storacha %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	storacha("space", "add", agent.Proof)
	if out := storacha("ls"); !strings.Contains(out, c) || strings.Contains(out, a) {
		t.Errorf("storacha ls: %s", out)
	}
	storacha("rm", c)
	if out := storacha("ls"); strings.Contains(out, c) {
		t.Errorf("storacha ls after rm: %s", out)
	}
	if len(uploads.all) != 1 {
		t.Errorf("%d uploads are left, want that of the other space", len(uploads.all))
	}
}
