package ipfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/ipld"
	"weir/internal/weir"
)

// rpc answers like the RPC of Kubo, as far as it is used here. make test-kubo uses a real one.
type rpc struct {
	auth string // what is accepted as Authorization
	fail int    // status of the next responses

	mu     sync.Mutex
	blocks map[string]bool // CIDs
	pins   []string
}

func (n *rpc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	say := func(status int, message string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"Message": message, "Code": 0, "Type": "error"})
	}
	arg := r.URL.Query().Get("arg")
	switch {
	case n.fail != 0:
		say(n.fail, "something is wrong")
	case n.auth != r.Header.Get("Authorization"):
		http.Error(w, "403 - Forbidden", http.StatusForbidden)
	case r.Method != http.MethodPost:
		http.Error(w, "405 - Method Not Allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == "/sub/api/v0/dag/import":
		if r.ContentLength < 0 {
			say(http.StatusInternalServerError, "no length")
			return
		}
		form, err := r.MultipartReader()
		if err != nil {
			say(http.StatusInternalServerError, err.Error())
			return
		}
		part, err := form.NextPart()
		if err != nil || part.FormName() != "file" {
			say(http.StatusInternalServerError, "no file")
			return
		}
		blocks, err := ipld.NewCARReader(part, carSectionLimit)
		for err == nil {
			c, block, e := blocks.Next()
			if err = e; e == nil && c.Verify(block) {
				n.blocks[c.String()] = true
			}
		}
		if !errors.Is(err, io.EOF) {
			w.Header().Set("Trailer", "X-Stream-Error")
			_, _ = io.WriteString(w, "{}\n")
			w.Header().Set("X-Stream-Error", err.Error())
		}
	case r.URL.Path == "/sub/api/v0/pin/add":
		if !n.blocks[arg] {
			say(http.StatusInternalServerError, "pin: block was not found locally (offline): ipld: could not find "+arg)
			return
		}
		n.pins = append(n.pins, arg)
		fmt.Fprintf(w, "{\"Progress\":1}\n{\"Pins\":[%q]}\n", arg)
	case r.URL.Path == "/sub/api/v0/pin/rm":
		if !slices.Contains(n.pins, arg) {
			say(http.StatusInternalServerError, "not pinned or pinned indirectly")
			return
		}
		n.pins = slices.DeleteFunc(n.pins, func(s string) bool { return s == arg })
	default:
		http.NotFound(w, r)
	}
}

func newRPC(t *testing.T) (n *rpc, url string) {
	t.Helper()
	n = &rpc{blocks: map[string]bool{}}
	web := httptest.NewServer(n)
	t.Cleanup(web.Close)
	return n, web.URL + "/sub/"
}

func newKubo(t *testing.T, url string) *kubo {
	t.Helper()
	k, err := NewKubo(url)
	if err != nil {
		t.Fatal(err)
	}
	return k.(*kubo)
}

func TestKubo(t *testing.T) {
	n, url := newRPC(t)
	k := newKubo(t, url)
	d := NewDest(DestOptions{Staging: newStore(t), Prefix: "w", Scratch: t.TempDir(), Remote: k, shardSize: 5 << 19})
	putAll(t, d, film)
	want, shards := pack(t, film, nil)
	if base, err := d.Seal(t.Context()); err != nil || base != "ipfs://"+want.String() {
		t.Fatalf("%s, %v", base, err)
	}
	if len(n.blocks) != len(shards[0].Blocks) || !slices.Equal(n.pins, []string{want.String()}) {
		t.Errorf("%d blocks of %d, pins %v", len(n.blocks), len(shards[0].Blocks), n.pins)
	}
	for range 2 {
		if err := k.Remove(t.Context(), want.String()); err != nil || len(n.pins) != 0 {
			t.Errorf("%v, %v", err, n.pins)
		}
	}
}

// A node that collected garbage in the middle gets everything again.
func TestKuboLosesBlocks(t *testing.T) {
	n, url := newRPC(t)
	want, shards := pack(t, film, nil)
	remote := &recorder{Remote: newKubo(t, url), lose: func() { clear(n.blocks) }}
	d := NewDest(DestOptions{Staging: newStore(t), Prefix: "w", Scratch: t.TempDir(), Remote: remote, shardSize: 5 << 19})
	putAll(t, d, film)
	if _, err := d.Seal(t.Context()); !errors.Is(err, errLost) || weir.KindOf(err) != weir.Upstream {
		t.Fatal(err)
	}
	remote.lose = nil
	if base, err := d.Seal(t.Context()); err != nil || base != "ipfs://"+want.String() {
		t.Fatalf("%s, %v", base, err)
	}
	if len(n.blocks) != len(shards[0].Blocks) {
		t.Errorf("%d blocks of %d", len(n.blocks), len(shards[0].Blocks))
	}
}

func TestKuboFails(t *testing.T) {
	n, url := newRPC(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	block := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer silent.Close()
	defer close(block)
	secret := strings.Replace(url, "http://", "http://user:sesame@", 1)
	for _, c := range []struct {
		name, url string
		prepare   func()
		kind      weir.Kind
		text      string
	}{
		{"error", secret, func() { n.fail = 500 }, weir.Upstream, "something is wrong"},
		{"credentials", secret, func() { n.auth = "other" }, weir.Unavailable, "credentials"},
		{"another server", strings.Replace(secret, "/sub", "/other", 1), func() {}, weir.Unavailable, "not the RPC"},
		{"gone", gone.URL, func() {}, weir.Upstream, "can't be reached"},
		{"silent", silent.URL, func() {}, weir.Upstream, "stopped answering"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.fail, n.auth = 0, "Basic dXNlcjpzZXNhbWU="
			c.prepare()
			k := newKubo(t, c.url)
			if c.name == "silent" {
				k.stall = 50 * time.Millisecond
			}
			// The shard is larger than the buffers of a connection.
			err := k.PutShard(t.Context(), Shard{Size: 20 << 20}, func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(make([]byte, 20<<20))), nil
			})
			if weir.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestKuboCredentials(t *testing.T) {
	n, url := newRPC(t)
	n.blocks["root"] = true
	for user, auth := range map[string]string{"": "", "a:b%40@": "Basic YTpiQA==", "token@": "Bearer token"} {
		n.auth = auth
		if err := newKubo(t, strings.Replace(url, "http://", "http://"+user, 1)).Finish(t.Context(), "root", nil); err != nil {
			t.Errorf("%q: %v", user, err)
		}
	}
	for _, bad := range []string{"", "localhost:5001", "ftp://localhost", "http://", "http://h?x=1", "http://h#a", "http://a b"} {
		if _, err := NewKubo(bad); weir.KindOf(err) != weir.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
