package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	email    = "admin@localhost"
	password = "a password for tests"
)

// fixtures has what the placeholders of examples stand for: an account, and things that it has.
type fixtures struct {
	t       *testing.T
	w       *harness.Weir
	token   string           // of the log-in
	outside *httptest.Server // the world of example.com
	bucket  s3test.Bucket
	store   *store.Store
	user    string            // id of the account
	project string            // id of its project
	asset   map[string]string // one that is ready
	broken  []object          // assets that fail
	shared  map[string]string // what calls that only read may share, by placeholder
	hook    string            // id of a webhook
	log     string            // id of a delivery of it
}

func newFixtures(t *testing.T, w *harness.Weir) *fixtures {
	t.Helper()
	f := &fixtures{t: t, w: w, bucket: s3test.Start(t), shared: map[string]string{}, store: w.OpenStore()}
	film, source := harness.TinyClip(t), harness.SmallClip(t)
	f.outside = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
		case strings.Contains(r.URL.Path, "broken"):
			_, _ = io.WriteString(rw, "no video")
		case strings.HasPrefix(r.URL.Path, "/live/"): // long enough to be on air
			http.ServeFile(rw, r, source)
		default:
			http.ServeFile(rw, r, film)
		}
	}))
	t.Cleanup(f.outside.Close)
	f.setPassword(email, "user", "passwd", email)
	f.token = f.logIn().Token
	f.user = f.make("GET", "/api/user/me", nil)["id"].(string)

	made := f.make("POST", "/api/asset/upload/url", object{"name": "film", "url": f.outside.URL + "/film.mp4"})
	id, task := made["asset"].(object)["id"].(string), made["task"].(object)["id"].(string)
	f.project = made["asset"].(object)["projectId"].(string)
	f.shared["TASK_ID"] = task
	for range 2 * len(languages) { // for retryAsset and retryTask
		f.broken = append(f.broken, f.make("POST", "/api/asset/upload/url", object{"name": "broken", "url": f.outside.URL + "/broken.mp4?" + weir.NewID()}))
	}
	f.asset = map[string]string{"id": id, "playbackId": f.awaitPhase(id, "ready")["playbackId"].(string)}
	f.deliver()
	return f
}

// object is JSON.
type object = map[string]any

// make sends a request, with the key and, where that is not allowed, with the log-in.
func (f *fixtures) make(method, path string, body any) object {
	f.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	var response object
	for _, credential := range []string{"Bearer " + f.w.Key, "JWT " + f.token} {
		r, err := http.NewRequestWithContext(f.t.Context(), method, f.w.URL+path, bytes.NewReader(text))
		if err != nil {
			f.t.Fatal(err)
		}
		r.Header.Set("Authorization", credential)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			f.t.Fatal(err)
		}
		content, err := io.ReadAll(got.Body)
		got.Body.Close()
		switch {
		case err != nil:
			f.t.Fatal(err)
		case got.StatusCode == http.StatusForbidden && strings.HasPrefix(credential, "Bearer"):
			continue
		case got.StatusCode >= 300:
			f.t.Fatalf("%s %s: %d %s", method, path, got.StatusCode, content)
		}
		_ = json.Unmarshal(content, &response) // a list, or nothing, leaves it empty
		return response
	}
	return response
}

func (f *fixtures) id(method, path string, body any) string {
	f.t.Helper()
	return f.make(method, path, body)["id"].(string)
}

// link runs a command that prints a one-time link and returns its token.
func (f *fixtures) link(args ...string) string {
	f.t.Helper()
	said := f.w.Run(append(args, "--public-url", f.w.URL)...)
	return harness.Match(f.t, said, `/set-password\?token=(\S+)`)
}

func (f *fixtures) setPassword(email string, command ...string) {
	f.t.Helper()
	f.w.Must("POST", "/api/user/password/reset", object{"email": email, "resetToken": f.link(command...), "password": password}, nil)
}

func (f *fixtures) logIn() (tokens struct{ Token, RefreshToken string }) {
	f.t.Helper()
	f.w.Must("POST", "/api/user/token", object{"email": email, "password": password}, &tokens)
	return tokens
}

// failed returns the ids of an asset that has failed and of its task, each once.
func (f *fixtures) failed() (id, task string) {
	f.t.Helper()
	made := f.broken[0]
	f.broken = f.broken[1:]
	id, task = made["asset"].(object)["id"].(string), made["task"].(object)["id"].(string)
	f.awaitPhase(id, "failed")
	return id, task
}

func (f *fixtures) awaitPhase(id, want string) (asset object) {
	f.t.Helper()
	harness.Eventually(f.t, func() error {
		asset = f.make("GET", "/api/asset/"+id, nil)
		if phase := asset["status"].(object)["phase"]; phase != want {
			return fmt.Errorf("the asset is %v, want %s", phase, want)
		}
		return nil
	})
	return asset
}

