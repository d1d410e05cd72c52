package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// toxiproxy is what the connections between the parts go through.
type toxiproxy struct {
	t   *testing.T
	api string
}

// startToxiproxy runs the version that tools/go.mod pins.
func startToxiproxy(t *testing.T) *toxiproxy {
	t.Helper()
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	tools := filepath.Join(filepath.Dir(string(module)), "tools", "go.mod")
	path, err := exec.Command("go", "tool", "-modfile="+tools, "-n", "github.com/Shopify/toxiproxy/v2/cmd/server").Output()
	if err != nil {
		t.Fatalf("go tool toxiproxy: %v", err)
	}
	host, port, _ := strings.Cut(harness.FreeAddr(t), ":")
	cmd := exec.Command(strings.TrimSpace(string(path)), "-host", host, "-port", port)
	cmd.Env = append(os.Environ(), "LOG_LEVEL=error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &toxiproxy{t, "http://" + host + ":" + port}
	harness.Eventually(t, func() error {
		response, err := http.Get(p.api + "/version")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	})
	return p
}

// do sends a request to its API.
func (p *toxiproxy) do(method, path string, body map[string]any) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequest(method, p.api+path, bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if said, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
		p.t.Fatalf("toxiproxy: %s %s: %d %s", method, path, response.StatusCode, said)
	}
}

// link is a way to a part.
type link struct {
	p          *toxiproxy
	name, addr string
}

// to makes a way to an address.
func (p *toxiproxy) to(name, upstream string) link {
	p.t.Helper()
	l := link{p, name, harness.FreeAddr(p.t)}
	p.do(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": l.addr, "upstream": upstream, "enabled": true})
	return l
}

// The directions of a link: to the part behind it, and back.
const (
	there = "upstream"
	back  = "downstream"
)

// swallow loses all bytes in these directions, and keeps the connections.
func (l link) swallow(directions ...string) {
	l.p.t.Helper()
	for _, d := range directions {
		l.toxic("swallow", d, "timeout", map[string]any{"timeout": 0})
	}
}

// delay holds bytes up on their way back.
func (l link) delay(ms int) {
	l.p.t.Helper()
	l.toxic("delay", back, "latency", map[string]any{"latency": ms})
}

func (l link) toxic(name, direction, kind string, attributes map[string]any) {
	l.p.t.Helper()
	l.p.do(http.MethodPost, "/proxies/"+l.name+"/toxics", map[string]any{
		"name": name + "-" + direction, "type": kind, "stream": direction, "toxicity": 1, "attributes": attributes,
	})
}

// heal ends what swallow and delay did, in these directions.
func (l link) heal(name string, directions ...string) {
	l.p.t.Helper()
	for _, d := range directions {
		l.p.do(http.MethodDelete, fmt.Sprintf("/proxies/%s/toxics/%s-%s", l.name, name, d), nil)
	}
}
