package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
	"weir/internal/store/pgtest"
)

// TestKeyCommands makes, lists and revokes a key beside a running weir.
func TestKeyCommands(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start()
		said := w.Run("key", "create", "of the build")
		key, id := harness.Match(t, said, `API key +(\S+)`), harness.Match(t, said, `id +(\S+)`)
		if status := statusWith(w, key); status != http.StatusOK {
			t.Errorf("the new key gets %d", status)
		}

		// That it was used is written a little later.
		harness.Eventually(t, func() error {
			list := w.Run("key", "list")
			if strings.Contains(list, key) || strings.Contains(list, w.Key) {
				t.Fatalf("the list shows keys:\n%s", list)
			}
			line := regexp.MustCompile(`(?m)^` + id + `\s+of the build\s+admin@localhost\s+\S+ \S+\s+(.*)$`).FindStringSubmatch(list)
			if line == nil {
				t.Fatalf("the list does not have the key:\n%s", list)
			}
			if line[1] == "never" {
				return fmt.Errorf("the list does not say that the key was used:\n%s", list)
			}
			return nil
		})

		w.Run("user", "create", "ada@example.com")
		said = w.Run("key", "create", "ada's", "--user", "ada@example.com")
		var me struct{ Email string }
		response, body := send(w, "GET", "/api/user/me", bearer(harness.Match(t, said, `API key +(\S+)`)), nil)
		if err := json.Unmarshal(body, &me); err != nil || response.StatusCode != http.StatusOK || me.Email != "ada@example.com" {
			t.Errorf("the key of ada's belongs to somebody else: %d %s", response.StatusCode, body)
		}
		if list := w.Run("key", "list", "--user", "ada@example.com"); !strings.Contains(list, "ada's") || strings.Contains(list, "of the build") {
			t.Errorf("the list of ada's keys:\n%s", list)
		}

		w.Run("key", "revoke", id)
		harness.Eventually(t, func() error {
			if status := statusWith(w, key); status != http.StatusUnauthorized {
				return fmt.Errorf("the revoked key gets %d, want 401", status)
			}
			return nil
		})
		if list := w.Run("key", "list"); strings.Contains(list, id) {
			t.Errorf("the list still has the revoked key:\n%s", list)
		}
		w.Must("GET", "/api/stream", nil, nil) // the others go on
		fails(w, "there is no key with the id "+id, "key", "revoke", id)
		fails(w, "there is no account with the address bob@example.com", "key", "create", "bob's", "--user", "bob@example.com")
		w.Stop()
	})
}

