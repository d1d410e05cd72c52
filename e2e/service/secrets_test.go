package service

import (
	"crypto/ecdsa"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/store"
	domain "weir/internal/weir"
)

// TestSecretsStayInside gives weir a secret of every kind, uses the API and the
// commands in every way that has to do with them, rightly and wrongly, and then
// looks for the secrets in all places where somebody else could find them.
//
// A secret may be shown where a person asks for it: in the response that makes it,
// and to the owner where the contract says so (the key and the pull source of a
// stream, the URL of a webhook). Each request below names what its response may have.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		h := newHunt(t, w)
		h.people()
		h.webhooks()
		h.live()
		h.stored()
		h.gate()
		h.mistakes()
		h.commands()
		h.finish()
	})
}

// hunt is a weir with secrets in it.
type hunt struct {
	*secrets
	w       *harness.Weir
	anybody prober // without a credential
	owner   prober // with the key of the first account
	other   prober // with the key of another account
	temp    string // weir's folder for temporary files

	metrics   string                // address of
	spans     *harness.LockedBuffer // what weir told the collector
	events    *harness.LockedBuffer // what it told listeners
	listening <-chan struct{}
	hooked    *harness.LockedBuffer // what it told webhooks
	asked     *harness.LockedBuffer // what it asked access webhooks
	hooks     string                // address of these webhooks
	children  *harness.LockedBuffer // command lines and environments
	unwatch   func()

	control string   // no secret: what must be found
	urls    []string // names of the secrets in the URLs of webhooks
	token   string   // of a person who has logged in
	logins  []string // names of such tokens
}

func newHunt(t *testing.T, w *harness.Weir) *hunt {
	h := &hunt{secrets: newSecrets(t), w: w, temp: t.TempDir(), metrics: harness.FreeAddr(t), control: "control" + domain.NewToken()}
	removeSecret(w)
	_, _ = rand.Read(w.Secret)
	writeSecret(w)
	h.plant("master secret", string(w.Secret))
	w.Key = h.make("settings key")
	// PostgreSQL of the tests takes every password.
	w.Database = strings.Replace(w.Database, "postgres://weir@", "postgres://weir:"+h.make("database password")+"@", 1)
	var address string
	address, h.spans = collector(t)
	h.hooks, h.hooked, h.asked = hooks(t)
	w.Env = []string{"TMPDIR=" + h.temp, "OTEL_EXPORTER_OTLP_ENDPOINT=" + address, "OTEL_BSP_SCHEDULE_DELAY=100"}
	w.Start("--log-level", "debug", "--ops", h.metrics)
	h.children, h.unwatch = watchChildren(w)
	h.anybody = prober{secrets: h.secrets, w: w}
	h.owner = h.with("Bearer " + w.Key)
	h.events, h.listening = h.owner.listen()
	return h
}

func (h *hunt) with(credential string) prober {
	return prober{secrets: h.secrets, w: h.w, header: http.Header{"Authorization": {credential}}}
}

type object = map[string]any

