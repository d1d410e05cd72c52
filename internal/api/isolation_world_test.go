package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// world is a service with two accounts of two projects each, and an admin.
type world struct {
	*testing.T
	*fixture
	tenants []tenant
	root    tenant // an admin: with an API key nobody special

	method, path string // of the route that is tested
	who          who
}

// tenant is a project of an account, and whoever works in it.
type tenant struct {
	name          string
	user, project string
	key, jwt      string
	login         bool // sends a log-in where a key would do
	keyOnly       bool // sends a key where a log-in is needed
}

func (as tenant) loggedIn() tenant {
	as.name, as.login = as.name+", logged in,", true
	return as
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{T: t, fixture: openFixture(t, url)}
	t.Cleanup(w.store.Close)
	w.server.MaxPendingTasks = 0
	w.server.CheckDestination = func(context.Context, string, []string, string) error { return nil }
	newPuller(t, w.fixture)
	for _, name := range []string{"root", "ann", "bob"} {
		w.addUser(t, w.server.Accounts, name)
		first := tenant{name: name + "/1", user: w.vars[name+".id"], project: w.vars[name+".project"], key: w.vars[name+".key"], jwt: w.vars[name+".jwt"]}
		if name == "root" {
			w.root = first
			continue
		}
		second, key := first, weir.NewAPIKey()
		second.name, second.project, second.key = name+"/2", weir.NewID(), key.Reveal()
		w.write(func(tx *store.Tx) error {
			if err := tx.CreateProject(ctx, &weir.Project{ID: second.project, Name: "second", UserID: second.user, CreatedAt: weir.At(time.Now())}); err != nil {
				return err
			}
			return tx.CreateToken(ctx, &weir.Token{ID: weir.NewID(), Kind: "api-token", UserID: second.user, ProjectID: second.project}, key)
		})
		w.tenants = append(w.tenants, first, second)
	}
	return w
}

func (w *world) write(do func(*store.Tx) error) {
	w.Helper()
	if err := w.store.Tx(context.WithoutCancel(w.Context()), do); err != nil {
		w.Fatal(err)
	}
}

// whoMayUse returns who may use a route, by routes.go.
func (w *world) whoMayUse(operation string) who {
	w.Helper()
	for _, r := range w.server.table() {
		if r.method+" /api"+r.path == operation {
			return r.who
		}
	}
	w.Fatalf("%s is no route", operation)
	return everybody
}

// outsiders returns whoever must not see what the owner has.
func (w *world) outsiders(owner tenant, account bool) []tenant {
	var outsiders []tenant
	for _, as := range w.tenants {
		if as.user != owner.user || !account && as.project != owner.project {
			outsiders = append(outsiders, as)
		}
	}
	if w.who != people { // there the admin is one
		outsiders = append(outsiders, w.root)
	}
	return outsiders
}

// own returns the values of the caller's own resource that the path of a cell names.
func (w *world) own(c cell, as tenant) map[string]string {
	w.Helper()
	if c.own == nil {
		return nil
	}
	return c.own(w, as).values
}

// reply is the response to a request.
type reply struct {
	status int
	body   string
}

func (a reply) String() string { return strconv.Itoa(a.status) + " " + a.body }

// without replaces values that differ between two requests by their names.
func (a reply) without(values map[string]string) reply {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		a.body = strings.ReplaceAll(a.body, values[name], "{"+name+"}")
	}
	return a
}

// member returns a string in the response, as `asset.id`.
func (a reply) member(path string) string {
	var value any
	_ = json.Unmarshal([]byte(a.body), &value) // then it has no members
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	text, _ := value.(string)
	return text
}

// send sends a request, and checks the response against openapi.yaml.
func (w *world) send(as tenant, method, path, body string) reply {
	w.Helper()
	r := httptest.NewRequest(method, "http://weir.test"+path, strings.NewReader(body))
	rec := httptest.NewRecorder()
	w.server.ServeHTTP(rec, w.as(as, r))
	w.check(w.T, 0, r, rec)
	return reply{rec.Code, rec.Body.String()}
}