// TestUserCommands makes an account and sets its password twice.
func TestUserCommands(t *testing.T) {
	t.Parallel()
	w := harness.NewWeirOn(t, "sqlite") // the store suite has both
	w.Start()
	const email = "ada@example.com"
	first := printedLink(w, "user", "create", email)
	if list := w.Run("user", "list"); !regexp.MustCompile(`(?m)\sada@example\.com\s+false\s.*no password yet$`).MatchString(list) {
		t.Errorf("the list before the password was set:\n%s", list)
	}
	if status, page := page(w, "/set-password?token="+first); status != http.StatusOK || !strings.Contains(page, "<form") {
		t.Errorf("the link answers %d %s", status, page)
	}
	setPassword(w, first, email, "a password of ada's", http.StatusOK)
	logInAs(w, email, "a password of ada's", http.StatusCreated)
	if list := w.Run("user", "list"); !regexp.MustCompile(`(?m)\sada@example\.com\s+false\s.*active$`).MatchString(list) {
		t.Errorf("the list after the password was set:\n%s", list)
	}
	setPassword(w, first, email, "another password", http.StatusForbidden) // works once

	second := printedLink(w, "user", "passwd", "Ada@Example.com")
	logInAs(w, email, "a password of ada's", http.StatusCreated) // until the link is used
	setPassword(w, second, email, "another password", http.StatusOK)
	logInAs(w, email, "a password of ada's", http.StatusForbidden)
	logInAs(w, email, "another password", http.StatusCreated)

	older := printedLink(w, "user", "passwd", email)
	printedLink(w, "user", "passwd", email)
	setPassword(w, older, email, "a third password", http.StatusForbidden) // there is a newer one

	fails(w, "already registered", "user", "create", email)
	fails(w, "invalid email", "user", "create", "ada")
	fails(w, "there is no account with the address bob@example.com", "user", "passwd", "bob@example.com")

	key := harness.Match(t, w.Run("key", "create", "ada's", "--user", email), `API key +(\S+)`)
	works := func(want int) {
		t.Helper()
		harness.Eventually(t, func() error { // another process wrote it
			if status := statusWith(w, key); status != want {
				return fmt.Errorf("the key gets %d, want %d", status, want)
			}
			return nil
		})
	}
	works(http.StatusOK)
	w.Run("user", "delete", "Ada@Example.com")
	works(http.StatusUnauthorized)
	logInAs(w, email, "another password", http.StatusForbidden)
	if list := w.Run("user", "list"); !regexp.MustCompile(`(?m)\sada@example\.com\s+false\s.*deleted, is removed after \d{4}-\d\d-\d\d \d\d:\d\d$`).MatchString(list) {
		t.Errorf("the list with a deleted account:\n%s", list)
	}
	if list := w.Run("key", "list"); strings.Contains(list, "ada's") {
		t.Errorf("the list has keys of a deleted account:\n%s", list)
	}
	fails(w, "was deleted", "user", "create", email)
	fails(w, "there is no account with the address", "user", "delete", email)
	w.Run("user", "restore", "Ada@Example.com")
	works(http.StatusOK)
	logInAs(w, email, "another password", http.StatusCreated)
	fails(w, "there is no deleted account with the address", "user", "restore", email)
	fails(w, "administrator can't be deleted", "user", "delete", "admin@localhost")
	fails(w, "is neither an e-mail address nor an id", "user", "delete", "ada")
	w.Stop()
}

// TestBackup copies a database that is being written to, and serves the copy.
func TestBackup(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	before := map[string]string{}
	for range 20 {
		id, text := createStream(w)
		before[id] = text
	}
	during, dir := backupWhileWriting(w, 20)
	var did struct{ DID string }
	w.Must("GET", "/api/did", nil, &did)
	w.Stop()

	copied := harness.NewWeir(t)
	copied.Data, copied.Database = dir, "sqlite:"+filepath.Join(dir, "weir.db")
	copied.Start()
	got := streams(copied)
	for id, text := range before {
		if got[id] != text {
			t.Errorf("the copy has %q, want the stream that was made before it: %s", got[id], text)
		}
	}
	all := maps.Clone(before)
	maps.Copy(all, during)
	for id, text := range got {
		if all[id] != text {
			t.Errorf("the copy has a stream that never was: %s", text)
		}
	}
	var again struct{ DID string }
	if copied.Must("GET", "/api/did", nil, &again); again != did {
		t.Errorf("the copy has the DID %s, want %s", again.DID, did.DID)
	}
	createStream(copied) // and it can be written to
	copied.Stop()

	fails(w, "is not empty", "backup", dir)
}

