// Package ucan drives uploads to IPFS through a real UCAN upload service. server.mjs is the service
// and the people who use it; record.mjs makes the recorded proofs of internal/ucan.
package ucan

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// A rig is a running upload service.
type rig struct {
	URL, DID string
}

// newRig starts the upload service for the time of a test.
func newRig(t *testing.T) *rig {
	t.Helper()
	if _, err := os.Stat("node_modules"); err != nil {
		t.Fatal("make e2e/ucan/node_modules/.package-lock.json installs what this test needs")
	}
	c := exec.Command("node", "server.mjs")
	c.Stderr = t.Output()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends
		_ = c.Wait()
	})
	lines := bufio.NewReader(out)
	var r rig
	for r.URL == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal("the service did not start: ", err)
		}
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return &r
}

// call calls a function of server.mjs.
func call[T any](t *testing.T, r *rig, name string, in map[string]any) T {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(r.URL+"/test/"+name, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", name, text)
	}
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v in %s", name, err, text)
	}
	return out
}

// space makes a space with a storage provider.
func (r *rig) space(t *testing.T) string {
	t.Helper()
	return call[string](t, r, "space", nil)
}

// A proof is a delegation in all forms that tools write.
type proof struct {
	CID   string
	Forms map[string]string
}

// prove lets the owner of a space delegate abilities. Every call must have other options, because
// the same delegation has the same CID, and to revoke one is to revoke the other.
func (r *rig) prove(t *testing.T, space, audience string, abilities []string, options map[string]any) proof {
	t.Helper()
	return call[proof](t, r, "proofs", map[string]any{"space": space, "audience": audience, "abilities": abilities, "options": options})
}

// A listed upload is one that the owner of a space sees.
type listed struct {
	Root   string
	Shards []string
}

func (r *rig) list(t *testing.T, space string) []listed {
	t.Helper()
	return call[[]listed](t, r, "list", map[string]any{"space": space})
}

// fetch writes the files of an upload, as the service has them, into a new folder.
func (r *rig) fetch(t *testing.T, u listed) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "upload.car")
	call[any](t, r, "join", map[string]any{"root": u.Root, "shards": u.Shards, "file": file})
	harness.IPFSCar(t, "unpack", file, "--output", filepath.Join(dir, "files"))
	return filepath.Join(dir, "files")
}

// storacha returns the command line tool of the owner of a space, with the service at an address.
func storacha(t *testing.T, r *rig, space, url, did string) func(args ...string) string {
	t.Helper()
	agent, home := call[struct{ Key, Proof string }](t, r, "agent", map[string]any{"space": space}), t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("node", append([]string{"node_modules/@storacha/cli/bin.js"}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home, "HOME="+home, "STORACHA_PRINCIPAL="+agent.Key,
			"STORACHA_SERVICE_URL="+url, "STORACHA_SERVICE_DID="+did, "STORACHA_RECEIPTS_URL="+url+"/receipt/")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("storacha %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("space", "add", agent.Proof)
	return run
}

// sameFiles fails unless two folders have the same files.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	if out, err := exec.Command("diff", "-r", got, want).CombinedOutput(); err != nil {
		t.Errorf("the files differ: %s", out)
	}
}

// stats are counts of what the service got.
type stats struct {
	Count  int // of PUTs
	Stored int // PUTs that succeeded
	Again  int // PUTs of what was stored
	Bytes  int64
	Orders map[string]int // of each ability
}

func (r *rig) stats(t *testing.T) stats {
	t.Helper()
	return call[stats](t, r, "puts", nil)
}

// failPuts lets the next PUTs fail.
func (r *rig) failPuts(t *testing.T, n int) {
	t.Helper()
	call[stats](t, r, "puts", map[string]any{"fail": n})
}