// as gives a request the credential of a tenant: the key, or the log-in where one is needed.
func (w *world) as(as tenant, r *http.Request) *http.Request {
	route := w.server.routes.match(r)
	login := as.login || route != nil && (route.who == people || route.who == admins)
	switch {
	case login && !as.keyOnly:
		r.Header.Set("Authorization", "JWT "+as.jwt)
		q := r.URL.Query()
		q.Set("projectId", as.project)
		r.URL.RawQuery = q.Encode()
	case as.key != "":
		r.Header.Set("Authorization", "Bearer "+as.key)
	}
	return r
}

// read returns what the owner sees of a resource.
func (w *world) read(owner tenant, it thing) reply {
	w.Helper()
	if it.read == "" {
		return reply{}
	}
	got := w.send(owner, "GET", it.read, "")
	if got.status != http.StatusOK {
		w.Errorf("%s does not find its own %s: %s", owner.name, it.read, got)
	}
	return got
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// request returns the path and the body of a cell with values in them.
func (w *world) request(c cell, values map[string]string) (path, body string) {
	w.Helper()
	path = parameter.ReplaceAllStringFunc(w.path, func(found string) string { return w.value(values, found[1:len(found)-1]) })
	if c.query != "" {
		path += "?" + w.fill(c.query, values)
	}
	return path, w.fill(c.body, values)
}

// fill replaces each ${name}.
func (w *world) fill(text string, values map[string]string) string {
	w.Helper()
	return variable.ReplaceAllStringFunc(text, func(found string) string { return w.value(values, found[2:len(found)-1]) })
}

func (w *world) value(values map[string]string, name string) string {
	w.Helper()
	value, ok := values[name]
	switch {
	case name == "new":
		return weir.NewID()
	case !ok:
		w.Fatalf("the row needs a value for %q", name)
	}
	return value
}

// The bodies of some routes.
const transcodeBody = `{"input":{"url":"https://example.com/${new}.mp4"},"outputs":{"hls":{"path":"a"}},"storage":` +
	`{"type":"s3","endpoint":"https://s3.example.com","bucket":"b","credentials":{"accessKeyId":"k","secretAccessKey":"s"}}}`

func pullBody(more string) string {
	return `{"name":"a","pull":{"source":"https://example.com/${new}.m3u8"}` + more + `}`
}

func importBody(more string) string {
	return `{"name":"a","url":"https://example.com/${new}.mp4"` + more + `}`
}

func webhookBody(more string) string {
	return `{"name":"a","url":"https://example.com/","events":["stream.started"]` + more + `}`
}

// thing is a resource of a tenant.
type thing struct {
	values map[string]string // what the parameters of paths, queries and bodies can name
	shown  string            // what shows that a response has it
	read   string            // where its owner reads it
}

// unknown returns values of the same form that name nothing.
func (it thing) unknown() map[string]string {
	other := map[string]string{}
	for _, value := range it.values {
		if other[value] != "" {
			continue
		}
		switch {
		case len(value) == 36:
			other[value] = weir.NewID()
		case len(value) == 16:
			other[value] = weir.NewPlaybackID(weir.NewID())
		case len(value) == 19:
			other[value] = weir.NewStreamKey(weir.NewID()).Reveal()
		case weir.IsArweaveID(value):
			other[value] = newTransaction()
		case weir.IsContentID(value):
			other[value] = newCID()
		default: // no id, like the name of an event
			other[value] = value
		}
	}
	values := map[string]string{}
	for name, value := range it.values {
		values[name] = other[value]
	}
	return values
}

// maker makes a resource of a tenant.
type maker func(w *world, of tenant) thing

func (as tenant) caller() *weir.Caller {
	return &weir.Caller{UserID: as.user, ProjectID: as.project, TokenName: as.name}
}

func (w *world) newStream(of tenant, n weir.NewStream, change func(*weir.Stream)) weir.Stream {
	w.Helper()
	s, err := n.Stream(of.caller(), time.Now())
	if err != nil {
		w.Fatal(err)
	}
	if change != nil {
		change(&s)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateStream(w.Context(), &s) })
	return s
}

