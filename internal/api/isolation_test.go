package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// The table of isolation: for every route of openapi.yaml, which resources it names, lists, refers
// to and makes, and that it keeps them in their project. TestIsolation plays every row with two
// accounts of two projects each, on both engines. A route without a row fails the test, as does a
// member of a body or a parameter of a query that is named like an id and that no row has.
//
//	named     The request names a resource. Callers of other projects get the response for an id that
//	          does not exist, 404 unless the row says otherwise, and it does not change. The owner
//	          succeeds. Administrators who logged in may read it.
//	listed    The response lists a resource: for its owner only, whatever the query asks for.
//	          Administrators have to ask for the rows of others.
//	refers    The body names another resource. A resource of another project is refused as one that
//	          does not exist, also for administrators: who may see it may still not name it.
//	made      The response is a new resource, of the caller's project: callers of other projects don't
//	          find it.
//	holds     Something else, which a function checks.
//
// with is the body and asking the query of the request; as says which member or parameter names the
// resource, if the path does not; on is the caller's own resource, where the path names one besides.
// inAccount says that a resource belongs to an account and not to a project: all its keys see it.
// refusedWith is the status for others, where the contract does not have 404.
var isolation = map[string]row{
	"POST /api/stream": {
		made("/api/stream/", "id").with(`{"name":"a"}`),
		refers(objectStore, "objectStoreId").with(`{"name":"a","objectStoreId":"${it}"}`),
		refers(webhook, "playbackPolicy.webhookId").with(`{"name":"a","playbackPolicy":{"type":"webhook","webhookId":"${it}"}}`),
		refers(target, "multistream.targets.id").with(`{"name":"a","multistream":{"targets":[{"profile":"source","id":"${it}"}]}}`),
		holds(func(w *world) { w.pullsOwn("POST", "/api/stream?autoStartPull=true") }),
	},
	"GET /api/stream":      {listed(stream)},
	"DELETE /api/stream":   {named(stream).as("ids").with(`{"ids":["${id}"]}`)},
	"GET /api/stream/{id}": {named(stream)},
	"PATCH /api/stream/{id}": {
		named(stream).with(`{"name":"b"}`),
		refers(webhook, "playbackPolicy.webhookId").on(stream).with(`{"playbackPolicy":{"type":"webhook","webhookId":"${it}"}}`),
		refers(target, "multistream.targets.id").on(stream).with(`{"multistream":{"targets":[{"profile":"source","id":"${it}"}]}}`),
	},
	"DELETE /api/stream/{id}":                        {named(stream)},
	"GET /api/stream/user/{userId}":                  {named(user).inAccount().refusedWith(403), listed(streamOfUser).byAdmins()},
	"GET /api/stream/playback/{playbackId}":          {named(stream)},
	"GET /api/stream/key/{streamKey}":                {named(stream)},
	"GET /api/stream/{id}/info":                      {named(stream), named(streamByPlaybackID), named(streamByKey), named(streamBySession)},
	"PATCH /api/stream/{id}/record":                  {named(stream).with(`{"record":false}`)},
	"PATCH /api/stream/{id}/suspended":               {named(stream).with(`{"suspended":true}`)},
	"DELETE /api/stream/{id}/terminate":              {named(stream)},
	"POST /api/stream/{id}/start-pull":               {named(pulledStream)},
	"GET /api/stream/{id}/health":                    {named(stream).withoutID()},
	"GET /api/stream/{id}/events":                    {named(stream).withoutID()},
	"GET /api/stream/{id}/sessions":                  {named(sessionOfStream)},
	"GET /api/stream/sessions/{parentId}":            {named(sessionOfStream)},
	"GET /api/stream/{id}/clips":                     {named(clipOfStream), listed(clipOfPlaybackID)},
	"DELETE /api/stream/{id}/multistream/{targetId}": {named(targetOfStream), refers(target, "").on(stream).refusedWith(204)},
	"POST /api/stream/{id}/create-multistream-target": {
		named(stream).with(`{"profile":"source","spec":{"url":"rtmp://example.com/app/key"}}`),
		refers(target, "id").on(stream).with(`{"profile":"source","id":"${it}"}`),
	},
	"PUT /api/stream/pull": {
		made("/api/stream/", "id").with(pullBody(``)),
		refers(objectStore, "objectStoreId").with(pullBody(`,"objectStoreId":"${it}"`)),
		refers(webhook, "playbackPolicy.webhookId").with(pullBody(`,"playbackPolicy":{"type":"webhook","webhookId":"${it}"}`)),
		refers(target, "multistream.targets.id").with(pullBody(`,"multistream":{"targets":[{"profile":"source","id":"${it}"}]}`)),
		holds(func(w *world) { w.pullsOwn("PUT", "/api/stream/pull") }),
	},

	"GET /api/session":            {listed(session), listed(session).as("parentId").asking("parentId=${parentId}")},
	"GET /api/session/{id}":       {named(session)},
	"GET /api/session/{id}/clips": {named(clipOfSession)},
	"POST /api/clip": {
		made("/api/asset/", "asset.id").on(clippableAsset).as("playbackId").with(`{"playbackId":"${playbackId}","startTime":0}`),
		made("/api/task/", "task.id").on(clippableAsset).with(`{"playbackId":"${playbackId}","startTime":0}`),
		refers(session, "sessionId").on(stream).with(`{"playbackId":"${playbackId}","sessionId":"${it}","startTime":0}`).answers(404),
		holds((*world).clipsOwn),
	},
	"GET /api/clip/{id}": {named(clipOfSession), named(clipOfStream), named(clipOfAsset), named(clipOfContent).notByAdmins(), listed(clipOfPlaybackID)},

	"GET /api/multistream/target":         {listed(target)},
	"POST /api/multistream/target":        {made("/api/multistream/target/", "id").with(`{"url":"rtmp://example.com/app/key"}`)},
	"GET /api/multistream/target/{id}":    {named(target)},
	"PATCH /api/multistream/target/{id}":  {named(target).with(`{"name":"b"}`)},
	"DELETE /api/multistream/target/{id}": {named(target)},

	"GET /api/webhook": {listed(webhook)},
	"POST /api/webhook": {
		made("/api/webhook/", "id").with(webhookBody(``)),
		refers(stream, "streamId").with(webhookBody(`,"streamId":"${it}"`)),
	},
	"DELETE /api/webhook":   {named(webhook).as("ids").with(`{"ids":["${id}"]}`)},
	"GET /api/webhook/{id}": {named(webhook)},
	"PUT /api/webhook/{id}": {
		named(webhook).with(webhookBody(``)),
		refers(stream, "streamId").on(webhook).with(webhookBody(`,"streamId":"${it}"`)),
	},
	"PATCH /api/webhook/{id}": {
		named(webhook).with(`{"name":"b"}`),
		refers(stream, "streamId").on(webhook).with(`{"streamId":"${it}"}`),
	},
	"DELETE /api/webhook/{id}":                  {named(webhook)},
	"GET /api/webhook/subscribed/{event}":       {listed(webhook), listed(webhook).as("streamId").asking("streamId=${streamId}")},
	"GET /api/webhook/{id}/log":                 {named(delivery).refusedWith(200)}, // an empty list, as the contract has it
	"GET /api/webhook/{id}/log/{logId}":         {named(delivery), refers(delivery, "").on(webhook).byAdmins().answers(400)},
	"POST /api/webhook/{id}/log/{logId}/resend": {named(delivery), refers(delivery, "").on(webhook).byAdmins().answers(400)},
	"POST /api/webhook/{id}/test":               {named(webhook)},
	"GET /api/events":                           {holds((*world).sendsOwnEvents)},

	"GET /api/access-control/signing-key":         {listed(signingKey)},
	"POST /api/access-control/signing-key":        {made("/api/access-control/signing-key/", "id").with(`{"name":"a"}`)},
	"GET /api/access-control/signing-key/{id}":    {named(signingKey)},
	"PATCH /api/access-control/signing-key/{id}":  {named(signingKey).with(`{"disabled":true}`)},
	"DELETE /api/access-control/signing-key/{id}": {named(signingKey)},
	"POST /api/access-control/gate":               {holds((*world).gateWantsKeyOfProject)},
	"GET /api/access-control/public-key":          public("the key is the same for all"),

	"GET /api/asset":      {listed(asset), listed(asset).as("playbackId").asking("playbackId=${playbackId}"), listed(deletedAsset).asking("phase=deleting")},
	"GET /api/asset/{id}": {named(asset)},
	"PATCH /api/asset/{id}": {
		named(asset).with(`{"name":"b"}`),
		refers(webhook, "playbackPolicy.webhookId").on(privateAsset).with(`{"playbackPolicy":{"type":"webhook","webhookId":"${it}"}}`),
	},
	"DELETE /api/asset/{id}":       {named(asset)},
	"POST /api/asset/{id}/restore": {named(deletedAsset)},
	"POST /api/asset/{id}/export":  {named(asset).with(`{"custom":{"url":"https://example.com/${new}"}}`), made("/api/task/", "task.id").on(asset).with(`{"custom":{"url":"https://example.com/${new}"}}`)},
	"POST /api/asset/{id}/retry":   {named(failedAsset)},
	"GET /api/asset/{id}/clips":    {named(clipOfAsset), listed(clipOfAssetPlaybackID)},
	"GET /api/asset/{id}/track":    {named(trackOfAsset)},
	"POST /api/asset/{id}/track": {
		named(asset).with(`{"type":"text","language":"en","text":"WEBVTT\n\n00:01.000 --> 00:02.000\na"}`).withoutID(),
	},
	"GET /api/asset/{id}/track/{trackId}":    {named(trackOfAsset), refers(trackOfAsset, "").on(asset).answers(404)},
	"PATCH /api/asset/{id}/track/{trackId}":  {named(trackOfAsset).with(`{"name":"b"}`), refers(trackOfAsset, "").on(asset).answers(404).with(`{"name":"b"}`)},
	"DELETE /api/asset/{id}/track/{trackId}": {named(trackOfAsset), refers(trackOfAsset, "").on(asset).answers(404)},
	"PUT /api/asset/{id}/track/{trackId}/file": {
		named(trackOfAsset).with("WEBVTT\n\n00:01.000 --> 00:02.000\na"),
		refers(trackOfAsset, "").on(asset).answers(404).with("WEBVTT\n\n00:01.000 --> 00:02.000\na"),
	},
	"POST /api/asset/upload/url": {
		made("/api/asset/", "asset.id").with(importBody(``)),
		made("/api/task/", "task.id").with(importBody(``)),
		refers(objectStore, "objectStoreId").with(importBody(`,"objectStoreId":"${it}"`)),
		refers(webhook, "playbackPolicy.webhookId").with(importBody(`,"playbackPolicy":{"type":"webhook","webhookId":"${it}"}`)),
		holds((*world).importsOwn),
	},
	"POST /api/asset/request-upload": {
		made("/api/asset/", "asset.id").with(`{"name":"a"}`),
		made("/api/task/", "task.id").with(`{"name":"a"}`),
		refers(objectStore, "objectStoreId").with(`{"name":"a","objectStoreId":"${it}"}`),
		refers(webhook, "playbackPolicy.webhookId").with(`{"name":"a","playbackPolicy":{"type":"webhook","webhookId":"${it}"}}`),
	},
	"PUT /api/asset/upload/direct":      public("the token in the URL is the credential, for one asset"),
	"POST /api/asset/upload/tus":        public("the token in the URL is the credential, for one asset"),
	"HEAD /api/asset/upload/tus/{id}":   public("the URL has a secret in it and is the credential"),
	"PATCH /api/asset/upload/tus/{id}":  public("the URL has a secret in it and is the credential"),
	"DELETE /api/asset/upload/tus/{id}": public("the URL has a secret in it and is the credential"),

	"GET /api/ipfs/upload": {
		listed(ipfsUpload), listed(ipfsUpload).as("taskId").asking("taskId=${taskId}"), listed(ipfsUpload).as("assetId").asking("assetId=${assetId}"),
	},
	"GET /api/ipfs/upload/{id}":    {named(ipfsUpload)},
	"DELETE /api/ipfs/upload/{id}": {named(ipfsUpload)},

	"POST /api/transcode": {
		made("/api/task/", "id").with(transcodeBody),
		refers(objectStore, "storage.objectStoreId").with(`{"input":{"url":"https://example.com/${new}.mp4"},"outputs":{"hls":{"path":"a"}},"storage":{"type":"object-store","objectStoreId":"${it}"}}`),
	},
	"GET /api/task":              {listed(task)},
	"GET /api/task/{id}":         {named(task)},
	"POST /api/task/{id}/retry":  {named(failedTask)},
	"POST /api/task/{id}/cancel": {named(task)},

	// Who has a playback id may ask how to play it. What the owner alone gets is held.
	"GET /api/playback/{id}": {named(assetByContentID).notByAdmins(), named(assetByTransaction).notByAdmins(), holds((*world).showsOwnRecordings)},

	"GET /api/object-store":         {listed(objectStore)},
	"POST /api/object-store":        {made("/api/object-store/", "id").with(`{"url":"s3+https://key:secret@s3.example.com/bucket"}`)},
	"GET /api/object-store/{id}":    {named(objectStore)},
	"PATCH /api/object-store/{id}":  {named(objectStore).with(`{"name":"b"}`)},
	"DELETE /api/object-store/{id}": {named(objectStore)},

	"POST /api/user":                      public("registers an account"),
	"POST /api/user/token":                public("logs in"),
	"POST /api/user/token/refresh":        public("the refresh token is the credential"),
	"POST /api/user/password/reset-token": public("answers the same to everybody"),
	"POST /api/user/password/reset":       public("the token of the link is the credential"),
	"GET /api/user":                       forAdmins(),
	"POST /api/user/{id}/restore":         forAdmins(),
	"POST /api/user/{id}/password-link":   forAdmins(),
	"PATCH /api/user/{id}":                forAdmins(),
	"DELETE /api/user/{id}":               forAdmins(),
	"PATCH /api/user/{id}/suspended":      forAdmins(),
	"PATCH /api/user/{id}/disabled":       forAdmins(),
	"GET /api/user/me":                    {listed(user).inAccount()},
	"GET /api/user/{id}":                  {named(user).inAccount().refusedWith(403)},
	"GET /api/user/quota":                 {named(user).as("userId").asking("userId=${id}").inAccount().refusedWith(403).withoutID()},
	"GET /api/user/usage":                 {named(user).as("userId").asking("fromTime=1&toTime=2&userId=${id}").inAccount().refusedWith(403).withoutID()},

	// People see the API keys and the projects of all their projects.
	"GET /api/api-token":         {listed(token).inAccount()},
	"POST /api/api-token":        {made("/api/api-token/", "id").with(`{"name":"a"}`).inAccount()},
	"GET /api/api-token/{id}":    {named(token).inAccount()},
	"PATCH /api/api-token/{id}":  {named(token).with(`{"name":"b"}`).inAccount()},
	"DELETE /api/api-token/{id}": {named(token).inAccount()},
	"GET /api/project":           {listed(project).inAccount()},
	"POST /api/project":          {made("/api/project/", "id").with(`{"name":"a"}`).inAccount()},
	"GET /api/project/{id}":      {named(project).inAccount()},
	"PATCH /api/project/{id}":    {named(project).with(`{"name":"b"}`).inAccount()},
	"DELETE /api/project/{id}":   {named(project).inAccount()},

	"GET /api/data/views/query": {
		listed(view).asking("breakdownBy[]=playbackId"),
		named(view).as("assetId").asking("assetId=${assetId}").withoutID(),
		named(view).as("playbackId").asking("playbackId=${playbackId}").withoutID(),
		named(stream).as("streamId").asking("streamId=${streamId}").withoutID(),
		named(assetByContentID).as("playbackId").asking("playbackId=${id}").withoutID().notByAdmins(),
		named(assetByTransaction).as("playbackId").asking("playbackId=${id}").withoutID().notByAdmins(),
	},
	"GET /api/data/views/query/creator": {
		named(view).as("assetId").asking("assetId=${assetId}").withoutID(),
		named(stream).as("streamId").asking("streamId=${streamId}").withoutID(),
	},
	"GET /api/data/views/now": {
		listed(view).asking("breakdownBy[]=playbackId"),
		named(view).as("assetId").asking("assetId=${assetId}").withoutID(),
		named(view).as("playbackId").asking("playbackId=${playbackId}").withoutID(),
		named(stream).as("streamId").asking("streamId=${streamId}").withoutID(),
	},
	"GET /api/data/views/{assetId}/total":          {named(view).withoutID(), named(streamAsAsset).withoutID()},
	"GET /api/data/views/query/total/{playbackId}": public("the number of views is public"),
	"GET /api/data/usage/query":                    {named(user).as("userId").asking("userId=${id}").inAccount().refusedWith(403).withoutID()},
	"GET /api/data/usage/query/total":              forAdmins(),
	"GET /api/data/usage/query/active":             forAdmins(),

	"GET /api/node":       forAdmins(),
	"GET /api/queue":      forAdmins(),
	"GET /api/queue/task": forAdmins(),

	"GET /api/ingest":        public("addresses of the service"),
	"GET /api/did":           public("the identity of the service"),
	"GET /api/c2pa/root.pem": public("the root of the certificate that signs media"),
	"GET /api/version":       public("the version of the service"),
	"GET /api/openapi.yaml":  public("the contract"),
	"GET /api/openapi.json":  public("the contract"),
}