func (f *fixtures) write(change func(tx *store.Tx) error) {
	f.t.Helper()
	if err := f.store.Tx(f.t.Context(), change); err != nil {
		f.t.Fatal(err)
	}
}

// copied makes an upload to IPFS that is complete.
func (f *fixtures) copied() string {
	f.t.Helper()
	now := time.Now()
	u := weir.IPFSUpload{
		ID: weir.NewID(), UserID: f.user, ProjectID: f.project, TaskID: weir.NewID(), Space: "did:key:z6MkSpace", Remote: weir.IPFSLocal,
		Size: 1000, Shards: 1, CreatedAt: weir.At(now), UpdatedAt: weir.At(now),
	}
	f.write(func(tx *store.Tx) (err error) {
		if u, err = tx.OpenIPFSUpload(f.t.Context(), u); err == nil {
			_, err = tx.CompleteIPFSUpload(f.t.Context(), u.ID, "bafy"+u.ID, now) // each has its own root
		}
		return err
	})
	return u.ID
}

// person makes another account. The API lets an address make only a few.
func (f *fixtures) person() string {
	f.t.Helper()
	u := weir.User{ID: weir.NewID(), Kind: "user", CreatedAt: weir.At(time.Now())}
	u.Email = u.ID + "@example.com"
	f.write(func(tx *store.Tx) error { return tx.CreateUser(f.t.Context(), &u) })
	return u.ID
}

var placeholders = regexp.MustCompile(`\b[A-Z]+(?:_[A-Z]+)+\b|\bEMAIL\b|\bPASSWORD\b`)

// fill replaces the placeholders of an example, and the hosts of example.com by local ones.
func (f *fixtures) fill(call, language, code string) string {
	f.t.Helper()
	values := map[string]string{}
	code = placeholders.ReplaceAllStringFunc(code, func(name string) string {
		if _, ok := values[name]; !ok {
			values[name] = f.value(call, language, name, values)
		}
		return values[name]
	})
	return strings.NewReplacer(
		"https://example.com/live/index.m3u8", f.outside.URL+"/live/"+language+".mp4",
		"https://example.com/film.mp4", f.outside.URL+"/film-"+language+".mp4",
		"https://example.com", f.outside.URL,
		"https://s3.example.com", f.bucket.Endpoint, "my-bucket", f.bucket.Name,
		"ann@example.com", "ann-"+language+"@example.com",
	).Replace(code)
}

// value returns what a placeholder stands for in an example. Calls that change something get a thing
// of their own.
func (f *fixtures) value(call, language, name string, values map[string]string) string {
	f.t.Helper()
	if made, ok := f.special(call, language, name, values); ok {
		return made
	}
	reads := strings.HasPrefix(call, "get") || strings.HasPrefix(call, "list") || strings.HasPrefix(call, "query") ||
		call == "updateSigningKey" || call == "checkGate" // an account has few signing keys
	if value, ok := f.shared[name]; ok && reads {
		return value
	}
	value := f.usual(name)
	if reads {
		f.shared[name] = value
	}
	return value
}

// special returns what the example of one call needs.
func (f *fixtures) special(call, language, name string, values map[string]string) (string, bool) {
	f.t.Helper()
	switch call + " " + name {
	case "createClip PLAYBACK_ID", "listClips PLAYBACK_ID":
		return f.asset["playbackId"], true
	case "startPull STREAM_ID":
		source := f.outside.URL + "/live/pull-" + language + ".mp4"
		return f.id("POST", "/api/stream", object{"name": "pulled", "profiles": []any{}, "pull": object{"source": source}}), true
	case "removeMultistreamTarget STREAM_ID":
		target := f.usual("TARGET_ID")
		values["TARGET_ID"] = target
		reference := object{"profile": "source", "id": target}
		return f.id("POST", "/api/stream", object{"name": "s", "multistream": object{"targets": []any{reference}}}), true
	case "checkGate PLAYBACK_ID":
		return f.make("POST", "/api/stream", object{"name": "s", "playbackPolicy": object{"type": "jwt"}})["playbackId"].(string), true
	case "deleteAsset ASSET_ID":
		return f.upload()["asset"].(object)["id"].(string), true
	case "restoreAsset ASSET_ID":
		id := f.upload()["asset"].(object)["id"].(string)
		f.make("DELETE", "/api/asset/"+id, nil)
		return id, true
	case "retryAsset ASSET_ID":
		id, _ := f.failed()
		return id, true
	case "cancelTask TASK_ID":
		return f.upload()["task"].(object)["id"].(string), true
	case "retryTask TASK_ID":
		_, task := f.failed()
		return task, true
	case "getWebhookLog WEBHOOK_ID", "resendWebhook WEBHOOK_ID":
		return f.hook, true
	case "getWebhookLog LOG_ID", "resendWebhook LOG_ID":
		return f.log, true
	case "getIPFSUpload UPLOAD_ID", "deleteIPFSUpload UPLOAD_ID":
		return f.copied(), true
	case "createObjectStore ACCESS_KEY_ID":
		return url.QueryEscape(s3test.Key), true
	case "createObjectStore SECRET_ACCESS_KEY":
		return url.QueryEscape(s3test.Secret), true
	case "restoreUser USER_ID":
		id := f.usual("USER_ID")
		f.make("DELETE", "/api/user/"+id, nil)
		return id, true
	case "getUser USER_ID", "listStreamsOfUser USER_ID":
		return f.user, true
	case "resetPassword EMAIL":
		return language + "@example.com", true
	case "resetPassword RESET_TOKEN":
		return f.link("user", "create", language+"@example.com"), true
	}
	return "", false
}

