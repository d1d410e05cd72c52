package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// another is a second node on the database of a station, with the same stream.
func (s *testHub) another() *testHub {
	s.Helper()
	b := &testHub{T: s.T, database: s.database, dir: s.TempDir(), stream: s.stream}
	st, err := store.Open(s.Context(), s.database, storeOptions("there"))
	if err != nil {
		s.Fatal(err)
	}
	b.store = st
	if b.hub, err = New(s.Context(), Options{Store: st, Dir: b.dir, Node: "there", SessionTimeout: time.Minute, PartDuration: DefaultPart, Log: testLog(s.T)}); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := b.hub.stop(); err != nil {
			s.Error(err)
		}
		st.Close()
	})
	return b
}

// twoTestHubs are two nodes that carry a recorded stream in turn, and their one storage.
func twoTestHubs(t *testing.T) (a, b *testHub) {
	t.Helper()
	a = newTestHub(t, true)
	b = a.another()
	a.hub.o.Upload = disk(t)
	b.hub.o.Upload = a.hub.o.Upload
	return a, b
}

// ask is how periods are fetched from a station, over HTTP.
func (s *testHub) ask() func(ctx context.Context, node, path string) (io.ReadCloser, error) {
	const prefix = "/files/"
	web := httptest.NewServer(s.hub.Files(prefix))
	s.Cleanup(web.Close)
	return func(ctx context.Context, _, path string) (io.ReadCloser, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL+prefix+path, nil)
		if err != nil {
			return nil, err
		}
		response, err := web.Client().Do(r)
		if err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "gone")
		}
		if response.StatusCode == http.StatusOK {
			return response.Body, nil
		}
		_ = response.Body.Close()
		for _, kind := range []weir.Kind{weir.NotFound, weir.Busy} {
			if kind.Status() == response.StatusCode {
				return nil, weir.Errorf(kind, "%s", path)
			}
		}
		return nil, weir.Errorf(weir.Internal, "%d", response.StatusCode)
	}
}

// TestHandover has an encoder reconnect to another node and come back: it is one session, the numbers
// continue, and the files of both nodes become one recording.
func TestHandover(t *testing.T) {
	a := newTestHub(t, true)
	b := a.another()
	e := a.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	session := e.session.info.ID
	periods := Periods{Dir: b.dir, Node: "there", Media: disk(t), Ask: a.ask()}

	e2 := b.publish()
	if err := e2.send(5); err != nil {
		t.Fatal(err)
	}
	b.hub.beat(t.Context())
	continued := e2.session.info
	if continued.ID != session || len(continued.Earlier) != 1 || continued.Earlier[0].Node != "here" || continued.Earlier[0].SourceSegments != 2 {
		t.Fatalf("session %s continues as %+v", session, continued)
	}
	if _, err := periods.Folder(t.Context(), continued, 0); weir.KindOf(err) != weir.Busy {
		t.Errorf("the files of a period that is still written: error %v", err)
	}
	list := b.playlist(videoName, plain)
	if first := fmt.Sprintf("#EXT-X-MEDIA-SEQUENCE:%d\n", continued.Earlier[0].Next); strings.Count(list, "#EXT-X-GAP\n") != 16 || !strings.Contains(list, first) {
		t.Errorf("numbers that are left out are no gaps:\n%s", list)
	}
	if n := e2.session.lease.Sequence; n < 3+16 || !strings.Contains(list, "#EXT-X-DISCONTINUITY\n") || e2.session.renditions.video.base != n {
		t.Errorf("after segment 2 comes %d:\n%s", n, list)
	}
	waited, before := make(chan error, 1), a.broadcast()
	go func() {
		_, err := before.Playlist(t.Context(), videoName, Query{Segment: 3, Part: -1})
		waited <- err
	}()
	a.hub.beat(t.Context())
	if err := <-waited; !errors.Is(err, ErrHandedOver) {
		t.Errorf("a wait at the first node ends with %v", err)
	}
	if !a.broadcast().HandedOver() || strings.Contains(a.playlist(videoName, plain), "ENDLIST") {
		t.Error("the playlist of the first node has an end")
	}
	if err := e.send(1); err == nil {
		t.Error("the first node continues as well")
	}
	e.Close(false)

	e3 := a.publish()
	if err := e3.send(3); err != nil {
		t.Fatal(err)
	}
	if info := e3.session.info; info.ID != session || len(info.Earlier) != 2 || e3.session.lease.Sequence <= e2.session.lease.Sequence+2 || a.broadcast().HandedOver() {
		t.Errorf("the session comes back as %+v with %+v", info, e3.session.lease)
	}
	b.hub.beat(t.Context())
	a.hub.beat(t.Context())
	closed, err := a.store.Session(t.Context(), session)
	if err != nil || closed.SourceSegments < 2+2+1 {
		t.Errorf("%d segments were carried, error %v", closed.SourceSegments, err)
	}
	a.end()
	checkJoined(t, a, b, e3.session.info)
}