// noReference are the members and parameters that are named like ids and name no resource of a
// project.
var noReference = map[string]string{
	"creatorId":           "a name of the caller's choice",
	"recordObjectStoreId": "accepted and ignored",
	"accessKeyId":         "a credential for the caller's own storage",
	"userId":              "every list is asked for the owner's rows by it; rows above name it where it is more than a filter",
	"projectId":           "the project that a person works in; that of another account is refused with the credential",
}

// row is what a route keeps apart.
type row []cell

// cell is one thing of a row.
type cell struct {
	kind    kind
	why     string // of a route without resources
	thing   maker  // the resource that must be kept apart
	member  string // what names it, if not the path: a member of the body or a parameter of the query
	own     maker  // the caller's own resource that the path names, where the body names another
	query   string // ${…} is a value of the resource, ${it} the id of what is referred to, ${new} a new id
	body    string
	read    string // where a new resource is read, followed by its id
	id      string // the member of the response that has the id of a new resource
	account bool   // see inAccount
	admins  bool   // administrators who logged in may see it
	blind   bool   // the owner's response does not show the id
	success int    // the status for the owner; 0 = any of success
	refusal int    // the status for others
	check   func(*world)
}

type kind string

func public(why string) row { return row{{kind: "public", why: why}} }
func forAdmins() row        { return row{{kind: "admins"}} }
func named(thing maker) cell {
	return cell{kind: "named", thing: thing, admins: true, refusal: http.StatusNotFound}
}