func streamThing(s weir.Stream) thing {
	return thing{
		values: map[string]string{"id": s.ID, "parentId": s.ID, "streamId": s.ID, "playbackId": s.PlaybackID, "streamKey": s.StreamKey.Reveal()},
		shown:  s.ID, read: "/api/stream/" + s.ID,
	}
}

func stream(w *world, of tenant) thing {
	return streamThing(w.newStream(of, weir.NewStream{Name: "a", Record: true}, nil))
}

// under returns the thing under another name.
func (it thing) under(parameter, value string) thing {
	it.values = map[string]string{parameter: value}
	return it
}

func streamOfUser(w *world, of tenant) thing { return stream(w, of).under("userId", of.user) }

func streamAsAsset(w *world, of tenant) thing {
	it := stream(w, of)
	return it.under("assetId", it.shown)
}

func streamByPlaybackID(w *world, of tenant) thing {
	it := stream(w, of)
	return it.under("id", it.values["playbackId"])
}

func streamByKey(w *world, of tenant) thing {
	it := stream(w, of)
	return it.under("id", it.values["streamKey"])
}

func streamBySession(w *world, of tenant) thing {
	stream, session := w.newSession(of)
	return streamThing(stream).under("id", session.ID)
}

func pulledStream(w *world, of tenant) thing {
	source := "https://example.com/" + weir.NewID() + ".m3u8"
	it := streamThing(w.newStream(of, weir.NewStream{Name: "a", Pull: &weir.Pull{Source: source}}, nil))
	it.values["source"] = source
	return it
}

func targetOfStream(w *world, of tenant) thing {
	it := target(w, of)
	s := w.newStream(of, weir.NewStream{Name: "a"}, func(s *weir.Stream) {
		s.Multistream.Targets = []weir.TargetRef{{ID: it.shown, Profile: weir.SourceProfile}}
	})
	named := streamThing(s)
	named.values["targetId"] = it.shown
	return named
}

func (w *world) newSession(of tenant) (weir.Stream, weir.Session) {
	w.Helper()
	s, now := w.newStream(of, weir.NewStream{Name: "a", Record: true}, nil), weir.At(time.Now())
	session := weir.Session{
		ID: weir.NewID(), Kind: "session", Name: "a", ParentID: s.ID, UserID: of.user, ProjectID: of.project, PlaybackID: s.PlaybackID,
		CreatedAt: now, LastSeen: now, Profiles: s.Profiles,
	}
	w.write(func(tx *store.Tx) error { return tx.CreateSession(w.Context(), &session) })
	return s, session
}

func session(w *world, of tenant) thing {
	_, s := w.newSession(of)
	return thing{values: map[string]string{"id": s.ID, "parentId": s.ParentID}, shown: s.ID, read: "/api/session/" + s.ID}
}

func sessionOfStream(w *world, of tenant) thing {
	stream, session := w.newSession(of)
	it := streamThing(stream)
	it.shown = session.ID
	return it
}

func (w *world) newAsset(of tenant, source weir.AssetSource, change func(*weir.Asset)) weir.Asset {
	w.Helper()
	a := seededAsset(of.caller(), time.Now(), weir.NewID(), "a", source)
	if change != nil {
		change(&a)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateAsset(w.Context(), &a) })
	return a
}

func fromURL() weir.AssetSource {
	return weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/a.mp4"}
}

func assetThing(a weir.Asset) thing {
	return thing{values: map[string]string{"id": a.ID, "assetId": a.ID, "playbackId": a.PlaybackID}, shown: a.ID, read: "/api/asset/" + a.ID}
}

func asset(w *world, of tenant) thing {
	return assetThing(w.newAsset(of, fromURL(), nil))
}

// trackOfAsset is a track of text, and the asset that has it.
func trackOfAsset(w *world, of tenant) thing {
	var track weir.AssetTrack
	it := assetThing(w.newAsset(of, fromURL(), func(a *weir.Asset) {
		var err error
		if track, err = a.AddTrack(weir.NewAssetTrack{Type: weir.TextTrack, Language: "en"}, time.Now()); err != nil {
			w.Fatal(err)
		}
	}))
	it.values["trackId"], it.shown = track.ID, track.ID
	return it
}