// backupWhileWriting makes a backup while streams are being made, the last of them
// after it. It returns these streams and the folder of the backup.
func backupWhileWriting(w *harness.Weir, n int) (made map[string]string, dir string) {
	w.T.Helper()
	dir = filepath.Join(w.T.TempDir(), "backup")
	made = map[string]string{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	enough, done := make(chan struct{}), make(chan struct{})
	for range 2 {
		writers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				id, text := createStream(w)
				mu.Lock()
				made[id] = text
				if len(made) == n {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	said := w.Run("backup", dir)
	close(done)
	writers.Wait()
	if !strings.Contains(said, dir) {
		w.T.Errorf("weir backup does not say where the copy is:\n%s", said)
	}
	for name, want := range map[string]os.FileMode{"": 0o700 | os.ModeDir, "weir.db": 0o600, "secret": 0o600, "node": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			w.T.Errorf("backup/%s: %v, want mode %v", name, err, want)
		}
	}
	return made, dir
}

// TestBackupOfPostgreSQL is the secret, and a word on the rest.
func TestBackupOfPostgreSQL(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Database = pgtest.Start(t)
	w.Start()
	dir := filepath.Join(t.TempDir(), "backup")
	if said := w.Run("backup", dir); !strings.Contains(said, "pg_dump") || strings.Contains(said, w.Database) {
		t.Errorf("weir backup says:\n%s", said)
	}
	got, err := os.ReadFile(filepath.Join(dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fmt.Sprintf("%x\n", w.Secret), string(got)); diff != "" {
		t.Errorf("the copy of the secret (-want +got):\n%s", diff)
	}
	want, wantErr := os.ReadFile(filepath.Join(w.Data, "node"))
	if got, err := os.ReadFile(filepath.Join(dir, "node")); err != nil || wantErr != nil || string(got) != string(want) {
		t.Errorf("the copy of the identity is %q (%v), want %q (%v)", got, err, want, wantErr)
	}
	w.Stop()
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start()
		address := strings.TrimPrefix(w.URL, "http://")
		said := w.Run("doctor", "--http", address, "--ops", "")
		for _, want := range []string{
			`(?m)^ffmpeg +ok `, `(?m)^ffprobe +ok `, `(?m)^data folder +ok `, `(?m)^master secret +ok `, `(?m)^database +ok`,
			`(?m)^http ` + regexp.QuoteMeta(address) + ` +ok +weir is serving there$`,
		} {
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("weir doctor does not say %q, but:\n%s", want, said)
			}
		}
		w.Stop()

		removeSecret(w)
		w.Secret = []byte("another secret of 32 bytes size!")
		writeSecret(w)
		w.Env = []string{"PATH=" + t.TempDir()}
		said = fails(w, "something that weir needs is missing", "doctor", "--http", address, "--ops", "")
		for _, want := range []string{`(?m)^ffmpeg +missing .*apt-get install ffmpeg`, `(?m)^database +missing .*another master secret`, `(?m)^http .* +ok +free$`} {
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("weir doctor does not say %q, but:\n%s", want, said)
			}
		}
	})
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"version"}, []string{"weir ", "go1."}},
		{[]string{"--version"}, []string{"weir ", "go1."}},
		{[]string{"--help"}, []string{"weir", "serve", "key create", "user passwd", "backup", "doctor", "version", "--version"}},
		{[]string{"help", "serve"}, []string{"--data", "$WEIR_DATA", "--log-level"}},
		{[]string{"key", "create", "--help"}, []string{"<name>", "--user"}},
	} {
		out, err := exec.CommandContext(t.Context(), harness.Binary, tt.args...).Output()
		if err != nil {
			t.Errorf("weir %v: %v", tt.args, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("weir %v does not say %q, but:\n%s", tt.args, want, out)
			}
		}
	}
}