func listed(thing maker) cell {
	return cell{kind: "listed", thing: thing}
}

func refers(thing maker, member string) cell {
	return cell{kind: "refers", thing: thing, member: member}
}
func made(read, id string) cell         { return cell{kind: "made", read: read, id: id} }
func holds(check func(*world)) cell     { return cell{kind: "holds", check: check} }
func (c cell) with(body string) cell    { c.body = body; return c }
func (c cell) asking(query string) cell { c.query = query; return c }
func (c cell) as(member string) cell    { c.member = member; return c }
func (c cell) on(own maker) cell        { c.own = own; return c }
func (c cell) inAccount() cell          { c.account = true; return c }
func (c cell) notByAdmins() cell        { c.admins = false; return c }
func (c cell) withoutID() cell          { c.blind = true; return c }
func (c cell) byAdmins() cell           { c.admins = true; return c }
func (c cell) answers(status int) cell  { c.success = status; return c }
func (c cell) refusedWith(status int) cell {
	c.refusal = status
	return c
}

// TestIsolationIsComplete holds the table to openapi.yaml and routes.go.
func TestIsolationIsComplete(t *testing.T) {
	c := compiledContract(t)
	for _, operation := range c.Operations() {
		if len(isolation[operation]) == 0 {
			t.Errorf("%s has no row in the table of isolation: which resources does it name, list, refer to or make?", operation)
		}
	}
	routes := map[string]route{}
	for _, r := range (&server{contract: c}).table() {
		routes[r.method+" /api"+r.path] = r
	}
	references := references(t, c)
	for operation, row := range isolation {
		r, ok := routes[operation]
		if !ok {
			t.Errorf("the table of isolation has %s, which is no route", operation)
			continue
		}
		covered := map[string]bool{}
		for _, cell := range row {
			covered[cell.member] = true
			if cell.kind == "public" && r.who != everybody {
				t.Errorf("%s is not public: it needs a credential", operation)
			}
			if (cell.kind == "admins") != (r.who == admins) {
				t.Errorf("%s: the row says %q, routes.go says that only admins may use it: %t", operation, cell.kind, r.who == admins)
			}
		}
		for _, member := range references[operation] {
			if !covered[member] && noReference[last(member)] == "" {
				t.Errorf("%s has %s, which the table of isolation does not try: does it name a resource of a project?", operation, member)
			}
			delete(covered, member)
		}
		for member := range covered {
			if member != "" {
				t.Errorf("%s: the table of isolation has %s, which is not in openapi.yaml", operation, member)
			}
		}
	}
}

