package ucan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"weir/e2e/harness"
	"weir/internal/blob"
	"weir/internal/ipfs"
	"weir/internal/ipld"
	"weir/internal/ucan"
	"weir/internal/weir"
)

var identity = ucan.NewIdentity([32]byte{1, 2, 3})

// A carFile is a shard with its bytes.
type carFile struct {
	ipfs.Shard
	data []byte
}

func newCAR(number int) *carFile {
	return &carFile{Shard: ipfs.Shard{Number: number}, data: ipld.AppendCARHeader(nil)}
}

// add appends a block.
func (f *carFile) add(c ipld.CID, block []byte) {
	f.data = ipld.AppendCARSection(f.data, c, len(block))
	f.Blocks = append(f.Blocks, weir.IPFSBlock{Hash: c.Hash(), Shard: f.Number, Offset: int64(len(f.data)), Size: int64(len(block))})
	f.data = append(f.data, block...)
	f.Size, f.Digest = int64(len(f.data)), sha256.Sum256(f.data)
}

// packed returns the CID of a folder and its blocks in two shards, made by ipfs-car.
func packed(t *testing.T, folder string) (root string, shards []*carFile) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "packed.car")
	root = harness.IPFSCar(t, "pack", "--no-wrap", folder, "--output", file)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipld.NewCARReader(f, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	shards = []*carFile{newCAR(0), newCAR(1)}
	for i := 0; ; i++ {
		c, block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root, shards
		}
		if err != nil {
			t.Fatal(err)
		}
		shards[i%2].add(c, block)
	}
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

// send puts shards and finishes the upload.
func send(t *testing.T, s *ipfs.Service, root string, files ...*carFile) error {
	t.Helper()
	var shards []ipfs.Shard
	for _, f := range files {
		if err := s.PutShard(t.Context(), f.Shard, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.data)), nil }); err != nil {
			return err
		}
		shards = append(shards, f.Shard)
	}
	return s.Finish(t.Context(), root, shards)
}

// upload uploads a file of one block.
func upload(t *testing.T, s *ipfs.Service, content string) (root string, err error) {
	t.Helper()
	c, f := ipld.Sum(ipld.Raw, []byte(content)), newCAR(0)
	f.add(c, []byte(content))
	return c.String(), send(t, s, c.String(), f)
}

func TestService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	space := r.space(t)
	remote := func(text string) *ipfs.Service { return ipfs.NewService(r.URL, r.DID, identity, check(t, text)) }
	good := r.prove(t, space, identity.DID(), ucan.UploadAbilities(), nil)

	t.Run("forms", func(t *testing.T) {
		folder := t.TempDir()
		for name, content := range map[string]string{"hls/index.m3u8": "#EXTM3U", "hls/0/0.ts": strings.Repeat("media ", 400_000), "mp4/v.mp4": "", "ü.txt": "text"} {
			if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		root, shards := packed(t, folder)
		var want []string
		for form, text := range good.Forms {
			// The folder goes up with the first form, and another file with each other one.
			if len(want) == 0 {
				if err := send(t, remote(text), root, shards...); err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				want = append(want, root)
				continue
			}
			root, err := upload(t, remote(text), "uploaded with the form "+form)
			if err != nil {
				t.Fatalf("%s: %v", form, err)
			}
			want = append(want, root)
		}
		var got []string
		for _, u := range r.list(t, space) {
			if got = append(got, u.Root); u.Root == root {
				sameFiles(t, r.fetch(t, u), folder)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || len(got) != 5 {
			t.Errorf("uploads that the owner sees: %s", diff)
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

	// ipfs-car makes other nodes of large directories, so that the root differs and the files are the same.
	t.Run("large directory", func(t *testing.T) {
		space, folder := r.space(t), t.TempDir()
		staging, err := blob.NewDisk(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer staging.Close()
		proof := r.prove(t, space, identity.DID(), ucan.UploadAbilities(), nil).Forms["storacha"]
		d := ipfs.NewDest(ipfs.DestOptions{Staging: staging, Prefix: "files", Scratch: t.TempDir(), Remote: remote(proof)})
		var puts errgroup.Group
		puts.SetLimit(16)
		for i := range 1100 {
			puts.Go(func() error {
				name, content := fmt.Sprintf("%0250d.ts", i), fmt.Sprintf("segment %d", i)
				err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600)
				return errors.Join(err, d.Put(t.Context(), name, strings.NewReader(content), int64(len(content)), blob.PutOptions{}))
			})
		}
		if err := puts.Wait(); err != nil {
			t.Fatal(err)
		}
		base, err := d.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := r.list(t, space)
		if len(all) != 1 || "ipfs://"+all[0].Root != base {
			t.Fatalf("uploads %v, want %s", all, base)
		}
		sameFiles(t, r.fetch(t, all[0]), folder)
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
			"wrong service DID": {ipfs.NewService(r.URL, "did:web:other.example.com", identity, check(t, good.Forms["w3"])), "the DID of the upload service differs"},
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
	a, b, c := ipld.Sum(ipld.Raw, []byte("a")).String(), ipld.Sum(ipld.Raw, []byte("b")).String(), ipld.Sum(ipld.Raw, []byte("c")).String()
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
	owner := storacha(t, r, mine, server.URL, identity.DID())
	if out := owner("ls"); !strings.Contains(out, c) || strings.Contains(out, a) {
		t.Errorf("storacha ls: %s", out)
	}
	owner("rm", c)
	if len(uploads.all) != 1 {
		t.Errorf("%d uploads are left, want that of the other space", len(uploads.all))
	}
}