func privateAsset(w *world, of tenant) thing {
	return assetThing(w.newAsset(of, fromURL(), func(a *weir.Asset) { a.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyJWT} }))
}

func deletedAsset(w *world, of tenant) thing {
	it := assetThing(w.newAsset(of, fromURL(), func(a *weir.Asset) { a.Delete(time.Now()) }))
	it.read = "" // nobody can
	return it
}

// newCID returns an address on IPFS.
func newCID() string {
	return "Qm" + strings.NewReplacer("0", "z", "-", "").Replace(weir.NewID() + weir.NewID())[:44]
}

// newContent makes an asset that is on IPFS.
func (w *world) newContent(of tenant) (weir.Asset, string) {
	cid := newCID()
	return w.newAsset(of, fromURL(), func(a *weir.Asset) {
		a.Storage = &weir.AssetStorage{IPFS: &weir.IPFSStorage{CID: cid}}
	}), cid
}

func assetByContentID(w *world, of tenant) thing {
	a, cid := w.newContent(of)
	it := assetThing(a).under("id", cid)
	it.shown = a.PlaybackID
	return it
}

// newTransaction returns the id of a transaction of Arweave.
func newTransaction() string { return strings.ReplaceAll(weir.NewID()+weir.NewID(), "-", "_")[:43] }

func assetByTransaction(w *world, of tenant) thing {
	id := newTransaction()
	a := w.newAsset(of, weir.AssetSource{Type: weir.SourceURL, URL: "ar://" + id}, nil)
	it := assetThing(a).under("id", id)
	it.shown = a.PlaybackID
	return it
}

// clipOf makes a clip; where says under which name its content is asked for.
func (w *world) clipOf(of tenant, source weir.AssetSource, where string) thing {
	source.Type = weir.SourceClip
	clip := w.newAsset(of, source, nil)
	return assetThing(clip).under("id", where)
}

func clipOfStream(w *world, of tenant) thing {
	s, session := w.newSession(of)
	return w.clipOf(of, weir.AssetSource{SessionID: session.ID, PlaybackID: s.PlaybackID}, s.ID)
}

func clipOfPlaybackID(w *world, of tenant) thing {
	s, session := w.newSession(of)
	return w.clipOf(of, weir.AssetSource{SessionID: session.ID, PlaybackID: s.PlaybackID}, s.PlaybackID)
}

func clipOfSession(w *world, of tenant) thing {
	s, session := w.newSession(of)
	return w.clipOf(of, weir.AssetSource{SessionID: session.ID, PlaybackID: s.PlaybackID}, session.ID)
}

func clipOfAsset(w *world, of tenant) thing {
	a := w.newAsset(of, fromURL(), nil)
	return w.clipOf(of, weir.AssetSource{AssetID: a.ID, PlaybackID: a.PlaybackID}, a.ID)
}

func clipOfAssetPlaybackID(w *world, of tenant) thing {
	a := w.newAsset(of, fromURL(), nil)
	return w.clipOf(of, weir.AssetSource{AssetID: a.ID, PlaybackID: a.PlaybackID}, a.PlaybackID)
}

func clipOfContent(w *world, of tenant) thing {
	a, cid := w.newContent(of)
	return w.clipOf(of, weir.AssetSource{AssetID: a.ID, PlaybackID: a.PlaybackID}, cid)
}

// clippableAsset is an asset of which there is something to clip.
func clippableAsset(w *world, of tenant) thing {
	it := asset(w, of)
	w.server.Clips.(clipTable)[weir.ClipSource{AssetID: it.shown}] = []weir.ClipRange{{Start: 0, End: 1000}}
	return it
}