func last(member string) string { return member[strings.LastIndex(member, ".")+1:] }

// references returns the members of bodies and the parameters of queries that are named like ids, by
// operation. Members that are accepted and ignored (readOnly) are left out.
func references(t *testing.T, c *contract.Contract) map[string][]string {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(c.JSON(), &document); err != nil {
		t.Fatal(err)
	}
	resolve := func(value any) map[string]any {
		for {
			object, _ := value.(map[string]any)
			ref, ok := object["$ref"].(string)
			if !ok {
				return object
			}
			value = any(document)
			for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
				value = value.(map[string]any)[name]
			}
		}
	}
	isID := func(name string) bool {
		return name == "id" || name == "ids" || strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "Ids")
	}
	found := map[string][]string{}
	var walk func(operation, at string, schema map[string]any, depth int)
	walk = func(operation, at string, schema map[string]any, depth int) {
		if depth > 20 {
			t.Fatalf("%s: the schema is too deep at %s", operation, at)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, value := range properties {
			member := resolve(value)
			if member["readOnly"] == true {
				continue
			}
			place := strings.TrimPrefix(at+"."+name, ".")
			if isID(name) && !slices.Contains(found[operation], place) {
				found[operation] = append(found[operation], place)
			}
			walk(operation, place, member, depth+1)
		}
		walk1 := func(value any) {
			if value != nil {
				walk(operation, at, resolve(value), depth+1)
			}
		}
		walk1(schema["items"])
		for _, several := range []string{"oneOf", "anyOf", "allOf"} {
			forms, _ := schema[several].([]any)
			for _, form := range forms {
				walk1(form)
			}
		}
	}
	for path, value := range resolve(document["paths"]) {
		item := resolve(value)
		for method, value := range item {
			if method == "parameters" {
				continue
			}
			operation := strings.ToUpper(method) + " " + path
			details := resolve(value)
			shared, _ := item["parameters"].([]any)
			parameters, _ := details["parameters"].([]any)
			for _, value := range slices.Concat(shared, parameters) {
				parameter := resolve(value)
				if name := parameter["name"].(string); parameter["in"] == "query" && isID(name) {
					found[operation] = append(found[operation], name)
				}
			}
			content := resolve(resolve(details["requestBody"])["content"])
			walk(operation, "", resolve(resolve(content["application/json"])["schema"]), 0)
		}
	}
	return found
}