// checkJoined makes the recording of a session that was here, there, and here again.
func checkJoined(t *testing.T, a, b *testHub, session weir.Session) {
	t.Helper()
	periods := Periods{Dir: a.dir, Node: "here", Media: disk(t), Ask: b.ask()}
	var dirs []string
	for period := range session.Earlier {
		for range 2 {
			dir, err := periods.Folder(t.Context(), session, period)
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs[:period], dir)
		}
	}
	last, err := a.hub.Folder(session.Folder(2))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := media.KeepRecording(t.Context(), periods.Media, "asset/x", append(dirs, last)...)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.Presentation.Duration; got < 12.9 || got > 13.1 || kept.MP4Size == 0 {
		t.Errorf("13 seconds became %v, an MP4 file of %d bytes: %s", got, kept.MP4Size, kept.NoMP4)
	}
	track, err := media.Open(t.Context(), periods.Media, "asset/x/"+videoName)
	if err != nil {
		t.Fatal(err)
	}
	breaks, before := 0, int64(0)
	for _, s := range track.Index().Segments {
		if s.Discontinuity {
			breaks++
		}
		if s.Start() < before {
			t.Errorf("a segment begins at %d, the one before ends at %d", s.Start(), before)
		}
		before = s.End()
	}
	if breaks != 2 {
		t.Errorf("%d discontinuities", breaks)
	}
	for _, s := range []*testHub{a, b} {
		s.hub.closeEnded(time.Now().Add(2 * shownAfter))
		s.hub.sweep(t.Context())
		if left, _ := filepath.Glob(filepath.Join(s.dir, session.ID+"*")); len(left) == 0 {
			t.Error("files are deleted before there is an asset")
		}
	}
}

// TestHandoverShowsEarlierSegments has an encoder go on at other nodes: their playlists begin with
// what was carried before, which the storage has.
func TestHandoverShowsEarlierSegments(t *testing.T) {
	a, b := twoTestHubs(t)
	first := a.carry(7)
	second := b.carry(7)
	if first != 0 || b.stream.ID != a.stream.ID || second < 16 {
		t.Fatalf("the periods begin with %d and %d", first, second)
	}
	for _, name := range []string{videoName, audioName} {
		for what, list := range b.lists(name) {
			// Of 7 seconds there are 3 segments, and what there is of the fourth.
			segments, gaps, breaks := listed(list)
			want := []int64{first, first + 1, first + 2, second, second + 1, second + 2}
			if diff := cmp.Diff(want, segments); diff != "" || int64(gaps) != second-3 || !strings.Contains(list, "#EXT-X-MEDIA-SEQUENCE:0\n") {
				t.Errorf("%s, %s: %d gaps (-want +got):\n%s\n%s", name, what, gaps, diff, list)
			}
			if breaks != 1 || !strings.Contains(list, "#EXT-X-DISCONTINUITY\n#EXT-X-MAP") {
				t.Errorf("%s, %s: %d discontinuities:\n%s", name, what, breaks, list)
			}
		}
		b.hasOf(a, name, 1)
	}
	if _, ok := b.broadcast().Stored(videoName, second, -1); ok {
		t.Error("what this node carries is said to be of another")
	}
	if _, ok := b.broadcast().Stored(videoName, 5, -1); ok {
		t.Error("a gap is said to be stored")
	}

	third := a.carry(7)
	for what, list := range a.lists(videoName) {
		segments, _, breaks := listed(list)
		want := []int64{first, first + 1, first + 2, second, second + 1, second + 2, third, third + 1, third + 2}
		if diff := cmp.Diff(want, segments); diff != "" || breaks != 2 {
			t.Errorf("%s of three periods, with %d discontinuities (-want +got):\n%s\n%s", what, breaks, diff, list)
		}
	}
	a.hasOf(b, audioName, second+1)
	// When what was before is out of sight, all of its discontinuities are counted.
	if err := a.publish().send(70); err != nil {
		t.Fatal(err)
	}
	list := a.playlist(videoName, plain)
	segments, gaps, breaks := listed(list)
	_, total := a.broadcast().session.renditions.video.totals()
	counted, _, _ := strings.Cut(after(list, "#EXT-X-DISCONTINUITY-SEQUENCE:"), "\n")
	if gaps > 0 || segments[0] <= third || counted != fmt.Sprint(total-1-int64(breaks)) {
		t.Errorf("of %d discontinuities %s were before, and %d are in the list:\n%s", total-1, counted, breaks, list)
	}
}

