package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// testOrigin asks who carries a stream, and how that node is reached.
func testOrigin(t *testing.T, a, b *Store) {
	ctx := t.Context()
	stream := liveStream(t, a, false)
	carried := func(when string, want OriginNode) {
		t.Helper()
		got, err := b.OriginNodeOf(ctx, stream.PlaybackID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got):\n%s", when, err, diff)
		}
	}
	none := func(when string) {
		t.Helper()
		if got, err := b.OriginNodeOf(ctx, stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	none("before the start")
	session, air := goOnAir(t, a, stream, time.Now())
	carried("a node that can't be reached", OriginNode{Node: "node-a", SessionID: session.ID})
	const url = "http://10.0.0.1:8080"
	if err := a.AnnounceURL(ctx, url); err != nil {
		t.Fatal(err)
	}
	defer unregister(t, a)
	carried("on air", OriginNode{"node-a", url, session.ID})
	if err := a.register(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	carried("after a heartbeat", OriginNode{"node-a", url, session.ID})
	if got, err := b.NodeURL(ctx, "node-a"); err != nil || got != url {
		t.Errorf("NodeURL = %s, %v", got, err)
	}
	if got, err := b.NodeURL(ctx, "node-x"); weir.KindOf(err) != weir.NotFound {
		t.Errorf("NodeURL of an unknown node = %s, %v", got, err)
	}
	if _, err := closeSession(ctx, a, beatOf(air, time.Now(), 1), time.Now()); err != nil {
		t.Fatal(err)
	}
	carried("just over", OriginNode{Node: "node-a", URL: url})
	silence(t, b, stream.ID, time.Hour)
	none("long over")
}
