// Package reference runs every example of the API reference, as the pages at /docs/api show it, against
// one server. The examples of a language run in one process. They reach the server through a proxy,
// which knows by its address which example a request is of, and notes the status of the response.
//
// fixtures_test.go has what stands behind the words in capitals, such as STREAM_ID.
package reference

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.MainPlain(m)) }

// exceptions are calls whose example can't succeed, and the status that it has to answer.
var exceptions = map[string]struct {
	status int
	why    string
}{
	"requestPasswordReset": {http.StatusNotImplemented, "weir sends no mail; the contract has no success"},
}

var languages = []string{"curl", "js", "go", "python"}

func TestReference(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	started := time.Now()
	w := harness.NewWeir(t)
	w.Start("--signup", "--rtmp", harness.FreeAddr(t))
	f := newFixtures(t, w)
	examples, documented := readExamples(t, w), readStatuses(t, w)
	p := newProxy(t, w)
	dir := t.TempDir()
	if err := os.Symlink(harness.TinyClip(t), filepath.Join(dir, "film.mp4")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "captions.vtt"), []byte("WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	programs := map[string]map[string]string{}
	for _, language := range languages {
		programs[language] = map[string]string{}
		for call, code := range examples[language] {
			code = strings.ReplaceAll(code, "http://localhost:8080", p.URL+"/"+language+"/"+call)
			programs[language][call] = f.fill(call, language, code)
		}
	}
	prepared := time.Now()
	var running sync.WaitGroup
	for _, language := range languages {
		running.Go(func() { run(t, f, dir, language, programs[language]) })
	}
	running.Wait()
	for _, language := range languages {
		good, excepted := 0, 0
		for call := range documented {
			got := p.statuses(language, call)
			exception, known := exceptions[call]
			switch {
			case len(got) != 1:
				t.Errorf("%s in %s made %d requests, want 1:\n%s", call, language, len(got), programs[language][call])
			case known && got[0].status == exception.status:
				excepted++
			case known || !slices.Contains(documented[call], got[0].status):
				t.Errorf("%s in %s answers %d, want one of %v: %s\n%s", call, language, got[0].status, documented[call], got[0].body, programs[language][call])
			default:
				good++
			}
		}
		t.Logf("%s: %d examples succeed, %d are exceptions", language, good, excepted)
	}
	for call, exception := range exceptions {
		t.Logf("exception: %s answers %d: %s", call, exception.status, exception.why)
	}
	t.Logf("%s to prepare, %s to run", prepared.Sub(started).Round(time.Second), time.Since(prepared).Round(time.Second))
}

var (
	pageLinks = regexp.MustCompile(`href="(docs/api/[a-z-]+)"`)
	panels    = regexp.MustCompile(`(?s)<div class="panel" data-call="(\w+)" data-example="(\w+)">(.*?)</pre>`)
	tags      = regexp.MustCompile(`<[^>]*>`)
)

// readExamples returns the examples on all pages of the reference, by language and call.
func readExamples(t *testing.T, w *harness.Weir) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	_, overview := w.Do("GET", "/docs/api", nil)
	pages := map[string]bool{}
	for _, match := range pageLinks.FindAllStringSubmatch(string(overview), -1) {
		pages[match[1]] = true
	}
	for page := range pages {
		_, text := w.Do("GET", "/"+page, nil)
		for _, match := range panels.FindAllStringSubmatch(string(text), -1) {
			if found[match[2]] == nil {
				found[match[2]] = map[string]string{}
			}
			found[match[2]][match[1]] = html.UnescapeString(tags.ReplaceAllString(match[3], ""))
		}
	}
	return found
}

// readStatuses returns the statuses of success of each call of the contract.
func readStatuses(t *testing.T, w *harness.Weir) map[string][]int {
	t.Helper()
	var contract struct {
		Paths map[string]map[string]json.RawMessage
	}
	w.Must("GET", "/api/openapi.json", nil, &contract)
	all := map[string][]int{}
	for _, item := range contract.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var operation struct {
				OperationID string
				Responses   map[string]any
			}
			if err := json.Unmarshal(raw, &operation); err != nil {
				t.Fatal(err)
			}
			all[operation.OperationID] = []int{}
			for status := range operation.Responses {
				var code int
				if _, err := fmt.Sscan(status, &code); err == nil && code < 300 {
					all[operation.OperationID] = append(all[operation.OperationID], code)
				}
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("the contract has only %d calls; this test reads it wrongly", len(all))
	}
	return all
}