// A node that is well lets go of its encoder and says how far it was, so no number is skipped.
func TestHandoverWithoutGaps(t *testing.T) {
	a, b := twoTestHubs(t)
	a.carry(7)
	b.hub.o.Release = func(ctx context.Context, node, _, streamID string) (weir.Numbers, error) {
		if node != a.hub.o.Node {
			t.Errorf("node %q is asked to let go of the stream", node)
		}
		numbers, err := a.hub.Release(ctx, streamID)
		a.upload()
		return numbers, err
	}
	encoder := a.broadcast().session.conn.publisher
	second := b.carry(7)
	if cause := encoder.err(); !errors.Is(cause, errTakenOver) {
		t.Errorf("the encoder of the first node ended with %v", cause)
	}
	for _, name := range []string{videoName, audioName} {
		for what, list := range b.lists(name) {
			segments, gaps, breaks := listed(list)
			if diff := cmp.Diff([]int64{0, 1, 2, 3, 4, 5, 6}, segments); diff != "" || second != 4 || gaps != 0 || breaks != 1 {
				t.Errorf("%s, %s: %d gaps, %d discontinuities (-want +got):\n%s\n%s", name, what, gaps, breaks, diff, list)
			}
		}
	}
	if _, err := a.hub.Release(t.Context(), "unknown"); weir.KindOf(err) != weir.NotFound {
		t.Errorf("a stream that is not here: %v", err)
	}

	// Once an encoder is connected, what the node said before does not count.
	b.hub.beat(t.Context())
	a.hub.o.Release = func(context.Context, string, string, string) (weir.Numbers, error) {
		return weir.Numbers{}, weir.Errorf(weir.Upstream, "gone")
	}
	if third := a.carry(3); third < second+16 {
		t.Errorf("the third period begins with %d; the second began with %d and its node did not answer", third, second)
	}
}

// A node that can't reach the store says how far it is all the same, and lets no encoder in before the store
// gives it the session again.
func TestHandoverWithoutStore(t *testing.T) {
	a, b := twoTestHubs(t)
	e := a.publish()
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	if err := e.send(20); err != nil { // ten segments, which the store does not know of
		t.Fatal(err)
	}
	session := e.session
	a.store.Close()
	b.hub.o.Release = func(ctx context.Context, _, _, streamID string) (weir.Numbers, error) {
		return a.hub.Release(ctx, streamID)
	}
	second := b.publish()
	if err := second.send(3); err != nil {
		t.Fatal(err)
	}
	next, _ := session.renditions.video.totals()
	if got := second.session.lease.Sequence; got != next || next < 14 {
		t.Errorf("the second node continues with %d, the first was at %d", got, next)
	}
	if err := session.connect(newPublisher(a.hub, a.stream, Source{Protocol: "test"}), testTracks(t), time.Now()); !errors.Is(err, ErrHandedOver) {
		t.Errorf("an encoder that returns without the store: %v", err)
	}
	session.renew(session.lease)
	if err := session.connect(newPublisher(a.hub, a.stream, Source{Protocol: "test"}), testTracks(t), time.Now()); err != nil {
		t.Errorf("an encoder that returns with the store: %v", err)
	}
}

// An encoder that was there all the time, and reconnects when the database is back, continues its session
// although that is over by what the database knows.
func TestReturnAfterOutage(t *testing.T) {
	a := newTestHub(t, true)
	e := a.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-10 * time.Minute)
	var lease store.OnAir
	a.write(func(tx *store.Tx) (err error) {
		_, lease, err = tx.GoOnAir(t.Context(), a.stream, time.Minute, long)
		return err
	})
	e.session.renew(lease)
	e.session.beatSaved(long)
	back := a.publish()
	if back.session != e.session {
		t.Errorf("session %s is followed by %s", e.session.info.ID, back.session.info.ID)
	}
}

