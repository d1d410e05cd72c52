package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/e2e/harness"
)

// prober sends requests and searches the responses for secrets.
type prober struct {
	*secrets
	w      *harness.Weir
	header http.Header // of every request
	from   string      // an address of this machine; "" = any
}

// reply is a response that has been searched.
type reply struct {
	status int
	header http.Header
	text   string
}

// gets sends a request that must succeed. Of all secrets, the response may have only
// those named.
func (v prober) gets(method, path string, body any, mayHave ...string) reply {
	v.t.Helper()
	r := v.sends(method, path, body, mayHave...)
	if r.status >= 400 {
		v.t.Fatalf("%s %s: %d %s", method, path, r.status, r.text)
	}
	return r
}

// isRefused sends a request that must be refused.
func (v prober) isRefused(method, path string, body any, mayHave ...string) {
	v.t.Helper()
	if r := v.sends(method, path, body, mayHave...); r.status < 400 || r.status > 499 {
		v.t.Errorf("%s %s: %d %s, want 4xx", method, path, r.status, r.text)
	}
}

// sends sends a request. The body is text as it is, a form, or JSON.
func (v prober) sends(method, path string, body any, mayHave ...string) reply {
	v.t.Helper()
	header := v.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	var content string
	switch b := body.(type) {
	case nil:
	case string:
		content = b
	case url.Values:
		content = b.Encode()
		header.Set("Content-Type", "application/x-www-form-urlencoded")
	default:
		text, err := json.Marshal(b)
		if err != nil {
			v.t.Fatal(err)
		}
		content = string(text)
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.w.URL+path, strings.NewReader(content))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header = header
	dialer := &net.Dialer{}
	if v.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(v.from)}
	}
	client := &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	var all bytes.Buffer
	_ = response.Header.Write(&all) // to memory
	all.Write(text)
	v.search("the response to "+method+" "+path+" "+content[:min(len(content), 200)], all.Bytes(), mayHave...)
	return reply{response.StatusCode, response.Header, string(text)}
}

// get returns a member of a JSON response: "asset.id".
func (r reply) get(t *testing.T, path string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(r.text), &value); err != nil {
		t.Fatalf("%v: %s", err, r.text)
	}
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	text, ok := value.(string)
	if !ok {
		t.Fatalf("there is no text %s in %s", path, r.text)
	}
	return text
}

// collector is a server that keeps the bodies that it is sent.
func collector(t *testing.T) (address string, got *harness.LockedBuffer) {
	t.Helper()
	got = &harness.LockedBuffer{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(got, r.Body) // what breaks off is sent again
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// hooks is a server behind webhooks: its paths say how it answers. It keeps what it
// is sent, except for what is in the address anyway.
func hooks(t *testing.T) (address string, got, gate *harness.LockedBuffer) {
	t.Helper()
	got, gate = &harness.LockedBuffer{}, &harness.LockedBuffer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it is sent again
		}
		r.Header.Del("Authorization") // of the address
		to := got
		if strings.HasPrefix(r.URL.Path, "/gate") {
			to = gate
		}
		_, _ = fmt.Fprintf(to, "%v\n%s\n", r.Header, body) // to memory
		switch how, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); how {
		case "fail": // and tells the caller its own address, as many servers do
			http.Error(w, "can't POST "+r.URL.String(), http.StatusInternalServerError)
		case "gone":
			http.Error(w, "no such page: "+r.URL.String(), http.StatusGone)
		case "away":
			http.Redirect(w, r, "http://10.0.0.1"+r.URL.String(), http.StatusTemporaryRedirect)
		case "moved":
			http.Redirect(w, r, "/ok"+r.URL.String(), http.StatusPermanentRedirect)
		case "gate":
			_, _ = io.WriteString(w, `{"ret":0}`)
		case "gate-closed": // and repeats the question
			http.Error(w, "not welcome: "+string(body), http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, got, gate
}

// listen keeps the events that weir tells of, until weir ends.
func (v prober) listen() (got *harness.LockedBuffer, ended <-chan struct{}) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), "GET", v.w.URL+"/api/events", nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header = v.header
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		v.t.Fatalf("GET /api/events: %v, %v", err, response)
	}
	got = &harness.LockedBuffer{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer response.Body.Close()
		_, _ = io.Copy(got, response.Body) // until weir drains
	}()
	return got, done
}

// watchChildren keeps the command lines and the environments of the processes that
// weir starts, until stop is called.
func watchChildren(w *harness.Weir) (got *harness.LockedBuffer, stop func()) {
	got = &harness.LockedBuffer{}
	parent := w.Cmd.Process.Pid
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		seen := map[int]bool{}
		for tick := time.Tick(20 * time.Millisecond); ; {
			for _, pid := range harness.Children(parent) {
				if seen[pid] {
					continue
				}
				seen[pid] = true
				for _, name := range []string{"cmdline", "environ"} {
					if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)); err == nil { // else it has ended
						_, _ = got.Write(text)
					}
				}
			}
			select {
			case <-done:
				return
			case <-tick:
			}
		}
	})
	return got, func() {
		close(done)
		watching.Wait()
	}
}

// searchFiles searches every file below a folder. It returns what the database
// files had, so that one can see that there was something to find.
func (s *secrets) searchFiles(when, dir string) (database []byte) {
	s.t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var mayHave []string
		if filepath.Base(path) == "secret" {
			mayHave = []string{"master secret"}
		}
		s.search(when+", "+filepath.Base(path), content, mayHave...)
		if strings.HasPrefix(filepath.Base(path), "weir.db") {
			database = append(database, content...)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return database
}

// dump returns every row of every table of a PostgreSQL database as text, the jobs
// of River too.
func dump(t *testing.T, database string) []byte {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	texts := func(query string) []string {
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	tables := texts(`SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'`)
	for _, table := range []string{"stream", "webhook_log", "river_job"} {
		if !slices.Contains(tables, table) {
			t.Fatalf("there is no table %s in %v", table, tables)
		}
	}
	var all bytes.Buffer
	for _, table := range tables {
		for _, row := range texts("SELECT t::text FROM " + table + " t") {
			// Rows double the quotes and backslashes in them.
			all.WriteString(strings.NewReplacer(`""`, `"`, `\\`, `\`).Replace(row) + "\n")
		}
	}
	return all.Bytes()
}