// TestIsolation plays the table.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for name, url := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, url(t))
			for _, operation := range slices.Sorted(maps.Keys(isolation)) {
				t.Run(operation, func(t *testing.T) {
					at := *w
					at.T = t
					at.method, at.path, _ = strings.Cut(operation, " ")
					at.who = w.whoMayUse(operation)
					if at.who == people {
						at.refusesKeys()
					}
					for _, cell := range isolation[operation] {
						at.play(cell)
					}
				})
			}
		})
	}
}

func (w *world) play(c cell) {
	w.Helper()
	switch c.kind {
	case "public":
	case "admins":
		w.refusesAllButAdmins()
	case "named":
		w.playNamed(c)
	case "listed":
		w.playListed(c)
	case "refers":
		w.playRefers(c)
	case "made":
		w.playMade(c)
	case "holds":
		c.check(w)
	}
}

// refusesKeys checks that no API key may use the route.
func (w *world) refusesKeys() {
	w.Helper()
	for _, as := range append(slices.Clone(w.tenants), w.root) {
		as.keyOnly = true
		got := w.send(as, w.method, parameter.ReplaceAllString(w.path, weir.NewID()), "")
		if got.status != http.StatusForbidden || !strings.Contains(got.body, "access forbidden for API keys") {
			w.Errorf("the key of %s gets %s, want 403", as.name, got)
		}
	}
}