// A node that can't report shows no numbers that another one may begin with, whatever its encoder does.
func TestNumbersAreBounded(t *testing.T) {
	a := newTestHub(t, false)
	a.hub.o.Release = func(context.Context, string, string, string) (weir.Numbers, error) {
		return weir.Numbers{}, weir.Errorf(weir.Upstream, "gone")
	}
	e := a.publish()
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	s, at := e.session, time.Now().Add(-20*time.Second)
	s.beatSaved(at)
	known := s.numbers.next
	if err := e.send(58); err != nil { // 29 segments, if they were of two seconds
		t.Fatal(err)
	}
	next, _ := s.renditions.video.totals()
	if bound := known + 8 + int64(time.Since(at)/(2*time.Second)); next > bound || next < known+8+10 {
		t.Errorf("the node that reported %d, and nothing for 20 seconds, has shown %d segments, want up to %d", known, next, bound)
	}
	if err := s.connect(newPublisher(a.hub, a.stream, Source{Protocol: "test"}), testTracks(t), at.Add(20*time.Second)); weir.KindOf(err) != weir.Busy {
		t.Errorf("an encoder that reconnects: %v, want that it is to try again", err)
	}
	a.hub.beat(t.Context())
	if err := e.send(6); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.renditions.video.totals(); after < next+2 {
		t.Errorf("%d segments after the next beat, %d before", after, next)
	}
}

// A node that lets go of its encoder finishes its last segment at that moment, so the next node may
// look for it before it is in the storage.
func TestHandoverAwaitsLastSegment(t *testing.T) {
	a, b := twoTestHubs(t)
	a.carry(7)
	storage := &countedLists{Store: b.hub.o.Upload}
	b.hub.o.Upload, b.hub.o.maxLoad = storage, time.Hour
	b.hub.o.Release = func(ctx context.Context, _, _, streamID string) (weir.Numbers, error) {
		return a.hub.Release(ctx, streamID)
	}
	if err := b.publish().send(3); err != nil {
		t.Fatal(err)
	}
	// The index and the journal of two tracks, at first and after the first segment.
	eventually(t, func() bool { return storage.lists.Load() >= 8 })
	a.upload()
	eventually(t, func() bool { return b.broadcast().Shows("") })
	for _, name := range []string{videoName, audioName} {
		for what, list := range b.lists(name) {
			if segments, gaps, _ := listed(list); gaps > 0 || len(segments) != 5 {
				t.Errorf("%s, %s: segments %d, %d gaps:\n%s", name, what, segments, gaps, list)
			}
		}
		b.hasOf(a, name, 3)
	}
}

// countedLists counts the lists of a storage.
type countedLists struct {
	blob.Store
	lists atomic.Int64
}

func (c *countedLists) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	defer c.lists.Add(1)
	return c.Store.List(ctx, prefix)
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

// The storage may get the last segment of a node that was killed only after the next node has looked.
// Then playlists keep the gap, and the recording has the segment.
func TestHandoverLateSegment(t *testing.T) {
	a, b := twoTestHubs(t)
	e := a.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	a.upload()
	if err := e.send(2); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	e2 := b.publish()
	if err := e2.send(3); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.broadcast().Shows("") })
	session, own := e2.session.info, e2.session.lease.Sequence
	session.LastSeen = weir.At(time.Now())
	periods := func() Periods { return Periods{Dir: t.TempDir(), Node: "there", Media: b.hub.o.Upload, Ask: gone} }
	waits, late := periods(), periods()
	if _, err := waits.Folder(t.Context(), session, 0); weir.KindOf(err) != weir.Upstream || !strings.Contains(err.Error(), "2 of 3 segments") {
		t.Errorf("a segment that was reported is missing: %v", err)
	}
	session.LastSeen = weir.At(time.Now().Add(-2 * missingTimeout))
	checkSegments(t, late, session, 2)

	a.upload()
	if err := e2.send(70); err != nil { // the other node is not in the last minute any more
		t.Fatal(err)
	}
	for n, want := range []bool{true, true, false} {
		if _, ok := b.broadcast().Stored(videoName, int64(n), -1); ok != want {
			t.Errorf("segment %d is stored: %v", n, ok)
		}
	}
	if segments, gaps, _ := listed(b.lists(videoName)["all"]); int64(gaps) != own-2 || !slices.Equal(segments[:3], []int64{0, 1, own}) {
		t.Errorf("the playlist has %d gaps and the segments %d", gaps, segments)
	}
	checkSegments(t, waits, session, 3)
	checkSegments(t, late, session, 2) // the recording may have been begun with these
}

