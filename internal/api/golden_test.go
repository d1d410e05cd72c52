package api

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/access/accesstest"
	"weir/internal/account"
	"weir/internal/blob"
	"weir/internal/contract"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

var update = flag.Bool("update", false, "write the responses in testdata/*.txt again")

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Runner{M: m}) }

// TestGolden plays the cases in testdata. A file is a story of steps on a fresh
// service, separated by lines of `===`:
//
//	# a comment
//	POST /api/stream  as: bob
//	Origin: https://example.com
//
//	{"name": "one"}
//	---
//	201
//	{ … }
//
// The request has optional headers, and a body after an empty line. `as:` says who sends it: ann
// (the default) and bob are accounts that use an API key, ann-jwt, bob-jwt and root-jwt have logged
// in (root is an admin), anon sends no credential; anything else is the value of the Authorization
// header. ${2.id} is the member of the second step's response (also ${2.0.id}, ${2.asset.id}), and
// ${ann.id}, ${ann.key}, ${ann.jwt}, ${ann.project} … are values of the accounts. The other values are of
// what seed puts into the store.
//
// Behind `---` stands the response: status, some headers, body. -update writes it.
// What differs from run to run is replaced: ids by <id-1>, <id-2> …, times by
// <time>. Every response is also held against openapi.yaml.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f := newFixture(t)
			if strings.HasPrefix(filepath.Base(file), "clip_") {
				f.seedClips(t)
			}
			if strings.HasPrefix(filepath.Base(file), "ipfs") {
				f.seedUploads(t)
			}
			if strings.HasPrefix(filepath.Base(file), "node") {
				if err := f.store.AnnounceURL(t.Context(), "http://10.0.0.7:8080"); err != nil {
					t.Fatal(err)
				}
			}
			var out []string
			for i, step := range strings.Split(string(text), "\n===\n") {
				request, _, _ := strings.Cut(step, "\n---\n")
				request = strings.TrimRight(request, "\n")
				out = append(out, request+"\n---\n"+f.play(t, i+1, request))
			}
			got := strings.Join(out, "\n===\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("responses differ (-want +got); run with -update and read the diff:\n%s", diff)
			}
		})
	}
}

// fixture is a service with accounts and things in it.
type fixture struct {
	store     *store.Store
	server    *server
	vars      map[string]string
	responses map[int]any
	masks     map[string]string // what was found → what is shown
	counts    map[string]int
}

// template is a database with the accounts and things that every fixture starts
// with. It is made once: hashing passwords is slow on purpose.
var template struct {
	once sync.Once
	db   []byte
	vars map[string]string
}

// compileOnce compiles openapi.yaml once for all tests.
var compileOnce = sync.OnceValues(func() (*contract.Contract, error) {
	source, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	return contract.New(source)
})

func compiledContract(t testing.TB) *contract.Contract {
	t.Helper()
	c, err := compileOnce()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var fixtureSecret = bytes.Repeat([]byte{9}, 32)

func newFixture(t testing.TB) *fixture {
	t.Helper()
	template.once.Do(func() {
		path := filepath.Join(t.TempDir(), "weir.db")
		f := openFixture(t, "sqlite:"+path)
		for _, name := range []string{"root", "ann", "bob"} {
			f.addUser(t, f.server.Accounts, name)
		}
		f.seed(t)
		f.store.Close() // so that all is in the one file
		db, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		template.db, template.vars = db, f.vars
	})
	path := filepath.Join(t.TempDir(), "weir.db")
	if err := os.WriteFile(path, template.db, 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFixture(t, "sqlite:"+path)
	f.vars = maps.Clone(template.vars)
	t.Cleanup(f.store.Close)
	return f
}

// engines returns functions that make an empty database, by the name of its engine.
func engines() map[string]func(*testing.T) string {
	options := store.Options{Secret: fixtureSecret}
	return map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return storetest.SQLite(t, store.Open, options) },
		"postgres": func(t *testing.T) string { return storetest.PostgreSQL(t, store.Open, options) },
	}
}