// clipsOwn checks that only the owner clips content. A playback id is public, so others learn that it exists.
func (w *world) clipsOwn() {
	w.Helper()
	for _, owner := range w.tenants {
		for _, it := range []thing{clippableAsset(w, owner), stream(w, owner)} {
			body := fmt.Sprintf(`{"playbackId":%q,"startTime":0}`, it.values["playbackId"])
			for _, outsider := range w.outsiders(owner, false) {
				if got := w.send(outsider, w.method, w.path, body); got.status != http.StatusForbidden || !strings.Contains(got.body, "permission") {
					w.Errorf("%s gets %s for what is of %s, want 403", outsider.name, got, owner.name)
				}
			}
			if clips := w.send(owner, "GET", "/api/clip/"+it.shown, ""); clips.body != "[]" {
				w.Errorf("others clipped what is of %s: %s", owner.name, clips)
			}
		}
	}
}

// view is an asset that somebody watches now.
func view(w *world, of tenant) thing {
	a, now := w.newAsset(of, fromURL(), nil), weir.At(time.Now())
	w.write(func(tx *store.Tx) error {
		return tx.SaveViews(w.Context(), weir.View{
			ID: weir.NewID(), PlaybackID: a.PlaybackID, UserID: of.user, ProjectID: of.project, AssetID: a.ID, ViewerID: "viewer", StartedAt: now, LastSeen: now,
		})
	})
	it := assetThing(a)
	it.shown = a.PlaybackID
	return it
}

// newTask makes a task and the asset that it makes.
func (w *world) newTask(of tenant, failed bool) (weir.Asset, weir.Task) {
	now := time.Now()
	a := w.newAsset(of, fromURL(), func(a *weir.Asset) {
		if failed {
			a.Fail("no good", now)
		}
	})
	t := weir.Task{
		ID: weir.NewID(), Type: weir.TaskUpload, CreatedAt: weir.At(now), UserID: of.user, ProjectID: of.project, OutputAssetID: a.ID,
		Params: weir.TaskParams{Upload: &weir.UploadParams{URL: a.Source.URL}},
	}
	t.Queue(now)
	if failed {
		t.Fail("no good", now)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateTask(w.Context(), &t) })
	return a, t
}

func taskThing(t weir.Task) thing {
	return thing{values: map[string]string{"id": t.ID}, shown: t.ID, read: "/api/task/" + t.ID}
}

func task(w *world, of tenant) thing {
	_, t := w.newTask(of, false)
	return taskThing(t)
}

func ipfsUpload(w *world, of tenant) thing {
	u := uploaded(of.caller(), newCID(), weir.NewID(), time.Now())
	w.write(func(tx *store.Tx) error { return createUpload(w.Context(), tx, u) })
	return thing{values: map[string]string{"id": u.ID, "taskId": u.TaskID, "assetId": u.AssetID}, shown: u.ID, read: "/api/ipfs/upload/" + u.ID}
}

func failedTask(w *world, of tenant) thing {
	_, t := w.newTask(of, true)
	return taskThing(t)
}

func failedAsset(w *world, of tenant) thing {
	a, _ := w.newTask(of, true)
	return assetThing(a)
}

func target(w *world, of tenant) thing {
	t, err := weir.NewTarget{URL: "rtmp://example.com/app/key"}.Target(of.user, of.project, time.Now())
	if err != nil {
		w.Fatal(err)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateTarget(w.Context(), &t) })
	return thing{values: map[string]string{"id": t.ID, "targetId": t.ID}, shown: t.ID, read: "/api/multistream/target/" + t.ID}
}

func objectStore(w *world, of tenant) thing {
	o, err := weir.NewObjectStore{URL: "s3+https://key:secret@s3.example.com/bucket"}.ObjectStore(of.user, of.project, time.Now())
	if err != nil {
		w.Fatal(err)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateObjectStore(w.Context(), &o) })
	return thing{values: map[string]string{"id": o.ID}, shown: o.ID, read: "/api/object-store/" + o.ID}
}