// refusesAllButAdmins checks that neither keys nor other people may use the route.
func (w *world) refusesAllButAdmins() {
	w.Helper()
	admin := w.root
	admin.keyOnly = true
	callers := []tenant{admin}
	for _, as := range w.tenants {
		key := as
		key.keyOnly = true
		callers = append(callers, as, key)
	}
	for _, as := range callers {
		if got := w.send(as, w.method, parameter.ReplaceAllString(w.path, weir.NewID()), ""); got.status != http.StatusForbidden {
			w.Errorf("%s gets %s, want 403", as.name, got)
		}
	}
}

func (w *world) playNamed(c cell) {
	w.Helper()
	for _, owner := range w.tenants {
		thing := c.thing(w, owner)
		before := w.read(owner, thing)
		path, body := w.request(c, thing.values)
		for _, outsider := range w.outsiders(owner, c.account) {
			got := w.send(outsider, w.method, path, body)
			unknown := thing.unknown()
			otherPath, otherBody := w.request(c, unknown)
			want := w.send(outsider, w.method, otherPath, otherBody)
			w.sameReply(owner, outsider, got.without(thing.values), want.without(unknown), c.refusal)
			if got.status < 400 && strings.Contains(got.body, thing.shown) {
				w.Errorf("%s sees what is of %s: %s", outsider.name, owner.name, got)
			}
		}
		if after := w.read(owner, thing); after != before {
			w.Errorf("others changed what is of %s from\n%s to\n%s", owner.name, before, after)
		}
		if admin := w.root.loggedIn(); c.admins && w.method == http.MethodGet {
			if got := w.send(admin, w.method, path, body); got.status != http.StatusOK {
				w.Errorf("an admin who logged in gets %s, want 200", got)
			}
		}
		w.succeeds(c, owner, w.send(owner, w.method, path, body), thing.shown)
	}
}