// proxy notes what weir answered to each example.
type proxy struct {
	*httptest.Server
	mu        sync.Mutex
	responses map[string][]noted // by language/call
}

type noted struct {
	status int
	body   string // of a failure
}

func newProxy(t *testing.T, w *harness.Weir) *proxy {
	t.Helper()
	target, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{responses: map[string][]noted{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(response *http.Response) error {
			n := noted{status: response.StatusCode}
			switch {
			case n.status >= 300:
				body, err := io.ReadAll(response.Body)
				if err != nil {
					return err
				}
				n.body = string(body)
				response.Body = io.NopCloser(strings.NewReader(n.body))
			case response.Header.Get("Content-Type") == "text/event-stream":
				_ = response.Body.Close()
				response.Body = http.NoBody // events never end by themselves
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			key := response.Request.Header.Get("X-Example")
			p.responses[key] = append(p.responses[key], n)
			return nil
		},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
		if len(parts) < 3 {
			http.NotFound(w, r)
			return
		}
		r.URL.Path, r.URL.RawPath = "/"+parts[2], ""
		r.Header.Set("X-Example", parts[0]+"/"+parts[1])
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) statuses(language, call string) []noted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.responses[language+"/"+call]
}

// run runs all examples of a language, one after the other, in one process.
func run(t *testing.T, f *fixtures, dir, language string, programs map[string]string) {
	calls := slices.Sorted(maps.Keys(programs))
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
		return file
	}
	var all strings.Builder
	var cmd *exec.Cmd
	switch language {
	case "curl":
		for _, call := range calls {
			fmt.Fprintf(&all, "%s\n", programs[call])
		}
		cmd = exec.CommandContext(t.Context(), "bash", write("all.sh", all.String()))
	case "js":
		for _, call := range calls {
			fmt.Fprintf(&all, "await import(%q).catch((err) => console.error(%q, err));\n", write(call+".mjs", programs[call]), call)
		}
		cmd = exec.CommandContext(t.Context(), "node", write("all.mjs", all.String()))
	case "python":
		all.WriteString("import runpy, sys\n")
		for _, call := range calls {
			fmt.Fprintf(&all, "try:\n    runpy.run_path(%q)\nexcept Exception as err:\n    print(%q, err, file=sys.stderr)\n", write(call+".py", programs[call]), call)
		}
		cmd = exec.CommandContext(t.Context(), "python3", write("all.py", all.String()))
	case "go":
		binary := filepath.Join(dir, "all")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, write("all.go", oneProgram(calls, programs)))
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("go build: %v\n%s", err, out)
			return
		}
		cmd = exec.CommandContext(t.Context(), binary)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KEY="+f.w.Key, "TOKEN="+f.token)
	var errors strings.Builder
	cmd.Stderr = &errors
	if err := cmd.Run(); err != nil && language != "curl" {
		t.Errorf("%s: %v\n%s", language, err, harness.Tail(errors.String()))
	}
}

var imports = regexp.MustCompile(`(?s)^package main\n\nimport \(\n(.*?)\)\n\nfunc main\(\) `)

// oneProgram makes one Go program of many, each of which has only main.
func oneProgram(calls []string, programs map[string]string) string {
	used := map[string]bool{}
	var functions, main strings.Builder
	for _, call := range calls {
		match := imports.FindStringSubmatch(programs[call])
		if match == nil {
			continue // its call is missed below
		}
		for line := range strings.Lines(match[1]) {
			used[strings.TrimSpace(line)] = true
		}
		fmt.Fprintf(&functions, "func %s() %s\n\n", call, strings.TrimPrefix(programs[call], match[0]))
		fmt.Fprintf(&main, "\t%s()\n", call)
	}
	return "package main\n\nimport (\n" + strings.Join(slices.Sorted(maps.Keys(used)), "\n") + "\n)\n\n" + functions.String() + "func main() {\n" + main.String() + "}\n"
}