// people sets and changes passwords, logs in in every way, and makes keys.
func (h *hunt) people() {
	h.t.Helper()
	link := h.plant("first link", harness.Match(h.t, wholeGreeting(h.w), `set-password\?token=(\S+)`))
	password, changed := h.makeOdd("first password"), h.makeOdd("changed password")
	const email = "ann@example.com"
	h.anybody.gets("GET", "/set-password?token="+link, nil, "first link")
	h.anybody.isRefused("POST", "/set-password", url.Values{"token": {link}, "email": {email}, "password": {password}, "repeat": {changed}}, "first link")
	h.browser(h.anybody.gets("POST", "/set-password", url.Values{"token": {link}, "email": {email}, "password": {password}, "repeat": {password}}), "cookie of the link")
	h.anybody.isRefused("POST", "/set-password", url.Values{"token": {link}, "email": {email}, "password": {password}, "repeat": {password}})
	h.anybody.isRefused("POST", "/login", url.Values{"email": {email}, "password": {h.makeOdd("wrong password")}})

	browser := h.browser(h.anybody.gets("POST", "/login", url.Values{"email": {email}, "password": {password}}), "first cookie")
	form := func() string {
		return h.plantOnce("form of the page", harness.Match(h.t, browser.gets("GET", "/account", nil, "form of the page").text, `name="form" value="([^"]+)"`))
	}
	form()
	browser.header.Set("Sec-Fetch-Site", "same-origin")
	session := browser.gets("POST", "/session/token", nil, "form of the page")
	h.plantToken(session.get(h.t, "token"))
	made := h.with("JWT "+session.get(h.t, "token")).gets("POST", "/api/api-token", object{"name": "of the page"})
	h.with("Bearer "+h.plant("key of the page", made.get(h.t, "key"))).gets("GET", "/api/user/me", nil)
	browser.gets("GET", "/keys", nil)
	browser.gets("GET", "/", nil)
	browser.isRefused("POST", "/account", url.Values{"form": {form()}, "old": {changed}, "password": {changed}, "repeat": {changed}}, "form of the page")
	browser = h.browser(browser.gets("POST", "/account", url.Values{"form": {form()}, "old": {password}, "password": {changed}, "repeat": {changed}}), "second cookie")
	browser.gets("GET", "/account", nil)

	// What programs of the SDK's time send instead of the password.
	sum, err := pbkdf2.Key(sha256.New, changed, []byte{0x69, 0x19, 0x5A, 0x94, 0x76, 0xF0, 0x85, 0x46}, 10_000, 32)
	if err != nil {
		h.t.Fatal(err)
	}
	for i, given := range []string{changed, h.plant("hash of the password", fmt.Sprintf("%X", sum))} {
		in := h.anybody.gets("POST", "/api/user/token", object{"email": email, "password": given}, h.logins...)
		h.token = in.get(h.t, "token")
		h.plantToken(h.token)
		refresh := h.plant(fmt.Sprintf("refresh token %d", i), in.get(h.t, "refreshToken"))
		again := h.anybody.gets("POST", "/api/user/token/refresh", object{"refreshToken": refresh}, h.logins...)
		h.plantToken(again.get(h.t, "token"))
		h.anybody.isRefused("POST", "/api/user/token/refresh", object{"refreshToken": refresh}) // too soon
	}
	person := h.with("JWT " + h.token)
	made = person.gets("POST", "/api/api-token", object{"name": "of a program"})
	h.with(h.plant("key of a program", made.get(h.t, "key"))).gets("GET", "/api/stream", nil)
	person.gets("GET", "/api/api-token", nil)
	person.gets("GET", "/api/api-token/"+made.get(h.t, "id"), nil)
	person.gets("GET", "/api/user", nil)
	person.gets("GET", "/api/user/me", nil)
	person.gets("DELETE", "/api/api-token/"+made.get(h.t, "id"), nil)

	h.plant("second link", printedLink(h.w, "user", "create", "bob@example.com"))
	h.anybody.gets("POST", "/api/user/password/reset",
		object{"email": "bob@example.com", "resetToken": h.values["second link"], "password": h.makeOdd("second password")})
	key := h.plant("key of the outsider", harness.Match(h.t, h.w.Run("key", "create", "bob's", "--user", "bob@example.com"), `API key +(\S+)`))
	h.other = h.with("Basic " + base64.StdEncoding.EncodeToString([]byte(h.with("Bearer "+key).gets("GET", "/api/user/me", nil).get(h.t, "id")+":"+key)))
	h.other.gets("GET", "/api/user/me", nil)
}

// browser is the client that was given a cookie.
func (h *hunt) browser(in reply, name string) prober {
	h.t.Helper()
	cookie := (&http.Response{Header: in.header}).Cookies()
	if len(cookie) != 1 {
		h.t.Fatalf("log in: %d, cookies %v", in.status, cookie)
	}
	h.plant(name, cookie[0].Value)
	return prober{secrets: h.secrets, w: h.w, header: http.Header{"Cookie": {cookie[0].Name + "=" + cookie[0].Value}}}
}

// plantToken plants the signature of a log-in; the rest of it is no secret. Two of
// the same second are the same.
func (h *hunt) plantToken(token string) {
	h.t.Helper()
	name := fmt.Sprintf("log-in %d", len(h.logins))
	signature := token[strings.LastIndex(token, ".")+1:]
	for _, known := range h.logins {
		if h.values[known] == signature {
			return
		}
	}
	h.plant(name, signature)
	h.logins = append(h.logins, name)
}

// plantOnce plants a value that may have been planted before.
func (h *hunt) plantOnce(name, value string) string {
	if h.values[name] != value {
		h.plant(name, value)
	}
	return value
}

