package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"weir/internal/store"
	"weir/internal/weir"
)

// clipTable has the ranges of what can be clipped.
type clipTable map[weir.ClipSource][]weir.ClipRange

func (c clipTable) Ranges(_ context.Context, of weir.ClipSource) ([]weir.ClipRange, error) {
	ranges, ok := c[of]
	if !ok {
		return nil, weir.ErrNotFound()
	}
	return ranges, nil
}

// aired is when the sessions of the tests began. Times of that year are not masked in golden files.
const aired = 1600000000000

// seedClips adds what can be clipped: of ann a stream on air, whose first seconds are not kept, with two earlier
// sessions, one without a recording and one whose recording is being made; the recording and the asset of seed;
// a gated stream on air, which a viewer may play with the token `admitted`; a failed asset, and one that waits.
// Bob has an asset, and as many clips in progress as he may have.
func (f *fixture) seedClips(t testing.TB) {
	t.Helper()
	ctx, now := t.Context(), time.UnixMilli(aired)
	ann := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"]}
	bob := &weir.Caller{UserID: f.vars["bob.id"], ProjectID: f.vars["bob.project"]}
	ranges := f.server.Clips.(clipTable)
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		for name, policy := range map[string]*weir.PlaybackPolicy{"air": nil, "gated": {Type: weir.PolicyJWT, WebhookContext: json.RawMessage(`{"secret":1}`)}} {
			stream, err := weir.NewStream{Name: name, PlaybackPolicy: policy, CreatorID: &weir.CreatorID{Type: "unverified", Value: "cleo"}}.Stream(ann, now)
			if err != nil {
				return err
			}
			if err := tx.CreateStream(ctx, &stream); err != nil {
				return err
			}
			for earlier, record := range map[string]bool{"unrecorded": false, "fresh": true} {
				s := weir.NewSession(&stream, now.Add(-time.Hour))
				s.Record, s.LastSeen, s.SourceBytes = record, weir.At(time.Now()), 1
				if err := tx.CreateSession(ctx, &s); err != nil {
					return err
				}
				f.vars[name+"."+earlier] = s.ID
			}
			session, _, err := tx.GoOnAir(ctx, stream, time.Minute, now)
			if err != nil {
				return err
			}
			f.vars[name], f.vars[name+".playback"], f.vars[name+".session"] = stream.ID, stream.PlaybackID, session.ID
			ranges[weir.ClipSource{SessionID: session.ID}] = []weir.ClipRange{{Start: aired + 10_000, End: aired + 30_000}, {Start: aired + 40_000, End: aired + 60_000}}
		}
		for name, phase := range map[string]weir.AssetPhase{"failed": weir.AssetFailed, "waiting": weir.AssetWaiting} {
			a := seededAsset(ann, now, weir.NewID(), name, weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/a.mp4"})
			a.Status.Phase = phase
			if err := tx.CreateAsset(ctx, &a); err != nil {
				return err
			}
			f.vars[name+".playback"] = a.PlaybackID
		}
		film := seededAsset(bob, now, weir.NewID(), "film", weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/a.mp4"})
		if err := tx.CreateAsset(ctx, &film); err != nil {
			return err
		}
		f.vars["bob.asset"], f.vars["bob.playback"] = film.ID, film.PlaybackID
		for range weir.MaxClips {
			if err := createClip(ctx, tx, weir.ClipOfAsset(&film, nil), weir.TaskRunning); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	recording, err := f.store.Asset(ctx, f.vars["session"])
	if err != nil {
		t.Fatal(err)
	}
	f.vars["recording.playback"] = recording.PlaybackID
	ranges[weir.ClipSource{AssetID: recording.ID}] = []weir.ClipRange{{Start: 0, End: 60_000}}
	ranges[weir.ClipSource{AssetID: recording.ID, SessionID: recording.ID}] = []weir.ClipRange{{Start: aired, End: aired + 30_000}, {Start: aired + 40_000, End: aired + 70_000}}
	ranges[weir.ClipSource{AssetID: f.vars["bob.asset"]}] = []weir.ClipRange{{Start: 0, End: 12_500}}
	ranges[weir.ClipSource{AssetID: f.vars["asset"]}] = []weir.ClipRange{{Start: 0, End: 12_500}}
	f.server.MayPlay = func(_ *http.Request, playbackID string, token weir.Secret) error {
		if playbackID == f.vars["gated.playback"] && token != "admitted" {
			return weir.Errorf(weir.Denied, "the URL is not valid; load the master playlist")
		}
		return nil
	}
}

// createClip writes a clip, as a request does, and the phase of its task.
func createClip(ctx context.Context, tx *store.Tx, of weir.ClipOf, phase weir.TaskPhase) error {
	asset, task := weir.NewClip{}.Clip(of, weir.ClipRange{Start: 0, End: 1000}, nil, time.Now())
	task.Status.Phase = phase
	if err := tx.CreateAsset(ctx, &asset); err != nil {
		return err
	}
	return tx.CreateTask(ctx, &task)
}

// openSeeded opens a fixture with accounts and content on an engine.
func openSeeded(t *testing.T, url string) *fixture {
	t.Helper()
	f := openFixture(t, url)
	t.Cleanup(f.store.Close)
	for _, name := range []string{"root", "ann", "bob"} {
		f.addUser(t, f.server.Accounts, name)
	}
	f.seed(t)
	return f
}

// Of many requests at once, an account gets as many clips as it may have, on both engines; those of the other
// account are not counted. A clip that has ended makes room.
func TestClipsAtOnce(t *testing.T) {
	t.Parallel()
	for name, url := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openSeeded(t, url(t))
			f.server.MaxPendingTasks = 0
			f.seedClips(t)
			send := func(at int, as string) int {
				body := fmt.Sprintf(`{"playbackId":%q,"startTime":0,"endTime":%d}`, f.vars["asset.playback"], 1000+at)
				r := httptest.NewRequest(http.MethodPost, "http://weir.test/api/clip", strings.NewReader(body))
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", at%250)
				r.Header.Set("Authorization", f.credential(as))
				w := httptest.NewRecorder()
				f.server.ServeHTTP(w, r)
				return w.Code
			}
			const requests = 4 * weir.MaxClips
			codes := make([]int, requests)
			var wait sync.WaitGroup
			for i := range requests {
				wait.Go(func() { codes[i] = send(i, "ann") })
			}
			wait.Wait()
			got := map[int]int{}
			for _, code := range codes {
				got[code]++
			}
			want := map[int]int{http.StatusOK: weir.MaxClips, http.StatusForbidden: requests - weir.MaxClips}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("responses (-want +got):\n%s", diff)
			}
			if code := send(1, "root-jwt"); code != http.StatusOK {
				t.Errorf("an admin gets %d, want 200", code)
			}
			f.endOneClip(t)
			f.endOneClip(t)
			if code := send(1, "ann"); code != http.StatusOK {
				t.Errorf("when a clip has ended: %d, want 200", code)
			}
			if code := send(1, "ann"); code != http.StatusForbidden {
				t.Errorf("the next clip: %d, want 403", code)
			}
		})
	}
}

