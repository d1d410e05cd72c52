//go:build kubo

// Package kubo tests uploads to a real IPFS node, which make test-kubo builds.
package kubo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/e2e/harness"
	"weir/internal/blob"
	"weir/internal/ipfs"
	"weir/internal/weir"
)

// node is a running IPFS node that knows no other.
type node struct {
	rpc, gateway string // URLs
	repo         string
	binary       string
}

// start makes a repository and runs a node on it, on loopback and without a network.
func start(t *testing.T) node {
	t.Helper()
	n := node{binary: os.Getenv("WEIR_TEST_KUBO"), repo: t.TempDir()}
	if n.binary == "" {
		t.Fatal("WEIR_TEST_KUBO is not set; run make test-kubo")
	}
	api, web := freePort(t), freePort(t)
	n.rpc, n.gateway = fmt.Sprintf("http://127.0.0.1:%d", api), fmt.Sprintf("http://127.0.0.1:%d", web)
	n.run(t, "init", "--empty-repo")
	config := filepath.Join(n.repo, "config")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	if err := json.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	set := func(section string, values map[string]any) {
		all, ok := settings[section].(map[string]any)
		if !ok {
			all = map[string]any{}
		}
		for name, value := range values {
			all[name] = value
		}
		settings[section] = all
	}
	none := []string{}
	set("Addresses", map[string]any{
		"API": fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", api), "Gateway": fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", web), "Swarm": none,
	})
	set("AutoConf", map[string]any{"Enabled": false})
	set("Routing", map[string]any{"Type": "none", "DelegatedRouters": none})
	set("Ipns", map[string]any{"DelegatedPublishers": none})
	set("DNS", map[string]any{"Resolvers": map[string]string{}})
	set("API", map[string]any{"Authorizations": map[string]any{
		"weir": map[string]any{"AuthSecret": "basic:weir:sesame", "AllowedPaths": []string{"/api/v0"}},
		"test": map[string]any{"AuthSecret": "bearer:open", "AllowedPaths": []string{"/api/v0"}},
	}})
	settings["Bootstrap"] = none
	if text, err = json.MarshalIndent(settings, "", "  "); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	daemon := n.command(context.Background(), "daemon", "--offline")
	daemon.Stdout, daemon.Stderr = &out, &out
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("the node said:\n%s", out.String())
		}
	})
	harness.Eventually(t, func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the node ended: %v", err)
		default:
		}
		resp, err := http.Get(n.gateway + "/ipfs/bafkqaaa")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	return n
}

func (n node) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, n.binary, args...)
	c.Env = append(os.Environ(), "IPFS_PATH="+n.repo, "IPFS_TELEMETRY=off")
	return c
}

func (n node) run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := n.command(t.Context(), args...).CombinedOutput(); err != nil {
		t.Fatalf("ipfs %v: %v\n%s", args, err, out)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// pins returns the response to pin/ls.
func (n node) pins(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.rpc+"/api/v0/pin/ls?type=recursive", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer open")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", resp.Status, text, err)
	}
	return string(text)
}

func (n node) get(t *testing.T, path, ranges string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.gateway+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		r.Header.Set("Range", ranges)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s, %.200q, %v", path, resp.Status, data, err)
	}
	return data
}

func TestKubo(t *testing.T) {
	n := start(t)
	store, err := blob.Open("file:"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	// Two shards, a file of many blocks, and a directory that is large enough to be a tree.
	random := rand.NewChaCha8([32]byte{18})
	files := map[string][]byte{"hls/index.m3u8": []byte("#EXTM3U\n"), "empty": {}, "film.mp4": make([]byte, 150<<20)}
	for i := range 1200 {
		files[fmt.Sprintf("many/%s-%d.ts", strings.Repeat("x", 200), i)] = make([]byte, 100)
	}
	for _, data := range files {
		if len(data) >= 100 {
			_, _ = random.Read(data)
		}
	}
	seal := func(rpc string) (string, error) {
		remote, err := ipfs.NewKubo(rpc)
		if err != nil {
			t.Fatal(err)
		}
		d := ipfs.NewDest(ipfs.DestOptions{Staging: store, Prefix: "work", Scratch: t.TempDir(), Remote: remote})
		for name, data := range files {
			if err := d.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), blob.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return d.Seal(t.Context())
	}
	if _, err := seal(n.rpc); weir.KindOf(err) != weir.Unavailable || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("without credentials: %v", err)
	}
	if _, err := seal(strings.Replace(n.rpc, "//", "//weir:wrong@", 1)); weir.KindOf(err) != weir.Unavailable {
		t.Errorf("with a wrong password: %v", err)
	}
	rpc := strings.Replace(n.rpc, "//", "//weir:sesame@", 1)
	base, err := seal(rpc)
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimPrefix(base, "ipfs://")
	if pins := n.pins(t); !strings.Contains(pins, root) {
		t.Errorf("%s is not pinned: %s", root, pins)
	}
	for name, data := range files {
		if got := n.get(t, "/ipfs/"+root+"/"+name, ""); !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(data))
		}
	}
	if got := n.get(t, "/ipfs/"+root+"/film.mp4", "bytes=100000000-100000099"); !bytes.Equal(got, files["film.mp4"][100_000_000:100_000_100]) {
		t.Error("a range has other bytes")
	}
	// The node verifies what it has.
	n.check(t, rpc, root)
}

// check removes the pin and lets the node collect garbage: nothing else may hold the blocks.
func (n node) check(t *testing.T, rpc, root string) {
	t.Helper()
	remote, err := ipfs.NewKubo(rpc)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := remote.(ipfs.Remover).Remove(t.Context(), root); err != nil {
			t.Fatal(err)
		}
	}
	if pins := n.pins(t); strings.Contains(pins, root) {
		t.Errorf("still pinned: %s", pins)
	}
	if err := remote.Finish(t.Context(), root, nil); err != nil {
		t.Errorf("the blocks are still there: %v", err)
	}
	if err := remote.(ipfs.Remover).Remove(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.rpc+"/api/v0/repo/gc?quiet=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer open")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	err = remote.Finish(t.Context(), root, nil)
	if weir.KindOf(err) != weir.Upstream || !strings.Contains(err.Error(), "removed blocks") {
		t.Errorf("after the garbage collection: %v", err)
	}
}