// usual makes what a placeholder stands for.
func (f *fixtures) usual(name string) string {
	f.t.Helper()
	switch name {
	case "STREAM_ID":
		return f.id("POST", "/api/stream", object{"name": "s"})
	case "STREAM_KEY":
		return f.make("POST", "/api/stream", object{"name": "s"})["streamKey"].(string)
	case "PLAYBACK_ID":
		return f.make("POST", "/api/stream", object{"name": "s"})["playbackId"].(string)
	case "SESSION_ID":
		return f.session()
	case "TARGET_ID":
		return f.id("POST", "/api/multistream/target", object{"url": "rtmp://127.0.0.1/app/key"})
	case "WEBHOOK_ID":
		return f.webhook()
	case "SIGNING_KEY_ID":
		return f.id("POST", "/api/access-control/signing-key", object{})
	case "PUBLIC_KEY":
		return f.make("POST", "/api/access-control/signing-key", object{})["publicKey"].(string)
	case "ASSET_ID":
		return f.asset["id"]
	case "TRACK_ID": // each call of one gets it of that asset
		return f.id("POST", "/api/asset/"+f.asset["id"]+"/track", object{"type": "text", "language": "en"})
	case "UPLOAD_TOKEN":
		return harness.Match(f.t, f.upload()["url"].(string), `token=([^&]+)`)
	case "UPLOAD_ID":
		return f.tus()
	case "FILE_SIZE":
		return fmt.Sprint(harness.FileSize(f.t, harness.TinyClip(f.t)))
	case "OBJECT_STORE_ID":
		return f.id("POST", "/api/object-store", object{"url": f.bucket.URL()})
	case "API_TOKEN_ID":
		return f.id("POST", "/api/api-token", object{"name": "k"})
	case "PROJECT_ID":
		return f.id("POST", "/api/project", object{"name": "p"})
	case "USER_ID":
		return f.person()
	case "EMAIL":
		return email
	case "PASSWORD":
		return password
	case "REFRESH_TOKEN":
		return f.logIn().RefreshToken // works once
	case "ACCESS_KEY_ID":
		return s3test.Key
	case "SECRET_ACCESS_KEY":
		return s3test.Secret
	}
	f.t.Fatalf("nothing is behind the placeholder %s; add it here", name)
	return ""
}

// upload makes an asset whose file is not there yet.
func (f *fixtures) upload() object {
	f.t.Helper()
	return f.make("POST", "/api/asset/request-upload", object{"name": "film"})
}

// tus begins an upload and returns its id.
func (f *fixtures) tus() string {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.upload()["tusEndpoint"].(string), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Tus-Resumable", "1.0.0")
	r.Header.Set("Upload-Length", f.usual("FILE_SIZE"))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		f.t.Fatalf("begin an upload: %s", response.Status)
	}
	return path.Base(response.Header.Get("Location"))
}

// session pulls a stream for a moment.
func (f *fixtures) session() string {
	f.t.Helper()
	stream := f.id("PUT", "/api/stream/pull", object{"name": "aired", "profiles": []any{}, "pull": object{"source": f.outside.URL + "/live/aired.mp4"}})
	var sessions []struct{ ID string }
	f.w.Must("GET", "/api/session?parentId="+stream, nil, &sessions)
	return sessions[0].ID
}

func (f *fixtures) webhook() string {
	f.t.Helper()
	return f.id("POST", "/api/webhook", object{"name": "w", "url": f.outside.URL + "/hook", "events": []string{"asset.created"}})
}

// deliver makes a webhook and waits until it was told something.
func (f *fixtures) deliver() {
	f.t.Helper()
	f.hook = f.webhook()
	f.upload()
	var logs []struct{ ID string }
	harness.Eventually(f.t, func() error {
		if f.w.Must("GET", "/api/webhook/"+f.hook+"/log", nil, &logs); len(logs) == 0 {
			return os.ErrNotExist
		}
		return nil
	})
	f.log = logs[0].ID
}
