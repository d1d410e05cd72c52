package store

import (
	"context"
	"database/sql"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"weir/internal/weir"
)

// downTo takes a database, which nobody has open, back to an earlier schema.
func downTo(t *testing.T, url string, version int64) {
	t.Helper()
	driver, source, dialect := "pgx", url, goose.DialectPostgres
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source, dialect = "sqlite", path, goose.DialectSQLite3
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(schema, "schema")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// TestProjectsOfTargetsAndObjectStores makes targets and object stores without a project, migrates
// them, and checks that each is in the project of those who name it, or in the default one.
func TestProjectsOfTargetsAndObjectStores(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		ctx, now := t.Context(), time.Now()
		st, err := Open(ctx, url, Options{Secret: testSecret})
		if err != nil {
			t.Fatal(err)
		}
		ann := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(now)}
		second := weir.Project{ID: weir.NewID(), Name: "second", UserID: ann.ID, CreatedAt: weir.At(now.Add(-time.Hour))}
		inTx(t, st, func(tx *Tx) error {
			if err := tx.CreateUser(ctx, &ann); err != nil {
				return err
			}
			return tx.CreateProject(ctx, &second)
		})
		const inDefault, inSecond = false, true
		project := map[bool]string{inDefault: ann.DefaultProjectID, inSecond: second.ID}
		newTarget := func() string {
			target, err := weir.NewTarget{URL: "rtmp://example.com/live/hunter2"}.Target(ann.ID, "", now)
			if err != nil {
				t.Fatal(err)
			}
			inTx(t, st, func(tx *Tx) error { return tx.CreateTarget(ctx, &target) })
			return target.ID
		}
		newObjectStore := func(deleted bool) string {
			o, err := weir.NewObjectStore{URL: "s3+https://key:hunter2@s3.example.com/bucket"}.ObjectStore(ann.ID, "", now)
			if err != nil {
				t.Fatal(err)
			}
			o.Deleted = deleted
			inTx(t, st, func(tx *Tx) error { return tx.CreateObjectStore(ctx, &o) })
			return o.ID
		}
		newStream := func(where bool, objectStore, webhook string, deleted bool, targets ...string) string {
			s, err := weir.NewStream{Name: "s", ObjectStoreID: objectStore}.Stream(&weir.Caller{UserID: ann.ID, ProjectID: project[where]}, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range targets {
				s.Multistream.Targets = append(s.Multistream.Targets, weir.TargetRef{ID: id, Profile: weir.SourceProfile})
			}
			if webhook != "" {
				s.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: webhook}
			}
			s.Deleted = deleted
			inTx(t, st, func(tx *Tx) error { return tx.CreateStream(ctx, &s) })
			return s.ID
		}
		newAsset := func(where bool, objectStore, webhook string, deleted bool) string {
			id := weir.NewID()
			a := weir.Asset{ID: id, PlaybackID: weir.NewPlaybackID(id), UserID: ann.ID, ProjectID: project[where], ObjectStoreID: objectStore, Deleted: deleted}
			if webhook != "" {
				a.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: webhook}
			}
			inTx(t, st, func(tx *Tx) error { return tx.CreateAsset(ctx, &a) })
			return id
		}
		hook := weir.Webhook{ID: weir.NewID(), UserID: ann.ID, ProjectID: second.ID, CreatedAt: weir.At(now)}
		inTx(t, st, func(tx *Tx) error { return tx.CreateWebhook(ctx, &hook) })

		targets := map[string]bool{} // id → which project it must be in
		unused, inOne, inBoth, ofDeleted := newTarget(), newTarget(), newTarget(), newTarget()
		targets[unused], targets[inOne], targets[inBoth], targets[ofDeleted] = inDefault, inSecond, inDefault, inDefault
		newStream(inSecond, "", "", false, inOne)
		crossing := newStream(inSecond, "", hook.ID, false, inOne, inBoth)
		newStream(inDefault, "", "", false, inBoth)
		newStream(inSecond, "", "", true, ofDeleted)
		newStream(inDefault, "", "", true, inOne)

		stores := map[string]bool{}
		byAsset, byStream, byBoth, byNobody, byDeleted, deleted := newObjectStore(false), newObjectStore(false), newObjectStore(false), newObjectStore(false), newObjectStore(false), newObjectStore(true)
		stores[byAsset], stores[byStream], stores[byBoth], stores[byNobody], stores[byDeleted], stores[deleted] =
			inSecond, inSecond, inDefault, inDefault, inDefault, inSecond
		newAsset(inSecond, byAsset, hook.ID, false)
		newAsset(inSecond, byAsset, "", false)
		newStream(inSecond, byStream, "", false)
		assetOfBoth, streamOfBoth := newAsset(inSecond, byBoth, "", false), newStream(inSecond, byBoth, "", false)
		newAsset(inDefault, byBoth, "", false)
		newAsset(inSecond, byDeleted, "", true)
		newStream(inSecond, byDeleted, "", true)
		newAsset(inSecond, deleted, "", false)
		asked := newAsset(inDefault, "", hook.ID, false)

		st.Close()
		downTo(t, url, 9)
		st = open(t, url, "")
		for id, where := range targets {
			got, err := st.Target(ctx, id)
			if err != nil || got.ProjectID != project[where] || got.URL.Reveal() != "rtmp://example.com/live/hunter2" {
				t.Errorf("target is in project %s, %v; want %s", got.ProjectID, err, project[where])
			}
		}
		for id, where := range stores {
			got, err := st.ObjectStore(ctx, id)
			if err != nil || got.ProjectID != project[where] || got.Deleted != (id == deleted) {
				t.Errorf("object store is in project %s (deleted: %t), %v; want %s", got.ProjectID, got.Deleted, err, project[where])
			}
		}
		listed, err := st.Targets(ctx, Query{UserID: ann.ID, ProjectID: second.ID})
		if err != nil || len(listed.Items) != 1 || listed.Items[0].ID != inOne {
			t.Errorf("targets of the second project: %+v, %v; want one", listed.Items, err)
		}

		want := []CrossReference{
			{"stream", crossing, "target", inBoth},
			{"asset", assetOfBoth, "object store", byBoth},
			{"stream", streamOfBoth, "object store", byBoth},
			{"asset", asked, "webhook", hook.ID},
		}
		slices.SortFunc(want, func(a, b CrossReference) int {
			return strings.Compare(a.From+" "+a.FromID+" "+a.To+" "+a.ToID, b.From+" "+b.FromID+" "+b.To+" "+b.ToID)
		})
		checkCrossReferences(ctx, t, st, want)
	})
}

func checkCrossReferences(ctx context.Context, t *testing.T, st *Store, want []CrossReference) {
	t.Helper()
	got, err := st.CrossReferences(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("references that cross projects (-want +got):\n%s", diff)
	}
	some, err := st.CrossReferences(ctx, 1)
	if err != nil || len(some) != 1 {
		t.Errorf("with a limit of one: %d references, %v", len(some), err)
	}
}