// TestBadCommandLine sees each mistake named, on standard error, and nothing done.
func TestBadCommandLine(t *testing.T) {
	const password = "hush0123456789"
	for _, tt := range []struct {
		args string
		want string
	}{
		{"serv", "serv"},
		{"serve --no-such-flag", "--no-such-flag"},
		{"serve --rate-limit -1", "--rate-limit"},
		{"serve --rate-limit=many", "--rate-limit"},
		{"serve --http 8080", "--http"},
		{"serve --drain soon", "--drain"},
		{"serve --log-level loud", "--log-level"},
		{"serve --run api,cook", "--run"},
		{"serve --allow-networks everywhere", "--allow-networks"},
		{"serve --database mysql://root:" + password + "@localhost/weir", "--database"},
		{"serve --database postgres://weir:" + password + "%zz@localhost/weir", "database"},
		{"serve --config missing.yaml", "missing.yaml"},
		{"key create", "name"},
		{"key list", "there is no database"},
		{"backup", "dir"},
	} {
		data := filepath.Join(t.TempDir(), "data")
		cmd := exec.CommandContext(t.Context(), harness.Binary, append(strings.Fields(tt.args), "--data", data)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if cmd.ProcessState.ExitCode() != 1 || len(out) > 0 || !strings.HasPrefix(stderr.String(), "weir: ") || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("weir %s: %v, %q, %q, want a message with %q", tt.args, err, out, &stderr, tt.want)
		}
		if strings.Contains(stderr.String(), password) {
			t.Errorf("weir %s tells the password: %s", tt.args, &stderr)
		}
		if strings.Contains(stderr.String(), "goroutine ") {
			t.Errorf("weir %s crashes: %s", tt.args, &stderr)
		}
	}
}

// fails runs a command that must fail, with those words.
func fails(w *harness.Weir, why string, args ...string) string {
	w.T.Helper()
	out, err := w.Command(args...)
	if err == nil || !strings.Contains(out, why) {
		w.T.Errorf("weir %s: %v\n%s\nwant it to fail with %q", strings.Join(args, " "), err, out, why)
	}
	return out
}

// printedLink runs a command that prints a set-password link, and returns its token.
func printedLink(w *harness.Weir, args ...string) string {
	w.T.Helper()
	said := w.Run(append(args, "--public-url", w.URL)...)
	return harness.Match(w.T, said, `(?m)^`+regexp.QuoteMeta(w.URL)+`/set-password\?token=(\S+)$`)
}

func setPassword(w *harness.Weir, link, email, password string, want int) {
	w.T.Helper()
	body := map[string]string{"email": email, "resetToken": link, "password": password}
	if status, text := w.Do("POST", "/api/user/password/reset", body); status != want {
		w.T.Errorf("set a password: %d %s, want %d", status, text, want)
	}
}

func logInAs(w *harness.Weir, email, password string, want int) {
	w.T.Helper()
	if status, text := w.Do("POST", "/api/user/token", map[string]string{"email": email, "password": password}); status != want {
		w.T.Errorf("log in: %d %s, want %d", status, text, want)
	}
}

func statusWith(w *harness.Weir, key string) int {
	w.T.Helper()
	response, _ := send(w, "GET", "/api/stream", bearer(key), nil)
	return response.StatusCode
}

func bearer(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }

// createStream makes a stream with everything that is sealed, and returns its id
// and the whole response.
func createStream(w *harness.Weir) (id, text string) {
	w.T.Helper()
	var stream map[string]any
	w.Must("POST", "/api/stream", map[string]any{"name": "copied", "pull": map[string]any{"source": "https://user:pass@example.com/live.m3u8"}}, &stream)
	return describe(w.T, stream)
}

// streams returns all streams by their ids.
func streams(w *harness.Weir) map[string]string {
	w.T.Helper()
	found := map[string]string{}
	for query := (url.Values{"limit": {"100"}}); ; {
		response, body := send(w, "GET", "/api/stream?"+query.Encode(), bearer(w.Key), nil)
		var page []map[string]any
		if err := json.Unmarshal(body, &page); err != nil || response.StatusCode != http.StatusOK {
			w.T.Fatalf("list streams: %d %s", response.StatusCode, body)
		}
		for _, stream := range page {
			id, text := describe(w.T, stream)
			found[id] = text
		}
		next := regexp.MustCompile(`<[^>]*\?([^>]*)>; rel="next"`).FindStringSubmatch(response.Header.Get("Link"))
		if next == nil {
			return found
		}
		var err error
		if query, err = url.ParseQuery(next[1]); err != nil {
			w.T.Fatal(err)
		}
	}
}

func describe(t *testing.T, object map[string]any) (id, text string) {
	t.Helper()
	sorted, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return object["id"].(string), string(sorted)
}