// webhooks makes webhooks that are told of what the others do, and that fail in
// different ways.
func (h *hunt) webhooks() {
	h.t.Helper()
	host := strings.TrimPrefix(h.hooks, "http://")
	for how, address := range map[string]string{
		"ok":      "http://hook:%s@" + host + "/ok/%s?token=%s",
		"fail":    "http://hook:%s@" + host + "/fail/%s?token=%s",
		"gone":    "http://hook:%s@" + host + "/gone/%s?token=%s",
		"moved":   "http://hook:%s@" + host + "/moved/%s?token=%s",
		"away":    "http://hook:%s@" + host + "/away/%s?token=%s",
		"refused": "http://hook:%s@127.0.0.1:1/%s?token=%s",
		"blocked": "http://hook:%s@10.0.0.1/%s?token=%s",
	} {
		var parts []any
		for _, part := range []string{"password", "path", "query"} {
			name := part + " of the URL of " + how
			h.urls = append(h.urls, name)
			parts = append(parts, h.make(name))
		}
		body := object{
			"name": how, "url": fmt.Sprintf(address, parts...), "sharedSecret": h.makeOdd("shared secret of " + how),
			"events": []string{"asset.created", "asset.updated", "stream.started", "task.spawned", "task.updated"},
		}
		id := h.owner.gets("POST", "/api/webhook", body, h.urls...).get(h.t, "id")
		h.owner.gets("GET", "/api/webhook/"+id, nil, h.urls...)
		body["sharedSecret"] = h.makeOdd("new shared secret of " + how)
		h.owner.gets("PUT", "/api/webhook/"+id, body, h.urls...)
		h.owner.gets("PATCH", "/api/webhook/"+id, object{"sharedSecret": h.makeOdd("newest shared secret of " + how)})
		h.owner.gets("GET", "/api/webhook?filters="+url.QueryEscape(`[{"id":"url","value":"`+body["url"].(string)+`"}]`), nil, h.urls...)
		h.other.isRefused("GET", "/api/webhook/"+id, nil)
		h.other.isRefused("PATCH", "/api/webhook/"+id, object{"name": "mine"})
	}
	h.owner.gets("GET", "/api/webhook", nil, h.urls...)
	h.owner.gets("GET", "/api/webhook/subscribed/asset.created", nil, h.urls...)
	h.with("JWT "+h.token).gets("GET", "/api/webhook?allUsers=true&all=true", nil, h.urls...)
	h.other.gets("GET", "/api/webhook", nil)
	h.owner.isRefused("GET", `/api/webhook?filters=[{"id":"sharedSecret","value":"x"}]`, nil)
}

// live makes streams, and targets that they are pushed on to.
func (h *hunt) live() {
	h.t.Helper()
	owners := []string{"stream key", "pull password", "pull token", "pull header"}
	source := "https://puller:" + h.make("pull password") + "@example.com/live.m3u8?token=" + h.make("pull token")
	body := object{
		"name": h.control, "record": true,
		"pull":        object{"source": source, "headers": object{"X-Auth": h.makeOdd("pull header")}},
		"multistream": object{"targets": []object{{"profile": "source", "spec": object{"url": "rtmp://127.0.0.1/live/" + h.make("first target")}}}},
	}
	made := h.owner.gets("POST", "/api/stream", body, owners...)
	id, playbackID := made.get(h.t, "id"), made.get(h.t, "playbackId")
	key := h.plant("stream key", made.get(h.t, "streamKey"))
	stream := "/api/stream/" + id
	for _, path := range []string{
		stream, "/api/stream", "/api/stream/key/" + key, "/api/stream/playback/" + playbackID, stream + "/info",
		"/api/stream/" + key + "/info", "/api/stream?filters=" + url.QueryEscape(`[{"id":"pull.source","value":"`+source+`"}]`),
	} {
		h.owner.gets("GET", path, nil, owners...)
		if path != "/api/stream" && !strings.Contains(path, "?") {
			h.other.isRefused("GET", path, nil)
			h.anybody.isRefused("GET", path, nil)
		} else {
			h.other.gets("GET", path, nil)
		}
	}
	h.anybody.gets("GET", "/api/playback/"+playbackID, nil)
	h.owner.gets("PATCH", stream, object{"name": h.control + " changed"})
	target := h.owner.gets("POST", stream+"/create-multistream-target",
		object{"profile": "source", "spec": object{"name": "second", "url": "srt://127.0.0.1:1?streamid=" + h.make("second target")}}).get(h.t, "id")
	h.owner.gets("PATCH", "/api/multistream/target/"+target, object{"url": "rtmps://u:" + h.make("password of the target") + "@127.0.0.1/app/" + h.make("changed target")})
	h.owner.gets("GET", "/api/multistream/target/"+target, nil)
	h.owner.gets("GET", "/api/multistream/target", nil)
	h.with("JWT "+h.token).gets("GET", "/api/multistream/target?allUsers=true", nil)
	h.other.isRefused("GET", "/api/multistream/target/"+target, nil)
	h.owner.gets("POST", "/api/multistream/target", object{"url": "rtmp://127.0.0.1/live/" + h.make("third target")})

	h.goesLive(id)
	for _, path := range []string{"/api/session", "/api/session?parentId=" + id, stream + "/sessions", "/api/stream/sessions/" + id} {
		h.owner.gets("GET", path, nil)
	}
	h.owner.gets("DELETE", stream+"/terminate", nil)
	h.owner.gets("PATCH", stream+"/suspended", object{"suspended": true})
	other := h.owner.gets("POST", "/api/stream", object{"name": "deleted"})
	h.plant("deleted stream key", other.get(h.t, "streamKey"))
	h.owner.gets("DELETE", "/api/stream/"+other.get(h.t, "id"), nil)
	h.owner.isRefused("GET", "/api/stream/key/"+h.values["deleted stream key"], nil)
	h.with("JWT "+h.token).gets("GET", "/api/stream?all=true&allUsers=true", nil, append(owners, "deleted stream key")...)
}