func webhook(w *world, of tenant) thing {
	s := stream(w, of)
	hook, err := weir.WebhookBody{Name: "a", URL: "https://example.com/", Events: []weir.EventName{weir.StreamStarted}, StreamID: s.shown}.Webhook(of.caller(), time.Now())
	if err != nil {
		w.Fatal(err)
	}
	w.write(func(tx *store.Tx) error { return tx.CreateWebhook(w.Context(), &hook) })
	return thing{
		values: map[string]string{"id": hook.ID, "event": string(weir.StreamStarted), "streamId": s.shown},
		shown:  hook.ID, read: "/api/webhook/" + hook.ID,
	}
}

// delivery is an entry in the log of a webhook.
func delivery(w *world, of tenant) thing {
	it := webhook(w, of)
	entry := weir.WebhookLog{
		ID: weir.NewID(), WebhookID: it.shown, UserID: of.user, ProjectID: of.project, EventID: weir.NewID(), Event: weir.StreamStarted,
		CreatedAt: weir.At(time.Now()), Request: weir.WebhookRequest{Method: "POST", Headers: map[string]string{}},
	}
	w.write(func(tx *store.Tx) error { return tx.LogAttempt(w.Context(), entry) })
	it.values["logId"], it.shown = entry.ID, entry.ID
	return it
}

// signingKey makes a signing key for the time of the test: an account may have ten.
func signingKey(w *world, of tenant) thing {
	public, _, err := newKeyPair()
	if err != nil {
		w.Fatal(err)
	}
	key := weir.SigningKey{ID: weir.NewID(), Name: "a", UserID: of.user, ProjectID: of.project, CreatedAt: weir.At(time.Now()), PublicKey: public}
	w.write(func(tx *store.Tx) error { return tx.CreateSigningKey(w.Context(), &key) })
	w.Cleanup(func() {
		w.write(func(tx *store.Tx) error {
			_, err := tx.UpdateSigningKey(context.WithoutCancel(w.Context()), key.ID, func(k *weir.SigningKey) error {
				k.Deleted = true
				return nil
			})
			return err
		})
	})
	return thing{values: map[string]string{"id": key.ID, "publicKey": public}, shown: key.ID, read: "/api/access-control/signing-key/" + key.ID}
}

func user(_ *world, of tenant) thing {
	return thing{values: map[string]string{"id": of.user, "userId": of.user}, shown: of.user}
}

func token(w *world, of tenant) thing {
	t := weir.Token{ID: weir.NewID(), Kind: "api-token", UserID: of.user, ProjectID: of.project, CreatedAt: weir.At(time.Now())}
	w.write(func(tx *store.Tx) error { return tx.CreateToken(w.Context(), &t, weir.NewAPIKey()) })
	return thing{values: map[string]string{"id": t.ID}, shown: t.ID, read: "/api/api-token/" + t.ID}
}

func project(w *world, of tenant) thing {
	p := weir.Project{ID: weir.NewID(), Name: "another", UserID: of.user, CreatedAt: weir.At(time.Now())}
	w.write(func(tx *store.Tx) error { return tx.CreateProject(w.Context(), &p) })
	return thing{values: map[string]string{"id": p.ID}, shown: p.ID, read: "/api/project/" + p.ID}
}

// pullsOwn checks that a stream of another project with the same source is another stream.
func (w *world) pullsOwn(method, path string) {
	w.Helper()
	for _, owner := range w.tenants {
		it := pulledStream(w, owner)
		before := w.read(owner, it)
		body := fmt.Sprintf(`{"name":"b","pull":{"source":%q}}`, it.values["source"])
		for _, outsider := range w.outsiders(owner, false) {
			if got := w.send(outsider, method, path, body); got.status != http.StatusCreated || got.member("id") == it.shown {
				w.Errorf("%s gets %s for the source of %s, want a new stream", outsider.name, got, owner.name)
			}
		}
		if after := w.read(owner, it); after != before {
			w.Errorf("others changed the stream of %s from\n%s to\n%s", owner.name, before, after)
		}
		if got := w.send(owner, method, path, body); got.status != http.StatusOK || got.member("id") != it.shown {
			w.Errorf("%s gets %s, want its own stream", owner.name, got)
		}
	}
}