// endOneClip ends a clip of ann's.
func (f *fixture) endOneClip(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		page, err := tx.Tasks(ctx, store.Query{
			UserID: f.vars["ann.id"], Where: []store.Filter{{ID: "type", Value: "clip"}, {ID: "phase", Value: "waiting"}}, Limit: 1,
		})
		if err != nil {
			return err
		}
		_, err = tx.UpdateTask(ctx, page.Items[0].ID, func(task *weir.Task) error {
			task.Complete(nil, nil, time.Now())
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A clip is written with its events.
func TestClipEvents(t *testing.T) {
	f := newFixture(t)
	f.seedClips(t)
	var after int64
	f.events(t, &after)
	f.call(t, "POST", "/api/clip", fmt.Sprintf(`{"playbackId":%q,"startTime":1000,"endTime":2000.5}`, f.vars["asset.playback"]), http.StatusOK)
	want := []string{"asset.created waiting", "task.spawned waiting"}
	if diff := cmp.Diff(want, f.events(t, &after)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A clip that failed can be tried again only while the account may have more of them.
func TestRetryClip(t *testing.T) {
	f := newFixture(t)
	f.seedClips(t)
	f.server.MaxPendingTasks = 0
	ctx := t.Context()
	clip := func() (asset, task string) {
		response := f.call(t, "POST", "/api/clip", fmt.Sprintf(`{"playbackId":%q,"startTime":1000}`, f.vars["asset.playback"]), http.StatusOK)
		return idOf(t, response, "asset"), idOf(t, response, "task")
	}
	asset, task := clip()
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		failed, err := tx.UpdateTask(ctx, task, func(t *weir.Task) error {
			t.Fail("no", time.Now())
			return nil
		})
		if err != nil {
			return err
		}
		return tx.FailResult(ctx, failed, "no", weir.NewEventBatch(weir.Base{}, time.Now()))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range weir.MaxClips {
		clip()
	}
	f.call(t, "POST", "/api/asset/"+asset+"/retry", "", http.StatusForbidden)
	f.call(t, "POST", "/api/task/"+task+"/retry", "", http.StatusForbidden)
	f.endOneClip(t)
	f.call(t, "POST", "/api/task/"+task+"/retry", "", http.StatusOK)
	if got := f.call(t, "GET", "/api/asset/"+asset, "", http.StatusOK)["status"].(map[string]any)["phase"]; got != "waiting" {
		t.Errorf("the asset is %v, want it to wait", got)
	}
}

// The clip of gated content is gated, and the one of a recording by the policy of the recording.
func TestClipPolicy(t *testing.T) {
	f := newFixture(t)
	f.seedClips(t)
	ctx := t.Context()
	policy := func(body string) any {
		response := f.call(t, "POST", "/api/clip", body, http.StatusOK)
		return response["asset"].(map[string]any)["playbackPolicy"]
	}
	want := map[string]any{"type": "jwt", "webhookContext": map[string]any{"secret": 1.0}}
	if diff := cmp.Diff(any(want), policy(fmt.Sprintf(`{"playbackId":%q,"startTime":%d}`, f.vars["gated.playback"], aired+10_000))); diff != "" {
		t.Errorf("a stream (-want +got):\n%s", diff)
	}
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(ctx, f.vars["session"], func(a *weir.Asset) error {
			a.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyJWT}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"stream.playback", "recording.playback"} {
		got := policy(fmt.Sprintf(`{"playbackId":%q,"startTime":%d,"endTime":%d}`, f.vars[id], aired+10_000, aired+20_000))
		if diff := cmp.Diff(any(map[string]any{"type": "jwt"}), got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", id, diff)
		}
	}
}

// The lists have the clips of a stream with many sessions, of its recordings, and of assets, page by page. What
// was cut stays when the content is deleted.
func TestClipLists(t *testing.T) {
	t.Parallel()
	for name, url := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openSeeded(t, url(t))
			l := f.seedLists(t)
			for where, want := range map[string][]string{
				"/api/stream/" + l.stream.ID + "/clips":           l.ofStream,
				"/api/stream/" + l.stream.PlaybackID + "/clips":   l.ofStream,
				"/api/clip/" + l.stream.ID:                        l.ofStream,
				"/api/clip/" + l.stream.PlaybackID:                l.ofStream,
				"/api/session/" + l.recording.ID + "/clips":       l.ofRecording,
				"/api/clip/" + l.recording.ID:                     l.ofRecording,
				"/api/clip/" + l.recording.PlaybackID:             l.ofRecording,
				"/api/asset/" + l.recording.ID + "/clips":         l.ofRecording,
				"/api/asset/" + l.recording.PlaybackID + "/clips": l.ofRecording,
				"/api/asset/" + l.film.ID + "/clips":              l.ofFilm,
				"/api/clip/" + l.film.PlaybackID:                  l.ofFilm,
				"/api/clip/" + f.vars["asset"]:                    {},
			} {
				if diff := cmp.Diff(want, f.pages(t, where+"?order=createdAt-false,id-false&limit=7")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", where, diff)
				}
			}
			f.call(t, "DELETE", "/api/stream/"+l.stream.ID, "", http.StatusNoContent)
			f.call(t, "DELETE", "/api/asset/"+l.recording.ID, "", http.StatusNoContent)
			f.call(t, "DELETE", "/api/asset/"+l.film.ID, "", http.StatusNoContent)
			for _, where := range []string{"/api/stream/" + l.stream.ID + "/clips", "/api/asset/" + l.film.ID + "/clips", "/api/clip/" + l.film.ID, "/api/clip/" + l.stream.PlaybackID} {
				f.call(t, "GET", where, "", http.StatusNotFound)
			}
			for _, id := range append(append([]string{}, l.ofStream...), l.ofFilm...) {
				if got := f.call(t, "GET", "/api/asset/"+id, "", http.StatusOK); got["status"].(map[string]any)["phase"] != "waiting" {
					t.Errorf("a clip of deleted content: %v", got)
				}
			}
		})
	}
}

// clipLists are the ids of clips by what they were cut from, the oldest first.
type clipLists struct {
	stream                        weir.Stream
	recording, film               weir.Asset
	ofStream, ofRecording, ofFilm []string
}

// seedLists makes a stream of ann's with 25 sessions, each with clips, the last one with clips of its recording
// by the ids of both, and clips of an asset.
func (f *fixture) seedLists(t *testing.T) (l clipLists) {
	t.Helper()
	ctx, now := t.Context(), time.UnixMilli(aired)
	ann := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"]}
	var err error
	if l.stream, err = (weir.NewStream{Name: "many"}).Stream(ann, now); err != nil {
		t.Fatal(err)
	}
	err = f.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateStream(ctx, &l.stream); err != nil {
			return err
		}
		at := now
		clip := func(of weir.ClipOf, lists ...*[]string) error {
			at = at.Add(time.Second)
			asset, task := weir.NewClip{}.Clip(of, weir.ClipRange{Start: 0, End: 1000}, ann, at)
			for _, list := range lists {
				*list = append(*list, asset.ID)
			}
			if err := tx.CreateAsset(ctx, &asset); err != nil {
				return err
			}
			return tx.CreateTask(ctx, &task)
		}
		var session weir.Session
		for range 25 {
			session = weir.NewSession(&l.stream, at)
			if err := tx.CreateSession(ctx, &session); err != nil {
				return err
			}
			if err := clip(weir.ClipOfSession(&l.stream, &session, nil), &l.ofStream); err != nil {
				return err
			}
		}
		l.ofRecording = append(l.ofRecording, l.ofStream[len(l.ofStream)-1])
		l.recording = seededAsset(ann, now, session.ID, "recording", weir.AssetSource{Type: weir.SourceRecording, SessionID: session.ID})
		l.film = seededAsset(ann, now, weir.NewID(), "film", weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/film.mp4"})
		for _, a := range []*weir.Asset{&l.recording, &l.film} {
			if err := tx.CreateAsset(ctx, a); err != nil {
				return err
			}
		}
		if err := clip(weir.ClipOfSession(&l.stream, &session, &l.recording), &l.ofStream, &l.ofRecording); err != nil {
			return err
		}
		if err := clip(weir.ClipOfAsset(&l.recording, &session), &l.ofStream, &l.ofRecording); err != nil {
			return err
		}
		for range 3 {
			if err := clip(weir.ClipOfAsset(&l.film, nil), &l.ofFilm); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pages returns the ids of all pages of a list, which must be as openapi.yaml says.
func (f *fixture) pages(t *testing.T, path string) []string {
	t.Helper()
	ids := []string{}
	for path != "" {
		r := httptest.NewRequest(http.MethodGet, "http://weir.test"+path, nil)
		r.Header.Set("Authorization", f.credential("ann"))
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		var page []struct {
			ID     string
			Source map[string]string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s answers %d %s", path, w.Code, w.Body)
		}
		for _, clip := range page {
			ids = append(ids, clip.ID)
			if clip.Source["type"] != "clip" || clip.Source["playbackId"] == "" || len(clip.Source) != 3 || clip.Source["sessionId"]+clip.Source["assetId"] == "" {
				t.Errorf("the source of a clip is %v, want type, playbackId, and sessionId or assetId", clip.Source)
			}
		}
		link, _, _ := strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<http://weir.test"), ">")
		path = link
	}
	return ids
}

// The clips of viewers have bounds of their own, and take no place of the owner's.
func TestClipsOfViewers(t *testing.T) {
	t.Parallel()
	for name, url := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openSeeded(t, url(t))
			f.server.MaxPendingTasks, f.server.PublicClips = weir.MaxClips, true
			f.seedClips(t)
			const all, ofOne = 20, 2 // as the manual has it
			send := func(as, playbackID, address string) int {
				body := fmt.Sprintf(`{"playbackId":%q,"startTime":0,"endTime":1000}`, f.vars[playbackID])
				r := httptest.NewRequest(http.MethodPost, "http://weir.test/api/clip", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.RemoteAddr = address + ":1"
				r.Header.Set("Authorization", f.credential(as))
				w := httptest.NewRecorder()
				f.server.ServeHTTP(w, r)
				f.check(t, 0, r, w)
				return w.Code
			}
			got := map[int]int{}
			var mu sync.Mutex
			var together errgroup.Group
			together.SetLimit(4) // as many as the database has connections: more could be told to wait
			for i := range 4 * all {
				together.Go(func() error {
					code := send("anon", "asset.playback", fmt.Sprintf("192.0.2.%d", i/(2*ofOne)))
					mu.Lock()
					defer mu.Unlock()
					got[code]++
					return nil
				})
			}
			_ = together.Wait()
			want := map[int]int{http.StatusOK: all, http.StatusTooManyRequests: 3 * all}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("clips of viewers (-want +got):\n%s", diff)
			}
			if code := send("anon", "recording.playback", "192.0.2.0"); code != http.StatusOK {
				t.Errorf("the clip of a viewer of other content: %d", code)
			}
			for i := range weir.MaxClips {
				if code := send("ann", "asset.playback", "192.0.2.0"); code != http.StatusOK {
					t.Errorf("clip %d of the owner beside those of viewers: %d", i, code)
				}
			}
			if code := send("ann", "asset.playback", "192.0.2.0"); code != http.StatusForbidden {
				t.Errorf("one clip more of the owner: %d", code)
			}
		})
	}
}

// The bounds of the owner count for the clips of viewers, who learn nothing about them.
func TestClipOfViewer(t *testing.T) {
	f := newFixture(t)
	f.seedClips(t)
	f.server.PublicClips = true
	ctx := t.Context()
	send := func(playbackID, address string) string {
		body := fmt.Sprintf(`{"playbackId":%q,"startTime":0,"endTime":1000}`, playbackID)
		r := httptest.NewRequest(http.MethodPost, "http://weir.test/api/clip", strings.NewReader(body))
		r.RemoteAddr = address + ":1"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		return fmt.Sprintf("%d %s", w.Code, w.Body)
	}
	asset := f.vars["asset.playback"]
	if got := send(f.vars["bob.playback"], "192.0.2.1"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("of somebody with five clips in progress: %s", got)
	}
	if got := send(asset, "192.0.2.2"); !strings.HasPrefix(got, "200 ") || strings.Contains(got, f.vars["ann.id"]) {
		t.Errorf("a clip: %s", got)
	}
	for range f.server.MaxPendingTasks {
		f.call(t, "POST", "/api/clip", fmt.Sprintf(`{"playbackId":%q,"startTime":0,"endTime":1000}`, asset), http.StatusOK)
	}
	const full = `403 {"errors":["the owner of this content has reached a limit of clips or tasks; try again later"]}`
	if got := send(asset, "192.0.2.2"); got != full {
		t.Errorf("with as many tasks as may wait: %s, want %s", got, full)
	}
	f.server.MaxPendingTasks = 0
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, f.vars["ann.id"], func(u *weir.User) error {
			u.SetQuota(weir.Quota{weir.Storage: new(int64(1))})
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.ReserveStorage(ctx, f.vars["asset"], 1) }); err != nil {
		t.Fatal(err)
	}
	if got := send(asset, "192.0.2.2"); got != full {
		t.Errorf("without storage: %s, want %s", got, full)
	}
	_, _ = send(asset, "192.0.2.2"), send(asset, "192.0.2.2")
	if got, want := send(asset, "192.0.2.2"), "429 "; !strings.HasPrefix(got, want) {
		t.Errorf("the sixth of an address: %s, want %s", got, want)
	}
	if got := send(asset, "192.0.2.3"); got != full {
		t.Errorf("another address: %s, want %s", got, full)
	}
}

// A page of another origin can't let its readers make clips.
func TestClipOfForeignPage(t *testing.T) {
	f := newFixture(t)
	f.seedClips(t)
	f.server.PublicClips = true
	f.server.limits.clips.AtOnce = 1000
	body := fmt.Sprintf(`{"playbackId":%q,"startTime":0,"endTime":1000}`, f.vars["asset.playback"])
	const json, here = "application/json", "http://weir.test"
	for i, tt := range []struct {
		as      string
		headers []string // pairs
		want    int
	}{
		{"anon", []string{"Content-Type", json}, http.StatusOK}, // a program
		{"anon", []string{"Content-Type", json + "; charset=utf-8", "Origin", here, "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{"anon", []string{"Content-Type", json, "Origin", here}, http.StatusOK}, // an old browser
		{"anon", []string{"Content-Type", json, "Origin", "https://proxied.example", "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{"anon", []string{"Content-Type", json, "Origin", "https://other.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"anon", []string{"Content-Type", json, "Origin", "http://other.weir.test", "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"anon", []string{"Content-Type", json, "Origin", "https://other.example"}, http.StatusForbidden},
		{"anon", []string{"Content-Type", json, "Origin", "null", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"anon", []string{"Content-Type", json, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"anon", []string{"Content-Type", "text/plain", "Origin", "https://other.example", "Sec-Fetch-Site", "cross-site"}, http.StatusUnsupportedMediaType},
		{"anon", []string{"Content-Type", "text/plain", "Origin", here, "Sec-Fetch-Site", "same-origin"}, http.StatusUnsupportedMediaType},
		{"anon", []string{"Content-Type", "text/plain; application/json"}, http.StatusUnsupportedMediaType},
		{"anon", nil, http.StatusUnsupportedMediaType},
		{"ann", []string{"Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site"}, http.StatusOK}, // the key decides
	} {
		r := httptest.NewRequest(http.MethodPost, here+"/api/clip", strings.NewReader(body))
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
		for k := 0; k < len(tt.headers); k += 2 {
			r.Header.Set(tt.headers[k], tt.headers[k+1])
		}
		r.Header.Set("Authorization", f.credential(tt.as))
		f.server.MaxPendingTasks = 0
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		if w.Code != tt.want {
			t.Errorf("%s with %q: %d %s, want %d", tt.as, tt.headers, w.Code, w.Body, tt.want)
		}
	}
}