// checkSegments looks how many segments the folder of the first period has.
func checkSegments(t *testing.T, periods Periods, session weir.Session, want int64) {
	t.Helper()
	dir, err := periods.Folder(t.Context(), session, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := media.Recover(filepath.Join(dir, videoName))
	if err != nil {
		t.Fatal(err)
	}
	if r.Next() != want {
		t.Errorf("the recording has %d segments of the first node, want %d", r.Next(), want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A node that does not know whether a session goes on uploads nothing: it would overwrite the asset.
func TestUploadEnds(t *testing.T) {
	a, b := twoTestHubs(t)
	e := a.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	uploads := func(what string, want bool) {
		t.Helper()
		if got := len(a.hub.uploadable(t.Context())) > 0; got != want {
			t.Errorf("%s: uploads %v, want %v", what, got, want)
		}
	}
	uploads("a new session", true)
	e.session.beatSaved(time.Now().Add(-weir.OnAirLease))
	uploads("the store was not told for long", false)
	a.hub.beat(t.Context())
	uploads("the store was told", true)
	b.carry(3)
	a.hub.beat(t.Context())
	uploads("another node has the session", true)
	b.end()
	uploads("it has ended", false)
}

// hls.js can get stuck where audio that is listed in parts begins at a discontinuity.
func TestHandoverShowsWholeSegments(t *testing.T) {
	a, b := twoTestHubs(t)
	first := a.carry(3)
	second := b.carry(3)
	for _, name := range []string{videoName, audioName} {
		list := b.playlist(name, Query{Low: true, Segment: -1})
		for _, n := range []int64{first, second} {
			if !strings.Contains(list, fmt.Sprintf("\n%d.m4s\n", n)) || strings.Contains(list, fmt.Sprintf(`URI="%d.0.m4s"`, n)) {
				t.Errorf("%s: segment %d is missing, or listed in parts:\n%s", name, n, list)
			}
		}
		if !strings.Contains(list, fmt.Sprintf(`URI="%d.0.m4s"`, second+1)) {
			t.Errorf("%s: the newest segment is not listed in parts:\n%s", name, list)
		}
	}
}

// A wait for a rendition of a session that has just come to a node ends when the rendition can be
// played, when it will not come, and when the session goes on elsewhere.
func TestAwaitShown(t *testing.T) {
	a, b := twoTestHubs(t)
	fresh := a.publish()
	if err := a.broadcast().AwaitShown(t.Context(), videoName); weir.KindOf(err) != weir.NotFound {
		t.Errorf("a session that began on this node: %v", err)
	}
	if err := fresh.send(3); err != nil {
		t.Fatal(err)
	}
	if err := a.broadcast().AwaitShown(t.Context(), videoName); err != nil {
		t.Errorf("a session with media: %v", err)
	}
	e := b.publish()
	waited, here := make(chan error, 1), b.broadcast()
	go func() { waited <- here.AwaitShown(t.Context(), videoName) }()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("a rendition that came: %v", err)
	}
	if err := here.AwaitShown(t.Context(), "240p"); weir.KindOf(err) != weir.NotFound {
		t.Errorf("a rendition that will not come: %v", err)
	}

	a.hub.beat(t.Context())
	back := &Broadcast{a.publish().session}
	go func() { waited <- back.AwaitShown(t.Context(), videoName) }()
	b.hub.beat(t.Context())
	last := &Broadcast{b.publish().session}
	a.hub.beat(t.Context())
	if err := <-waited; !errors.Is(err, ErrHandedOver) {
		t.Errorf("a session that went on elsewhere: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := last.AwaitShown(ctx, videoName); weir.KindOf(err) != weir.Busy || errors.Is(err, ErrHandedOver) {
		t.Errorf("a wait that ended: %v", err)
	}
}

// carry has an encoder come to a node and send so many seconds, all of which is in the storage
// then. It returns the number of its first segment.
func (s *testHub) carry(seconds float64) int64 {
	s.Helper()
	e := s.publish()
	if err := e.send(seconds); err != nil {
		s.Fatal(err)
	}
	wait.Until(s, "viewers see something", func() bool { return s.broadcast().Shows("") })
	s.hub.beat(s.Context())
	s.upload()
	return e.session.lease.Sequence
}

// upload writes all that is finished to the storage.
func (s *testHub) upload() {
	for _, one := range s.hub.uploadable(s.Context()) {
		one.uploads.uploadNew(s.Context(), &one.renditions)
	}
}

// lists returns the playlists of a rendition.
func (s *testHub) lists(name string) map[string]string {
	s.Helper()
	all, err := s.broadcast().WholePlaylist(name)
	if err != nil {
		s.Fatal(err)
	}
	return map[string]string{"last minute": s.playlist(name, plain), "all": string(all.Plain)}
}

// listed returns the numbers of the segments of a playlist, and how many gaps and
// discontinuities it has.
func listed(list string) (segments []int64, gaps, breaks int) {
	gap := false
	for line := range strings.Lines(list) {
		var n int64
		switch {
		case line == "#EXT-X-GAP\n":
			gap = true
			gaps++
		case line == "#EXT-X-DISCONTINUITY\n":
			breaks++
		case line[0] != '#':
			if _, err := fmt.Sscanf(line, "%d.m4s", &n); err == nil && !gap {
				segments = append(segments, n)
			}
			gap = false
		}
	}
	return segments, gaps, breaks
}

func after(text, what string) string {
	_, behind, _ := strings.Cut(text, what)
	return behind
}

// hasOf looks whether a node has a segment that another one carried as that has it.
func (s *testHub) hasOf(other *testHub, name string, n int64) {
	s.Helper()
	read := func(body io.ReadCloser, err error) string {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
		defer body.Close()
		data, err := io.ReadAll(body)
		if err != nil {
			s.Fatal(err)
		}
		return string(data)
	}
	r, err := other.broadcast().rendition(name)
	if err != nil {
		s.Fatal(err)
	}
	for part := -1; part < 3; part++ {
		at, ok := s.broadcast().Stored(name, n, part)
		if !ok {
			s.Fatalf("part %d of segment %d of %s is not stored", part, n, name)
		}
		open := func() (io.ReadSeekCloser, int64, error) { return r.recorder.Part(n-r.base, part) }
		if part < 0 {
			open = func() (io.ReadSeekCloser, int64, error) { return r.recorder.Open(n - r.base) }
		}
		own, _, err := open()
		want := read(own, err)
		stored, _, err := s.hub.o.Upload.Get(s.Context(), at.Key, at.Offset, at.Size)
		if got := read(stored, err); got != want || got == "" {
			s.Errorf("part %d of segment %d of %s has %d bytes, want %d", part, n, name, len(got), len(want))
		}
	}
	init, err := s.broadcast().Init(name, int(r.base))
	want, wantErr := r.recorder.Init(0)
	if err != nil || wantErr != nil || !bytes.Equal(init, want) {
		s.Errorf("the init segment of %s is another, errors %v, %v", name, err, wantErr)
	}
}

// TestFilesOnlyOfSessions asks for what is not a file of a session.
func TestFilesOnlyOfSessions(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	session := e.session.info
	s.end()
	e.Close(false)
	if err := os.WriteFile(filepath.Join(s.dir, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := s.ask()
	body, err := ask(t.Context(), "", session.ID+"/source/0.m4s")
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	for _, path := range []string{"none", session.ID + "/source/9.m4s", session.ID + "/source", session.ID + "/%2e%2e/secret", session.ID + "/source/..%2f..%2f..%2fsecret", "..%2f" + filepath.Base(s.dir)} {
		if body, err := ask(t.Context(), "", path); err == nil {
			_ = body.Close()
			t.Errorf("%s can be had", path)
		}
	}
}

// TestUpload records while the storage takes what is finished: a machine that is lost
// loses only the open segment.
func TestUpload(t *testing.T) {
	s := newTestHub(t, true)
	storage := disk(t)
	s.hub.o.Upload = storage
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		every(ctx, uploadEvery, func() { s.hub.uploadAll(ctx) })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	e := s.publish()
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	session := e.session.info
	session.Earlier, session.LastSeen = []weir.Period{{Node: "here", Next: 4}}, weir.At(time.Now())
	periods := Periods{Dir: t.TempDir(), Node: "there", Media: storage, Ask: gone}
	wait.NoError(t, func() error {
		dir, err := periods.Folder(t.Context(), session, 0)
		if err != nil {
			return err
		}
		r, err := media.Recover(filepath.Join(dir, videoName))
		if err == nil && r.Next() != 3 {
			err = fmt.Errorf("the storage has %d segments, want 3", r.Next())
		}
		return err
	})
}

// gone asks a node that does not answer.
func gone(context.Context, string, string) (io.ReadCloser, error) {
	return nil, weir.Errorf(weir.Upstream, "gone")
}

func disk(t *testing.T) blob.Store {
	t.Helper()
	d, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