// importsOwn checks that a repeated import in another project makes another asset.
func (w *world) importsOwn() {
	w.Helper()
	for _, owner := range w.tenants {
		body := w.fill(importBody(``), nil)
		first := w.send(owner, w.method, w.path, body)
		for _, outsider := range w.outsiders(owner, false) {
			if got := w.send(outsider, w.method, w.path, body); got.status != http.StatusCreated || got.member("asset.id") == first.member("asset.id") {
				w.Errorf("%s gets %s for the source of %s, want a new asset", outsider.name, got, owner.name)
			}
		}
		if got := w.send(owner, w.method, w.path, body); got.status != http.StatusOK || got.member("asset.id") != first.member("asset.id") {
			w.Errorf("%s gets %s, want the asset of the first request", owner.name, got)
		}
	}
}

// showsOwnRecordings checks that only the owner gets the recordings of a stream.
func (w *world) showsOwnRecordings() {
	w.Helper()
	for _, owner := range w.tenants {
		path := "/api/playback/" + stream(w, owner).values["playbackId"] + "?recordings=true"
		for _, outsider := range w.outsiders(owner, false) {
			if got := w.send(outsider, "GET", path, ""); got.status != http.StatusUnauthorized {
				w.Errorf("%s gets %s for the recordings of %s, want 401", outsider.name, got, owner.name)
			}
		}
		if got := w.send(owner, "GET", path, ""); got.status != http.StatusOK || !strings.Contains(got.body, "dvrPlayback") {
			w.Errorf("%s gets %s for its own recordings", owner.name, got)
		}
	}
}

// gateWantsKeyOfProject checks that content is played with signing keys of its own project only.
func (w *world) gateWantsKeyOfProject() {
	w.Helper()
	for _, owner := range w.tenants {
		s := w.newStream(owner, weir.NewStream{Name: "a", PlaybackPolicy: &weir.PlaybackPolicy{Type: weir.PolicyJWT}}, nil)
		for _, signer := range w.tenants {
			body := fmt.Sprintf(`{"type":"jwt","stream":%q,"pub":%q}`, s.PlaybackID, signingKey(w, signer).values["publicKey"])
			want := reply{http.StatusNotFound, `{"errors":["Content not found"]}`}
			got := w.send(tenant{}, w.method, w.path, body)
			if signer == owner && got.status != http.StatusOK || signer != owner && got != want {
				w.Errorf("a token of %s for the stream of %s gets %s", signer.name, owner.name, got)
			}
		}
	}
}

// sendsOwnEvents checks that an event goes to the listeners of its project only.
func (w *world) sendsOwnEvents() {
	w.Helper()
	emit := func(of tenant) string {
		e := weir.Event{
			ID: weir.NewID(), CreatedAt: weir.At(time.Now()), Name: weir.AssetReadyEvent, UserID: of.user, ProjectID: of.project,
			Resource: "asset/1", Payload: []byte(`{"asset":{"id":"1"}}`),
		}
		w.write(func(tx *store.Tx) error { return tx.Emit(w.Context(), e) })
		return e.ID
	}
	for _, owner := range w.tenants {
		start, _, err := w.store.EventBounds(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		id := emit(owner)
		for _, as := range append(w.outsiders(owner, false), owner) {
			ctx, cancel := context.WithCancel(w.Context())
			// Events come in their order: with the last one, all are there.
			last := &listening{ResponseRecorder: httptest.NewRecorder(), last: emit(as), end: cancel}
			r := httptest.NewRequestWithContext(ctx, "GET", "http://weir.test/api/events?cursor="+strconv.FormatInt(start, 10), nil)
			w.server.ServeHTTP(last, w.as(as, r))
			if got := strings.Contains(last.Body.String(), id); got != (as == owner) {
				w.Errorf("%s hears of %s: %t", as.name, owner.name, got)
			}
		}
	}
}

// listening is the response to GET /events, which the client ends after an event.
type listening struct {
	*httptest.ResponseRecorder
	last string
	end  context.CancelFunc
}

func (l *listening) Write(b []byte) (int, error) {
	n, err := l.ResponseRecorder.Write(b)
	if strings.Contains(string(b), l.last) {
		l.end()
	}
	return n, err
}