// goesLive does what a media engine does when a stream goes on air.
func (h *hunt) goesLive(streamID string) {
	h.t.Helper()
	ctx, now := h.t.Context(), time.Now()
	err := h.w.OpenStore().Tx(ctx, func(tx *store.Tx) error {
		stream, err := tx.UpdateStream(ctx, streamID, func(s *domain.Stream) error {
			s.LastSeen, s.SourceSegmentsDuration = domain.At(now), 10
			return nil
		})
		if err != nil {
			return err
		}
		session := domain.Session{
			ID: domain.NewID(), Kind: "session", Name: "video+" + stream.PlaybackID, ParentID: stream.ID, UserID: stream.UserID, ProjectID: stream.ProjectID,
			PlaybackID: stream.PlaybackID, CreatedAt: domain.At(now), LastSeen: domain.At(now), Record: true, Profiles: stream.Profiles, Counters: stream.Counters,
		}
		if err := tx.CreateSession(ctx, &session); err != nil {
			return err
		}
		event, err := domain.NewStreamEvent(domain.StreamStarted, stream, object{"session": session}, now)
		if err != nil {
			return err
		}
		return tx.Emit(ctx, event)
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// stored makes assets from places that need credentials, and exports to such.
func (h *hunt) stored() {
	h.t.Helper()
	bucket := func(name string) string {
		return "s3+https://" + h.make("access key of "+name) + ":" + h.make("secret key of "+name) + "@s3.example.com/bucket"
	}
	id := h.owner.gets("POST", "/api/object-store", object{"name": "mine", "url": bucket("the store"), "publicUrl": "https://cdn.example.com"}).get(h.t, "id")
	h.owner.gets("PATCH", "/api/object-store/"+id, object{"url": bucket("the changed store")})
	h.owner.gets("GET", "/api/object-store/"+id, nil)
	h.owner.gets("GET", "/api/object-store", nil)
	h.with("JWT "+h.token).gets("GET", "/api/object-store?allUsers=true&all=true", nil)
	h.other.isRefused("GET", "/api/object-store/"+id, nil)

	key := base64.StdEncoding.EncodeToString([]byte(domain.NewToken() + domain.NewToken()))
	encrypted := object{"encryptedKey": h.plant("encrypted key", key)}
	policy := object{"type": "jwt"}
	source := "http://importer:" + h.make("password of the source") + "@127.0.0.1:1/source.mp4?X-Amz-Signature=" + h.make("signature of the source")
	body := object{"name": h.control, "url": source, "encryption": encrypted, "playbackPolicy": policy}
	imported := h.owner.gets("POST", "/api/asset/upload/url", body)
	h.owner.gets("POST", "/api/asset/upload/url", body) // the same again
	task := imported.get(h.t, "task.id")
	uploaded := h.owner.gets("POST", "/api/asset/request-upload", object{"name": "uploaded", "encryption": encrypted, "playbackPolicy": policy})
	for _, member := range []string{"url", "tusEndpoint"} {
		address, err := url.Parse(uploaded.get(h.t, member))
		if err != nil {
			h.t.Fatal(err)
		}
		token := address.Query().Get("token")
		h.plantOnce("token of "+member, token[strings.LastIndex(token, ".")+1:])
	}
	asset := "/api/asset/" + imported.get(h.t, "asset.id")
	for _, path := range []string{asset, "/api/asset", "/api/asset?sourceUrl=" + url.QueryEscape(source), "/api/task/" + task, "/api/task"} {
		h.owner.gets("GET", path, nil)
		h.with("JWT "+h.token).gets("GET", path, nil)
	}
	h.other.isRefused("GET", "/api/task/"+task, nil)
	h.stopsAndGoesOn(task)
	h.owner.gets("DELETE", asset, nil)

	ready := "/api/asset/" + seed(h.w).AssetID
	for _, export := range []object{
		{"custom": object{
			"url":    "https://sender:" + h.make("password of the export") + "@example.com/to?X-Amz-Signature=" + h.make("signature of the export"),
			"method": "PUT", "headers": object{"Authorization": "Bearer " + h.makeOdd("header of the export")},
		}},
	} {
		task := h.owner.gets("POST", ready+"/export", export).get(h.t, "task.id")
		h.owner.gets("GET", "/api/task/"+task, nil)
		h.stopsAndGoesOn(task)
	}
	for _, pinata := range []object{{"jwt": h.make("pinata token")}, {"apiKey": h.make("pinata key"), "apiSecret": h.make("pinata secret")}} {
		h.owner.isRefused("POST", ready+"/export", object{"ipfs": object{"pinata": pinata}})
	}
	h.owner.isRefused("POST", "/api/transcode", object{
		"input": object{"url": "https://example.com/in.mp4"}, "outputs": object{"hls": object{"path": "/out"}},
		"storage": object{"type": "web3.storage", "credentials": object{"proof": h.make("proof")}},
	})
	h.owner.gets("GET", "/api/task", nil)
	h.with("JWT "+h.token).gets("GET", "/api/task?allUsers=true", nil)
	h.owner.gets("GET", ready+"?details=1", nil)
	h.owner.gets("PATCH", ready, object{"name": h.control + " changed"})
}

// stopsAndGoesOn cancels a task and starts it again. None of the places can be
// reached, so that the task may have failed before it was cancelled: then its
// message, which tells of the place, is read instead.
func (h *hunt) stopsAndGoesOn(task string) {
	h.t.Helper()
	path := "/api/task/" + task
	if r := h.owner.sends("POST", path+"/cancel", nil); r.status >= 300 {
		if phase := h.owner.gets("GET", path, nil).get(h.t, "status.phase"); phase != string(domain.TaskFailed) {
			h.t.Errorf("cancelling a task that is %s: %d %s", phase, r.status, r.text)
		}
	}
	h.owner.gets("POST", path+"/retry", nil)
}

// gate makes a signing key, and asks an access webhook whether a viewer may play.
func (h *hunt) gate() {
	h.t.Helper()
	made := h.owner.gets("POST", "/api/access-control/signing-key", object{"name": "signer"})
	h.plantPrivateKey(made.get(h.t, "privateKey"))
	h.owner.gets("GET", "/api/access-control/signing-key/"+made.get(h.t, "id"), nil)
	h.owner.gets("GET", "/api/access-control/signing-key", nil)
	h.anybody.gets("GET", "/api/access-control/public-key", nil)

	address := func(name, base string) string {
		name = "path of the URL of the " + name
		h.urls = append(h.urls, name)
		return base + h.make(name)
	}
	hook := h.owner.gets("POST", "/api/webhook", object{
		"name": "gate", "url": address("gate", h.hooks+"/gate/"), "events": []string{"playback.accessControl"},
		"sharedSecret": h.makeOdd("shared secret of the gate"),
	}, h.urls...).get(h.t, "id")
	stream := h.owner.gets("POST", "/api/stream", object{"name": "gated", "playbackPolicy": object{"type": "webhook", "webhookId": hook}})
	h.plant("key of the gated stream", stream.get(h.t, "streamKey"))
	h.anybody.gets("GET", "/api/playback/"+stream.get(h.t, "playbackId"), nil)
	key := h.makeOdd("access key")
	question := object{
		"type": "accessKey", "stream": "video+" + stream.get(h.t, "playbackId"), "accessKey": key,
		"webhookPayload": object{
			"playURL": "https://example.com/hls/index.m3u8?accessKey=" + url.QueryEscape(key),
			"headers": object{"User-Agent": "player", "Authorization": "Bearer " + h.makeOdd("viewer's header")},
		},
	}
	h.anybody.gets("POST", "/api/access-control/gate", question)
	// For a media server of the owner, the webhook is asked each time.
	h.owner.gets("PATCH", "/api/webhook/"+hook, object{"url": address("closed gate", h.hooks+"/gate-closed/")})
	h.owner.isRefused("POST", "/api/access-control/gate", question)
	h.owner.gets("PATCH", "/api/webhook/"+hook, object{"url": address("broken gate", "http://127.0.0.1:1/")})
	if r := h.owner.sends("POST", "/api/access-control/gate", question); r.status != http.StatusBadGateway {
		h.t.Errorf("the gate without its webhook: %d %s, want 502", r.status, r.text)
	}
	// The owner may see what the owner's own server answered.
	h.owner.gets("GET", "/api/webhook/"+hook, nil, append(h.urls, "access key", "viewer's header")...)
	h.owner.gets("GET", "/api/webhook/"+hook+"/log", nil, append(h.urls, "access key", "viewer's header")...)
}

// plantPrivateKey plants the secret number of a signing key, as it is and as it
// stands in the two nested base64 texts of the response. The rest of them is common
// to all keys, or the public half.
func (h *hunt) plantPrivateKey(encoded string) {
	h.t.Helper()
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		h.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		h.t.Fatal(err)
	}
	number, err := key.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		h.t.Fatal(err)
	}
	h.plant("private key", string(number))
	inner := base64.StdEncoding.EncodeToString(block.Bytes)
	at := strings.Index(string(block.Bytes), string(number)) * 8 / 6
	const line = 64 // of a PEM
	h.plant("private key, first line", inner[at+1:line])
	h.plant("private key, second line", inner[line:at+len(number)*8/6-1])
}

// mistakes puts secrets where they do not belong. Nothing of it may be repeated,
// except where the contract says that an id is.
func (h *hunt) mistakes() {
	h.t.Helper()
	guesses := 0
	for _, name := range []string{"settings key", "changed password", "stream key", "path of the URL of ok", "log-in 0", "refresh token 0"} {
		v := h.values[name]
		in := url.PathEscape(v)
		for _, path := range []string{
			"/api/" + in, "/api/stream/" + in, "/api/webhook/" + in + "/log/" + in, "/api/task/" + in, "/api/user/" + in, "/api/clip/" + in,
			"/api/stream?filters=" + in,
			"/api/events?cursor=" + in, "/api/data/views/query?from=" + in, "/api/stream?projectId=" + in, "/api/stream?x=%zz" + in,
		} {
			h.owner.isRefused("GET", path, nil)
		}
		// The contract has these two repeat what they do not understand.
		h.owner.isRefused("GET", "/api/playback/"+in, nil, name)
		h.owner.isRefused("GET", "/api/webhook?filters="+url.QueryEscape(`[{"id":"createdAt","value":{"gt":"`+strings.ReplaceAll(v, `"`, "")+`"}}]`), nil, name)
		for _, path := range []string{"/api/stream?token=" + in + "&limit=" + in + "&order=" + in + "&cursor=" + in} {
			h.owner.sends("GET", path, nil, "stream key", "key of the gated stream", "pull password", "pull token", "pull header")
		}
		h.mistakesInBodies(v)
		for _, path := range []string{"/" + in, "/set-password?token=" + in, "/hls/" + in + "/index.m3u8", "/webrtc/" + in} {
			if r := h.anybody.sends("GET", path, nil); r.status == http.StatusOK {
				h.t.Errorf("GET %s: %s", path, r.text)
			}
		}
		// A page of the console leads to the log-in, which leads back to the page.
		if r := h.anybody.sends("GET", "/keys/"+in+"?x="+in, nil, name); r.status == http.StatusOK {
			h.t.Errorf("GET /keys: %s", r.text)
		}
		for _, credential := range []string{
			"Token " + v, v + " " + v, v + " x", "Bearer " + v + v, "Bearer", "Basic " + v, "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+v)),
			"JWT " + v, "JWT " + v + "." + v + "." + v, v + v,
		} {
			if strings.ContainsFunc(credential, func(r rune) bool { return r > '~' }) {
				credential = url.QueryEscape(credential) // headers are ASCII
			}
			guesses++
			guesser := h.with(credential)
			guesser.from = "127.0.1." + strconv.Itoa(guesses) // each address may be wrong a few times only
			guesser.isRefused("GET", "/api/stream", nil)
		}
		odd := prober{secrets: h.secrets, w: h.w, header: http.Header{
			"Cookie": {"weir=" + in}, "Referer": {"https://example.com/?key=" + in}, "User-Agent": {in}, "X-Api-Key": {in},
		}}
		odd.isRefused("GET", "/api/stream", nil)
		odd.sends("GET", "/", nil)
	}
}

// mistakesInBodies sends bodies of the wrong shape with the secret in them.
func (h *hunt) mistakesInBodies(v string) {
	h.t.Helper()
	for _, m := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/api/stream", object{"name": object{"inner": v}}},
		{"POST", "/api/stream", object{"name": "x", "record": v}},
		{"POST", "/api/stream", object{"name": "x", "streamKey": v}},
		{"POST", "/api/stream", object{"name": "x", "pull": v}},
		{"POST", "/api/stream", object{"name": "x", "profiles": []any{object{"name": v}}}},
		{"POST", "/api/stream", object{"name": "x", "userTags": object{"tag": strings.Repeat(v, 200)}}},
		{"POST", "/api/stream", `{"name":"` + v},
		{"POST", "/api/stream", `{"name":` + v + `}`},
		{"POST", "/api/stream", `{"name":"x` + "\xff" + v + `"}`},
		{"POST", "/api/stream", strings.Repeat("[", 200) + v},
		{"POST", "/api/stream", `{"name":"` + strings.Repeat(v, 1<<20/len(v)+9) + `"}`},
		{"POST", "/api/stream/" + url.PathEscape(v) + "/create-multistream-target", object{"profile": "source", "spec": object{"url": "rtmp://h/" + v}}},
		{"POST", "/api/webhook", object{"name": "x", "url": v, "events": []string{"asset.created"}}},
		{"POST", "/api/webhook", object{"name": "x", "url": "http://127.0.0.1:port/" + v, "events": []string{"asset.created"}}},
		{"POST", "/api/webhook", object{"name": "x", "url": "http://127.0.0.1/", "events": []string{v}}},
		{"POST", "/api/webhook", object{"name": "x", "url": "http://127.0.0.1/", "events": []string{"asset.created"}, "sharedSecret": object{"is": v}}},
		{"POST", "/api/webhook", object{"name": "x", "url": "http://127.0.0.1/", "events": []string{"asset.created"}, "streamId": v}},
		{"POST", "/api/multistream/target", object{"url": v}},
		{"POST", "/api/multistream/target", object{"url": "rtmp://%zz/" + v}},
		{"POST", "/api/object-store", object{"url": v}},
		{"POST", "/api/object-store", object{"url": "s3://key:" + v}},
		{"POST", "/api/asset/upload/url", object{"name": "x", "url": "https://user:" + v + "@%zz/"}},
		{"POST", "/api/asset/upload/url", object{"name": "x", "url": "https://example.com/x", "encryption": object{"encryptedKey": v + "!"}}},
		{"POST", "/api/asset/" + url.PathEscape("x") + "/export", object{"custom": object{"url": "ftp://" + v, "headers": object{"x": v}}}},
		{"POST", "/api/user/token", object{"email": object{"x": v}, "password": v}},
		{"POST", "/api/user/token/refresh", object{"refreshToken": v + "x"}},
		{"POST", "/api/user/password/reset", object{"email": "ann@example.com", "resetToken": v, "password": v}},
		{"POST", "/api/user", object{"email": "new@example.com", "password": v}},
		{"POST", "/api/access-control/gate", object{"type": "accessKey", "stream": v, "accessKey": v}},
		{"POST", "/api/access-control/gate", object{"type": v, "stream": "x"}},
		{"DELETE", "/api/stream", object{"ids": []string{v}}},
		{"DELETE", "/api/webhook", object{"ids": v}},
		{"PUT", "/api/" + url.PathEscape(v), object{"x": v}},
	} {
		h.owner.isRefused(m.method, m.path, m.body)
	}
}