func (w *world) playListed(c cell) {
	w.Helper()
	for _, owner := range w.tenants {
		thing := c.thing(w, owner)
		path, _ := w.request(c, thing.values)
		mark := "?"
		if c.query != "" {
			mark = "&"
		}
		path += mark + "limit=1000"
		filter := func(field, value string) string {
			return "&filters=" + url.QueryEscape(fmt.Sprintf(`[{"id":%q,"value":%q}]`, field, value))
		}
		for _, outsider := range w.outsiders(owner, c.account) {
			for _, more := range []string{
				"", "&all=1&allUsers=1", "&userId=" + owner.user, filter("id", thing.shown), filter("userId", owner.user), filter("projectId", owner.project),
			} {
				if got := w.send(outsider, w.method, path+more, ""); strings.Contains(got.body, thing.shown) {
					w.Errorf("%s sees in the list %s what is of %s: %s", outsider.name, path+more, owner.name, got)
				}
			}
		}
		if admin := w.root.loggedIn(); !c.admins {
			if got := w.send(admin, w.method, path, ""); strings.Contains(got.body, thing.shown) {
				w.Errorf("an admin who did not ask for it sees what is of %s: %s", owner.name, got)
			}
		}
		w.succeeds(c, owner, w.send(owner, w.method, path, ""), thing.shown)
	}
}