func openFixture(t testing.TB, url string) *fixture {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, url, store.Options{Secret: fixtureSecret, NodeID: "here", Stale: time.Hour, Report: func() weir.NodeReport {
		return weir.NodeReport{Version: "v0", Runs: []string{"api", "live", "work"}, Cores: 2, DiskFree: 10 << 30, DiskKeep: 2 << 30}
	}})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	accounts, err := account.New(ctx, st, account.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	media, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = media.Close() })
	s, err := newServer(Options{
		Media: media, MaxUpload: 1 << 20, FreeSpace: func() error { return nil }, Clips: clipTable{}, MaxDuration: time.Hour,
		CheckSource: worktest.Fetcher().Check,
		IPFS:        IPFS{Local: true, CheckProof: checkTestProof},
		CheckExport: func(d blob.Delivery) error { return d.Check(worktest.Caller()) },
		CheckDestination: func(ctx context.Context, storageURL string, paths []string, taskID string) error {
			return blob.Check(ctx, storageURL, paths, taskID, blob.Options{})
		},
		Store: st, Accounts: accounts, Gate: accesstest.NewGate(t, st), DID: "did:key:z6MkTest", C2PARoot: []byte("-----BEGIN CERTIFICATE-----\n"), EncryptionKey: "c3BraQ==",
		PublicURL: "http://weir.test", WebRTC: true, Ingest: func(base string) string { return strings.Replace(base, "http", "rtmp", 1) + "/live" }, MaxPendingTasks: 3, Version: "v0", Commit: "c0", Log: log,
		Resend: func(_ context.Context, hook weir.Webhook, entry weir.WebhookLog) (weir.WebhookLog, error) {
			entry.ID, entry.Success = weir.NewID(), true
			return entry, nil
		},
		TestWebhook: func(_ context.Context, hook weir.Webhook, event weir.Event) (weir.WebhookLog, error) {
			return weir.WebhookLog{
				ID: weir.NewID(), WebhookID: hook.ID, UserID: hook.UserID, Event: event.Name, CreatedAt: event.CreatedAt, Duration: 0.1, Success: true,
				Request:  weir.WebhookRequest{URL: hook.URL, Method: "POST", Headers: map[string]string{}, Body: `{"event":"` + string(event.Name) + `"}`},
				Response: weir.WebhookResponse{Status: 200, StatusText: "OK"},
			}, nil
		},
	}, compiledContract(t))
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{store: st, server: s, vars: map[string]string{}, responses: map[int]any{}, masks: map[string]string{}, counts: map[string]int{}}
}

func (f *fixture) addUser(t testing.TB, accounts *account.Accounts, name string) {
	t.Helper()
	ctx := t.Context()
	const password = "correct horse battery"
	u := weir.User{ID: weir.NewID(), Kind: "user", Email: name + "@example.com", EmailValid: true, Admin: name == "root", CreatedAt: weir.At(time.Now())}
	key := weir.NewAPIKey()
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateUser(ctx, &u); err != nil {
			return err
		}
		return tx.CreateToken(ctx, &weir.Token{ID: weir.NewID(), Kind: "api-token", UserID: u.ID, ProjectID: u.DefaultProjectID, Name: name + "'s key", CreatedAt: u.CreatedAt}, key)
	})
	if err != nil {
		t.Fatal(err)
	}
	link, err := accounts.NewLink(ctx, u.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accounts.SetPassword(ctx, link, u.Email, password); err != nil {
		t.Fatal(err)
	}
	in, err := accounts.LogIn(ctx, u.Email, password, netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	f.vars[name+".id"], f.vars[name+".key"], f.vars[name+".jwt"] = u.ID, key.Reveal(), in.Token.Reveal()
	f.vars[name+".project"], f.vars[name+".email"], f.vars[name+".refresh"] = u.DefaultProjectID, u.Email, in.RefreshToken.Reveal()
}

// play sends a request and returns the response as text.
func (f *fixture) play(t *testing.T, step int, text string) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	head, body, _ := strings.Cut(f.fill(t, strings.Join(lines, "\n")), "\n\n")
	first, headers, _ := strings.Cut(head, "\n")
	first, as, _ := strings.Cut(first, "  as: ")
	method, path, ok := strings.Cut(strings.TrimSpace(first), " ")
	if !ok {
		t.Fatalf("step %d: no request in %q", step, text)
	}
	r := httptest.NewRequest(method, "http://weir.test"+strings.TrimPrefix(path, "http://weir.test"), strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for line := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	if value := f.credential(strings.TrimSpace(as)); value != "" {
		r.Header.Set("Authorization", value)
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	f.check(t, step, r, w)
	return f.show(t, step, w)
}

func (f *fixture) credential(as string) string {
	switch as {
	case "anon":
		return ""
	case "", "ann":
		return "Bearer " + f.vars["ann.key"]
	case "bob":
		return "Bearer " + f.vars["bob.key"]
	case "root-jwt", "ann-jwt", "bob-jwt":
		return "JWT " + f.vars[strings.TrimSuffix(as, "-jwt")+".jwt"]
	}
	return as
}

var variable = regexp.MustCompile(`\$\{([^}]+)\}`)

// fill puts values into a request.
func (f *fixture) fill(t *testing.T, text string) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		if v, ok := f.vars[name]; ok {
			return v
		}
		parts := strings.Split(name, ".")
		n, err := strconv.Atoi(parts[0])
		value, ok := f.responses[n]
		if err != nil || !ok {
			t.Fatalf("no value for %s", found)
		}
		for _, part := range parts[1:] {
			switch v := value.(type) {
			case map[string]any:
				value = v[part]
			case []any:
				i, err := strconv.Atoi(part)
				if err != nil || i >= len(v) {
					t.Fatalf("no value for %s", found)
				}
				value = v[i]
			}
		}
		if value == nil {
			t.Fatalf("no value for %s", found)
		}
		return fmt.Sprint(value)
	})
}