// commands runs the commands beside the service.
func (h *hunt) commands() {
	h.t.Helper()
	for _, args := range [][]string{{"key", "list"}, {"user", "list"}, {"doctor", "--http", ""}, {"version"}} {
		out, _ := h.w.Command(args...) // doctor may find something to complain of
		h.search("the output of weir "+strings.Join(args, " "), []byte(out))
	}
	dir := filepath.Join(h.t.TempDir(), "backup")
	h.search("the output of weir backup", []byte(h.w.Run("backup", dir)))
	h.searchFiles("the backup", dir)
}

// finish waits for the webhooks, ends weir and searches everywhere.
func (h *hunt) finish() {
	h.t.Helper()
	h.untilTold()
	response, err := http.Get("http://" + h.metrics + "/metrics")
	if err != nil {
		h.t.Fatal(err)
	}
	metrics := &harness.LockedBuffer{}
	_ = response.Write(metrics) // to memory
	_ = response.Body.Close()
	h.searchFiles("while weir runs", h.w.Data)
	h.unwatch()
	h.w.Stop()
	<-h.listening

	for place, mustHave := range map[string]struct{ content, text string }{
		"the log":      {h.w.Log.String(), `"route":"GET /api/stream/{id}"`},
		"the spans":    {h.spans.String(), "GET /api/stream/{id}"},
		"the events":   {h.events.String(), h.control},
		"the webhooks": {h.hooked.String(), h.control},
		"the metrics":  {metrics.String(), "GET /api/stream/{id}"},
		"the children": {h.children.String(), ""}, // there are none yet
	} {
		if !strings.Contains(mustHave.content, mustHave.text) {
			h.t.Errorf("%s: there is no %q in it, so nothing can be found there:\n%s", place, mustHave.text, mustHave.content)
		}
		h.search(place, []byte(mustHave.content))
	}
	// The first start prints the link, and not to the log. It does not print a key of the settings.
	greeting := []byte(h.w.Greeting.String())
	h.search("the greeting", greeting, "first link")
	if h.find(greeting)["first link"] == "" {
		h.t.Errorf("the greeting does not have the first link:\n%s", greeting)
	}
	h.search("the questions to access webhooks", []byte(h.asked.String()), "access key", "viewer's header")

	database := h.searchFiles("after weir ended", h.w.Data)
	h.searchFiles("temporary files", h.temp)
	if strings.HasPrefix(h.w.Database, "postgres:") {
		database = dump(h.t, h.w.Database)
		h.search("PostgreSQL", database)
	}
	// What is no secret is there: the search looks at the right thing.
	shown := newSecrets(h.t)
	shown.plant("control", h.control)
	for place, content := range map[string][]byte{"the database": database, "the events": []byte(h.events.String())} {
		if shown.find(content)["control"] == "" {
			h.t.Errorf("%s: the search does not find what is there", place)
		}
	}
}

