package work

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob/s3test"
	"weir/internal/c2pa/c2patest"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// newSigningFixture returns a fixture whose nodes sign, and the root certificate.
func newSigningFixture(t *testing.T) (*fixture, []byte) {
	t.Helper()
	h := newFixture(t)
	signer, root := newSigner(t)
	h.signer = signer
	return h, root
}

// newSigner returns who signs in a test, and the root certificate.
func newSigner(t *testing.T) (*publish.Signer, []byte) {
	t.Helper()
	signer, root := c2patest.NewSigner(t)
	return &publish.Signer{C2PA: signer, Version: "1.2"}, root
}

func contents(t *testing.T, f *media.File) []byte {
	t.Helper()
	r := f.Reader(t.Context())
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// signed is what an asset says about where it comes from.
type signed struct {
	tracks *c2patest.Manifest
	files  map[string]*c2patest.Manifest // by rendition
}

// checkSigned verifies everything that can be played of an asset.
func (n *node) checkSigned(t *testing.T, a weir.Asset, root []byte) signed {
	t.Helper()
	prefix := media.AssetFolder(a.ID)
	p, err := media.LoadPresentation(t.Context(), n.Media, prefix)
	if err != nil {
		t.Fatal(err)
	}
	s, err := media.LoadSignature(t.Context(), n.Media, prefix, p)
	if err != nil || s == nil {
		t.Fatalf("signature %v, error %v", s, err)
	}
	if diff := cmp.Diff(&s.Provenance, a.C2PA); diff != "" || !a.C2PA.Signed || a.C2PA.ManifestID == "" {
		t.Errorf("the asset says about its signature (-want +got):\n%s", diff)
	}
	result := signed{files: map[string]*c2patest.Manifest{}}
	tracks := map[string]*media.Track{}
	for _, r := range slices.Concat(p.Renditions, p.Audio) {
		track, err := media.Open(t.Context(), n.Media, prefix+"/"+r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		tracks[r.Name] = track
		init, err := s.Init(track, 0)
		if err != nil {
			t.Fatal(err)
		}
		v := c2patest.VerifyInit(init, root)
		for i := range track.Index().Segments {
			file, err := s.Segment(track, r.Dir, i)
			if err != nil {
				t.Fatal(err)
			}
			data := contents(t, file)
			if _, _, err := v.Segment(fmt.Sprint(i), bytes.NewReader(data), int64(len(data))); err != nil {
				t.Fatal(err)
			}
		}
		report := v.Report()
		if report.State != c2patest.Trusted || report.Manifest.ID != a.C2PA.ManifestID {
			t.Fatalf("%s: %+v", r.Name, report)
		}
		result.tracks = report.Manifest
	}
	for _, f := range a.Files {
		if f.Type != "static_transcoded_mp4" {
			continue
		}
		name := f.Path[:len(f.Path)-len(".mp4")]
		all := []*media.Track{tracks[name]}
		for _, r := range p.Audio {
			if r.Name != name {
				all = append(all, tracks[r.Name])
			}
		}
		file, err := s.MP4(name, all)
		if err != nil {
			t.Fatal(err)
		}
		data := contents(t, file)
		report := c2patest.Verify(t, data, root)
		if report.State != c2patest.Trusted || f.Size != int64(len(data)) {
			t.Errorf("%s of %d bytes, not %d: %+v", f.Path, len(data), f.Size, report)
		}
		result.files[name] = report.Manifest
	}
	return result
}

// did returns the actions of a manifest.
func did(m *c2patest.Manifest) (actions []string) {
	for _, a := range m.Actions {
		actions = append(actions, a.Action)
	}
	return actions
}

// A signed asset has no address before it is signed. A source that is signed itself is kept as an
// ingredient.
func TestSignedAsset(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h, root := newSigningFixture(t)
	n := h.node(t, "a")
	caller := n.account(t, "ann")
	source := plainClip(t)
	for _, step := range []string{"plain", "signed"} {
		server := serve(t, source)
		creator := weir.CreatorID{Type: "unverified", Value: "alice"}
		asset, task := n.asset(t, caller, weir.NewAsset{
			Name: step + " film", URL: server.URL + "/clip.mp4", TargetSegmentSizeSecs: 2, C2PA: true, CreatorID: &creator,
			Profiles: &[]weir.Profile{{Name: "90p", Width: 160, Height: 90, Bitrate: 50_000}},
		})
		task = n.until(t, task.ID, phase(weir.TaskCompleted))
		ready, err := n.Store.Asset(t.Context(), asset.ID)
		if err != nil || ready.PlaybackURL == "" {
			t.Fatalf("asset %+v, error %v", ready, err)
		}
		if diff := cmp.Diff(ready.C2PA, task.Output.Upload.AssetSpec.C2PA); diff != "" {
			t.Errorf("the output of the task (-asset +task):\n%s", diff)
		}
		for _, e := range n.events(t, caller, "asset/"+asset.ID) {
			if a := snapshot(t, e); a.C2PA == nil && a.PlaybackURL != "" {
				t.Errorf("it has an address while it is %s and not signed", a.Status.Phase)
			}
		}
		says := n.checkSigned(t, ready, root)
		if diff := cmp.Diff([]string{"c2pa.opened", "c2pa.transcoded"}, did(says.tracks)); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
		want := map[string]string{"assetId": asset.ID, "creatorId": "alice", "sourceSha256": hexSum(source)}
		if diff := cmp.Diff(want, says.tracks.About); diff != "" || says.tracks.Title != asset.Name || says.tracks.Generator != "weir 1.2" {
			t.Errorf("%+v (-want +got):\n%s", says.tracks, diff)
		}
		want["profile"] = "90p"
		if m := says.files["90p"]; m == nil || !cmp.Equal(want, m.About) {
			t.Fatalf("the MP4 file says %+v", m)
		}
		for _, m := range []*c2patest.Manifest{says.tracks, says.files["90p"]} {
			if len(m.Ingredients) != 1 || m.Ingredients[0].Format != "video/mp4" || (m.Ingredients[0].Manifest != nil) != (step == "signed") {
				t.Errorf("%s: ingredients %+v", step, m.Ingredients)
			}
		}
		file, err := media.RecordingFile(t.Context(), n.Media, media.AssetFolder(asset.ID))
		if err != nil {
			t.Fatal(err)
		}
		source = contents(t, file)
	}
}

// Nothing is made if it can't be signed.
func TestNoSigner(t *testing.T) {
	h := newFixture(t)
	n := h.node(t, "a")
	server, caller := serve(t, made(t, short)), n.account(t, "ann")
	_, task := n.asset(t, caller, weir.NewAsset{Name: "film", URL: server.URL + "/clip.mp4", C2PA: true})
	task = n.until(t, task.ID, phase(weir.TaskFailed))
	if want := "c2pa: this server has no key to sign with"; task.Status.ErrorMessage != want {
		t.Errorf("the task failed with %q, want %q", task.Status.ErrorMessage, want)
	}
}

// A recording is signed before it can be played, and again with its renditions.
func TestSignedRecording(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h, root := newSigningFixture(t)
	c := newCutter(t, h)
	c.spec = &weir.RecordingSpec{Profiles: []weir.Profile{{Name: "tiny", Width: 160, Height: 90, Bitrate: 50_000}}}
	_, session, air := c.onAir(t)
	worktest.RecordFilm(t, filepath.Join(c.dir, session.ID))
	c.close(t, air, 4, 100)
	c.recorded(t, session.ID, weir.RecordingReady)
	c.ladderOf(t, session.ID)
	first := snapshotReady(t, c, session.ID)
	asset, err := c.Store.Asset(t.Context(), session.ID)
	if err != nil {
		t.Fatal(err)
	}
	if first == nil || !first.Signed || first.ManifestID == asset.C2PA.ManifestID {
		t.Errorf("signed by %+v, later %+v", first, asset.C2PA)
	}
	says := c.checkSigned(t, asset, root)
	if diff := cmp.Diff([]string{"c2pa.opened", "c2pa.transcoded"}, did(says.tracks)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c2pa.opened", "c2pa.repackaged"}, did(says.files["source"])); diff != "" {
		t.Errorf("actions of the file (-want +got):\n%s", diff)
	}
	wantStream(t, says.tracks, session, "RTMP")
	wantStream(t, says.files["source"], session, "RTMP")
	if asset.Size != signedSize(asset, "source.mp4") {
		t.Errorf("the size is %d, that of the file %d", asset.Size, signedSize(asset, "source.mp4"))
	}

	// A clip of it is signed too, with the recording as its ingredient.
	task := c.clip(t, weir.ClipParams{SessionID: session.ID, InputID: session.ID, C2PA: true}, 500, 3000)
	task = c.until(t, task.ID, phase(weir.TaskCompleted))
	c.ladderOf(t, task.OutputAssetID)
	clip, err := c.Store.Asset(t.Context(), task.OutputAssetID)
	if err != nil {
		t.Fatal(err)
	}
	says = c.checkSigned(t, clip, root)
	for _, m := range []*c2patest.Manifest{says.tracks, says.files["source"], says.files["tiny"]} {
		if diff := cmp.Diff([]string{"c2pa.opened", "c2pa.trimmed", "c2pa.transcoded"}, did(m)); diff != "" {
			t.Errorf("actions of the clip (-want +got):\n%s", diff)
		}
		if len(m.Ingredients) != 1 || m.Ingredients[0].Manifest == nil || m.Ingredients[0].Title != asset.Name ||
			m.Ingredients[0].Manifest.ID != asset.C2PA.ManifestID || len(m.Ingredients[0].Manifest.Problems) > 0 {
			t.Errorf("ingredients of the clip: %+v", m.Ingredients)
		}
	}
}

// wantStream checks that a manifest says of a session what weir knows: that it came, how and when.
func wantStream(t *testing.T, m *c2patest.Manifest, session weir.Session, by string) {
	t.Helper()
	began := session.CreatedAt.Time().UTC().Format(time.RFC3339)
	want := []c2patest.Ingredient{{Title: "show", Relationship: "parentOf", Description: "a live stream that weir received by " + by + " from " + began}}
	if diff := cmp.Diff(want, m.Ingredients); diff != "" {
		t.Errorf("the source (-want +got):\n%s", diff)
	}
	for i, a := range m.Actions {
		if a.SourceType != "" {
			t.Errorf("%s says that it was made by %s, which weir can't know", a.Action, a.SourceType)
		}
		if i == 0 && a.When != began {
			t.Errorf("%s at %s, want %s", a.Action, a.When, began)
		}
	}
}

func signedSize(a weir.Asset, path string) int64 {
	for _, f := range a.Files {
		if f.Path == path {
			return f.Size
		}
	}
	return -1
}

// snapshotReady returns who signed an asset when it became ready.
func snapshotReady(t *testing.T, c *cutter, id string) *weir.Provenance {
	t.Helper()
	for _, e := range c.events(t, c.caller, "asset/"+id) {
		if a := snapshot(t, e); a.Status.Phase == weir.AssetReady {
			return a.C2PA
		}
	}
	return nil
}

// A clip of a session on air says out of what it was cut, which is not signed yet.
func TestSignedClipOnAir(t *testing.T) {
	h, root := newSigningFixture(t)
	c := newCutter(t, h)
	_, session, air := c.onAir(t)
	c.beat(t, air, "whip")
	l := worktest.NewLive(t, filepath.Join(c.dir, session.ID), time.Now().Add(-20*time.Second))
	c.onAirs.Store(l)
	l.Send(4 * time.Second)
	task := c.clip(t, weir.ClipParams{SessionID: session.ID, C2PA: true}, l.Wall(500*time.Millisecond), l.Wall(3500*time.Millisecond))
	task = c.until(t, task.ID, phase(weir.TaskCompleted))
	a := c.checkClip(t, h, task, 30, 500*time.Millisecond)
	says := c.checkSigned(t, a, root)
	wantStream(t, says.tracks, session, "WHIP")
	c.ladderOf(t, a.ID) // it ends before the test does
	l.End()
}

// The copy of a signed asset in its owner's bucket is signed too.
func TestSignedObjectStore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h, root := newSigningFixture(t)
	n := h.node(t, "a")
	bucket, server, caller := s3test.Start(t), serve(t, plainClip(t)), n.account(t, "ann")
	o, err := weir.NewObjectStore{URL: bucket.URL()}.ObjectStore(caller.UserID, caller.ProjectID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.inTx(t, func(tx *store.Tx) error { return tx.CreateObjectStore(t.Context(), &o) })
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", URL: server.URL + "/clip.mp4", ObjectStoreID: o.ID, TargetSegmentSizeSecs: 2, C2PA: true})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	folder := filepath.Join(bucket.Dir, asset.PlaybackID)
	decodes(t, filepath.Join(folder, "index.m3u8"))
	files, err := filepath.Glob(filepath.Join(folder, "*.mp4"))
	if err != nil || len(files) == 0 {
		t.Fatalf("MP4 files: %v, %v", files, err)
	}
	for _, file := range files {
		if report := c2patest.Verify(t, read(t, file), root); report.State != c2patest.Trusted {
			t.Errorf("%s: %+v", file, report)
		}
	}
	inits, err := filepath.Glob(filepath.Join(folder, "*", "init.mp4"))
	if err != nil || len(inits) == 0 {
		t.Fatalf("init segments: %v, %v", inits, err)
	}
	for _, init := range inits {
		v := c2patest.VerifyInit(read(t, init), root)
		segment := read(t, filepath.Join(filepath.Dir(init), "0.m4s"))
		if _, ok, err := v.Segment("0", bytes.NewReader(segment), int64(len(segment))); !ok || err != nil || v.Report().State != c2patest.Trusted {
			t.Errorf("%s: %+v, error %v", init, v.Report(), err)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