// check holds a response against openapi.yaml.
func (f *fixture) check(t *testing.T, step int, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	route := f.server.routes.match(r)
	if route == nil {
		return
	}
	pattern := route.method + " /api" + route.path
	var body []byte
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		body = w.Body.Bytes()
	}
	if err := f.server.contract.CheckResponse(pattern, w.Code, body); err != nil {
		t.Errorf("step %d: answer %d of %s is not as openapi.yaml says: %v", step, w.Code, pattern, err)
	}
}

// show writes a response as the file has it.
func (f *fixture) show(t *testing.T, step int, w *httptest.ResponseRecorder) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintln(&out, w.Code)
	for _, name := range []string{"Link", "X-Total-Count", "Retry-After", "Access-Control-Allow-Origin", "Cache-Control", "Location"} {
		if v := w.Header().Get(name); v != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, v)
		}
	}
	if ct := w.Header().Get("Content-Type"); w.Body.Len() > 0 && ct != jsonType[0] {
		fmt.Fprintf(&out, "Content-Type: %s\n", ct)
	}
	body := w.Body.Bytes()
	var indented bytes.Buffer
	if json.Indent(&indented, body, "", "  ") == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		f.responses[step] = value
		body = indented.Bytes()
	}
	out.Write(body)
	return strings.TrimRight(f.mask(out.String()), "\n")
}

var maskable = regexp.MustCompile(
	`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}` + // an id
		`|weir_[a-z2-7]{52}` + // an API key
		`|\b[0-9a-f]{4}-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{4}\b` + // a stream key
		`|"[0-9a-f]{4}[0-9a-z]{12}"|(?:/|video\+|found for |clip-)[0-9a-f]{4}[0-9a-z]{12}\b` + // a playback id
		`|\b1[78]\d{11}\b` + // a time
		`|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+` + // a JWT
		`|"LS0tLS1[A-Za-z0-9+/=]+"` + // a PEM in base64
		`|"[a-z2-7]{52}"|token=[a-z2-7]{52}` + // a token
		`|cursor=[A-Za-z0-9_.-]{20,}`,
)

// mask replaces what differs from run to run, the same by the same.
func (f *fixture) mask(text string) string {
	return maskable.ReplaceAllStringFunc(text, func(found string) string {
		prefix, quote, kind := "", "", "id"
		switch {
		case strings.HasPrefix(found, "weir_"):
			kind = "api-key"
		case strings.HasPrefix(found, "cursor="):
			return "cursor=<cursor>"
		case strings.HasPrefix(found, "token="):
			return "token=<token>"
		case strings.HasPrefix(found, `"LS0`):
			quote, kind = `"`, "pem"
		case len(found) == 13:
			return "<time>"
		case strings.HasPrefix(found, "eyJ"):
			return "<jwt>"
		case len(found) == 54:
			return `"<token>"`
		case len(found) == 18:
			quote, kind = `"`, "playback"
		case strings.HasPrefix(found, "/"), strings.HasPrefix(found, "video+"), strings.HasPrefix(found, "found for "), strings.HasPrefix(found, "clip-"):
			prefix, kind = found[:len(found)-16], "playback"
		case len(found) == 19:
			kind = "stream-key"
		}
		value := strings.Trim(strings.TrimPrefix(found, prefix), `"`)
		if f.masks[value] == "" {
			f.counts[kind]++
			f.masks[value] = fmt.Sprintf("<%s-%d>", kind, f.counts[kind])
		}
		return prefix + quote + f.masks[value] + quote
	})
}