// untilTold waits until every webhook has been tried, and reads the logs of them.
func (h *hunt) untilTold() {
	h.t.Helper()
	var all []struct{ ID, Name string }
	h.w.Must("GET", "/api/webhook", nil, &all)
	if len(all) != 8 {
		h.t.Fatalf("%d webhooks, want 8", len(all))
	}
	for _, hook := range all {
		if hook.Name == "gate" {
			continue
		}
		path := "/api/webhook/" + hook.ID
		var log []struct{ ID string }
		harness.Eventually(h.t, func() error {
			if h.w.Must("GET", path+"/log?limit=100", nil, &log); len(log) < 3 {
				return fmt.Errorf("webhook %s was tried %d times", hook.Name, len(log))
			}
			return nil
		})
		h.owner.gets("GET", path+"/log", nil, h.urls...)
		h.owner.gets("GET", path+"/log/"+log[0].ID, nil, h.urls...)
		h.other.isRefused("GET", path+"/log/"+log[0].ID, nil)
		h.owner.gets("POST", path+"/log/"+log[0].ID+"/resend", nil, h.urls...)
		h.owner.gets("GET", path, nil, h.urls...)
	}
	h.owner.gets("DELETE", "/api/webhook/"+all[0].ID, nil, h.urls...)
}

// TestDoctorTellsChildrenNothing looks at the programs that weir starts through a
// script that stands before each of them.
func TestDoctorTellsChildrenNothing(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		s := newSecrets(t)
		w.Start()
		w.Stop()
		bin := t.TempDir()
		seen := filepath.Join(bin, "seen")
		for _, name := range []string{"ffmpeg", "ffprobe"} {
			real, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			script := "#!/bin/sh\n{ echo \"$0 $*\"; env; cat /proc/$$/environ; } >>" + seen + "\nexec " + real + " \"$@\"\n"
			if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		w.Env = []string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "WEIR_API_KEY=" + s.make("key"),
			"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + s.make("header"),
		}
		w.Database = strings.Replace(w.Database, "postgres://weir@", "postgres://weir:"+s.make("password")+"@", 1)
		said := w.Run("doctor", "--http", "", "--ops", "", "--run", "work")
		content, err := os.ReadFile(seen)
		if err != nil || !strings.Contains(string(content), "ffmpeg -version") || !strings.Contains(string(content), "ffprobe -version") {
			t.Fatalf("the children were not seen: %v\n%s\n%s", err, content, said)
		}
		s.search("the children of weir doctor", content)
		s.search("the output of weir doctor", []byte(said))
	})
}
