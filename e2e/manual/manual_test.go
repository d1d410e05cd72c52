package manual

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"weir/e2e/harness"
	"weir/internal/wait"
)

func TestManual(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute, and a browser")
	}
	pages := readManual(t)
	run, reasons := 0, map[string]int{}
	for _, p := range pages {
		for _, b := range p.blocks {
			switch {
			case b.norun != "":
				reasons[b.norun]++
			case b.runs() && b.language != "test":
				run++
			}
		}
	}
	w := newWorld(t)
	t.Run("pages", func(t *testing.T) {
		for _, p := range pages {
			t.Run(p.path, func(t *testing.T) {
				t.Parallel()
				checkData(t, p)
				w.run(t, p)
			})
		}
	})
	var lines []string
	norun := 0
	for reason, n := range reasons {
		norun += n
		lines = append(lines, fmt.Sprintf("%4d  %s", n, reason))
	}
	sort.Strings(lines)
	t.Logf("%d blocks of the manual were run, %d were not:\n%s", run, norun, strings.Join(lines, "\n"))
}

// checkData parses the blocks of a page that are no programs.
func checkData(t *testing.T, p page) {
	t.Helper()
	for _, b := range p.blocks {
		if b.norun != "" {
			continue
		}
		var err error
		switch b.language {
		case "json":
			err = checkJSON(b.text)
		case "yaml":
			var v any
			err = yaml.Unmarshal([]byte(b.text), &v)
		case "nginx":
			err = checkNginx(t, b.text)
		case "caddy":
			err = checkCaddy(t, b.text)
		}
		if err != nil {
			t.Errorf("%s:%d: %v", p.path, b.line, err)
		}
	}
}

// checkJSON reads a sequence of values.
func checkJSON(text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// checkNginx lets nginx read server blocks, if it is there.
func checkNginx(t *testing.T, text string) error {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx"
	}
	if _, err := os.Stat(path); err != nil {
		t.Log("nginx is not installed; its configuration is not checked")
		return nil
	}
	dir := t.TempDir()
	makeCertificate(t, dir)
	text = strings.NewReplacer("/etc/ssl/video.example.com/", dir+"/", "/var/cache/nginx", dir).Replace(text)
	text = "error_log stderr;\npid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\n" + text + "}\n"
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "-t", "-q", "-p", dir, "-c", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nginx: %w\n%s", err, out)
	}
	return nil
}

// checkCaddy lets Caddy read a Caddyfile, if it is there.
func checkCaddy(t *testing.T, text string) error {
	t.Helper()
	path, err := exec.LookPath("caddy")
	if err != nil {
		t.Log("caddy is not installed; its configuration is not checked")
		return nil
	}
	cmd := exec.CommandContext(t.Context(), path, "adapt", "--adapter", "caddyfile", "--config", "/dev/stdin")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("caddy: %w\n%s", err, out)
	}
	return nil
}

// makeCertificate writes chain.pem and key.pem.
func makeCertificate(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-subj", "/CN=video.example.com", "-keyout", filepath.Join(dir, "key.pem"), "-out", filepath.Join(dir, "chain.pem")).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
}

// preamble is the beginning of the script of a page. Of all that a page sets, other programs have
// the values. It has what the comments of pages use:
//
//	api PATH                the response of the API
//	onair FILE              waits until the stream of the JSON in the file is on air
//	seen FILE               waits until it has been on air
//	ready FILE              waits until the asset of the JSON in the file is ready; prints its status
//	browse URL EXPRESSION   opens a page in the browser until the expression is true
const preamble = `set -aeo pipefail
api() { curl -sS -H "Authorization: Bearer $KEY" "$WEIR/api/$1"; }
onair() { local id=$(jq -r .id "$1"); until api stream/$id | jq -e .isActive >/dev/null; do sleep 1; done; }
seen() { local id=$(jq -r .id "$1"); until api stream/$id | jq -e '.lastSeen > 0' >/dev/null; do sleep 1; done; }
ready() {
  local id=$(jq -r .asset.id "$1") phase=
  until [ "$phase" = ready ]; do
    api asset/$id | jq -c .status > $id.now
    cmp -s $id.now $id.before || cat $id.now
    mv $id.now $id.before
    phase=$(jq -r .phase $id.before)
    if [ "$phase" = failed ]; then return 1; fi
    sleep 1
  done
}
browse() { BROWSE_URL=$1 BROWSE_UNTIL=$2 env -0 | curl -sS --data-binary @- "$MANUAL/open"; }
`

// run runs the programs of a page, in order.
func (w *world) run(t *testing.T, p page) {
	t.Helper()
	dir := t.TempDir()
	for name, path := range w.films() {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(w.modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	replace := w.replace(t)
	script := &strings.Builder{}
	script.WriteString(preamble)
	for _, b := range p.blocks {
		if !b.runs() {
			continue
		}
		name := fmt.Sprintf("block%04d", b.line)
		if b.file != "" {
			name = b.file
		} else {
			name += map[string]string{"sh": ".sh", "bash": ".sh", "test": ".sh", "js": ".mjs", "ts": ".ts", "html": ".html", "go": ".go", "python": ".py", "php": ".php"}[b.language]
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(replace.Replace(b.text)), 0o600); err != nil {
			t.Fatal(err)
		}
		if b.file != "" {
			continue // a later block runs it
		}
		path := filepath.Join(dir, name)
		command := "source " + path
		switch b.language {
		case "js", "ts":
			command = "node " + path
		case "go":
			command = "go run " + path
		case "python":
			command = "python3 " + path
		case "php":
			command = "php " + path
		case "html":
			command = "browse " + path + " " + quoted(b.until)
		}
		if b.background {
			command = "( " + command + " ) </dev/null &"
		}
		fmt.Fprintf(script, "echo '== %s:%d'\n%s\n", p.path, b.line, command)
	}
	cmd := exec.Command("bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), w.environment(dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A file, because blocks in the background outlive the shell, and keep it open.
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The blocks, and what they left in the background.
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	printed := func() string {
		text, _ := os.ReadFile(output.Name())
		return harness.Tail(string(text))
	}
	wait.Progress(t, func() error {
		select {
		case err = <-ended:
			return nil
		default:
			return fmt.Errorf("a block does not end, the last of these:\n%s", printed())
		}
	})
	if err != nil {
		t.Errorf("a block fails, the last of these: %v\n%s", err, printed())
	}
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// variables reads what `env -0` printed.
func variables(text []byte) map[string]string {
	all := map[string]string{}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if name, value, found := strings.Cut(string(entry), "="); found {
			all[name] = value
		}
	}
	return all
}