func (w *world) playRefers(c cell) {
	w.Helper()
	for _, owner := range w.tenants {
		thing := c.thing(w, owner)
		before := w.read(owner, thing)
		refer := func(as tenant, own, values map[string]string) reply {
			all := maps.Clone(values)
			all["it"] = values["id"]
			maps.Copy(all, own)
			path, body := w.request(c, all)
			return w.send(as, w.method, path, body)
		}
		outsiders := w.outsiders(owner, false)
		if !c.admins {
			outsiders = append(outsiders, w.root.loggedIn())
		}
		for _, outsider := range outsiders {
			own := w.own(c, outsider)
			unknown := thing.unknown()
			got, want := refer(outsider, own, thing.values), refer(outsider, own, unknown)
			w.sameReply(owner, outsider, got.without(thing.values), want.without(unknown), c.refusal)
		}
		if after := w.read(owner, thing); after != before {
			w.Errorf("others changed what is of %s from\n%s to\n%s", owner.name, before, after)
		}
		w.succeeds(c, owner, refer(owner, w.own(c, owner), thing.values), "")
	}
}

func (w *world) playMade(c cell) {
	w.Helper()
	for _, owner := range w.tenants {
		path, body := w.request(c, w.own(c, owner))
		made := w.send(owner, w.method, path, body)
		id := made.member(c.id)
		if made.status >= 300 || id == "" {
			w.Errorf("%s gets %s, want a new resource", owner.name, made)
			continue
		}
		for _, outsider := range w.outsiders(owner, c.account) {
			unknown := map[string]string{"id": weir.NewID()}
			got, want := w.send(outsider, "GET", c.read+id, ""), w.send(outsider, "GET", c.read+unknown["id"], "")
			w.sameReply(owner, outsider, got.without(map[string]string{"id": id}), want.without(unknown), http.StatusNotFound)
		}
		if got := w.send(owner, "GET", c.read+id, ""); got.status != http.StatusOK || !strings.Contains(got.body, id) {
			w.Errorf("%s does not find what it made: %s", owner.name, got)
		}
	}
}

// sameReply checks that a outsider gets the same response as for a resource that does not exist.
func (w *world) sameReply(owner, outsider tenant, got, want reply, status int) {
	w.Helper()
	if got != want {
		w.Errorf("%s gets %s for what is of %s, and %s for what does not exist", outsider.name, got, owner.name, want)
	}
	if status != 0 && got.status != status || status == 0 && (got.status < 400 || got.status > 499) {
		w.Errorf("%s gets %s for what is of %s, want it refused with %d", outsider.name, got, owner.name, status)
	}
}

// succeeds checks the response for the owner.
func (w *world) succeeds(c cell, owner tenant, got reply, shown string) {
	w.Helper()
	ok := got.status >= 200 && got.status < 300
	if c.success != 0 {
		ok = got.status == c.success
	}
	if !ok {
		w.Errorf("%s, who owns it, gets %s", owner.name, got)
	}
	if w.method == http.MethodGet && !c.blind && !strings.Contains(got.body, shown) {
		w.Errorf("%s, who owns %s, does not see it: %s", owner.name, shown, got)
	}
}
