package live

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// another is a second node on the database of a station, with the same stream.
func (s *station) another() *station {
	s.Helper()
	b := &station{T: s.T, path: s.path, dir: s.TempDir(), stream: s.stream}
	st, err := store.Open(s.Context(), "sqlite:"+s.path, store.Options{Secret: make3(), NodeID: "there"})
	if err != nil {
		s.Fatal(err)
	}
	b.store = st
	if b.hub, err = New(s.Context(), Options{Store: st, Dir: b.dir, Node: "there", SessionTimeout: time.Minute, Log: testLog(s.T)}); err != nil {
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

func make3() []byte { return slices.Repeat([]byte{3}, 32) }

// ask is how legs are fetched from a station, over HTTP.
func (s *station) ask() func(ctx context.Context, node, path string) (io.ReadCloser, error) {
	const prefix = "/files/"
	web := httptest.NewServer(s.hub.Files(prefix))
	s.Cleanup(web.Close)
	return func(ctx context.Context, _, path string) (io.ReadCloser, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL+prefix+path, nil)
		if err != nil {
			return nil, err
		}
		answer, err := web.Client().Do(r)
		if err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "gone")
		}
		if answer.StatusCode == http.StatusOK {
			return answer.Body, nil
		}
		_ = answer.Body.Close()
		for _, kind := range []weir.Kind{weir.NotFound, weir.Busy} {
			if kind.Status() == answer.StatusCode {
				return nil, weir.Errorf(kind, "%s", path)
			}
		}
		return nil, weir.Errorf(weir.Internal, "%d", answer.StatusCode)
	}
}

// TestMove has an encoder go on at another node and come back: it is one session, the
// numbers go on, and what each node recorded becomes one recording.
func TestMove(t *testing.T) {
	a := newStation(t, true)
	b := a.another()
	e := a.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	session := e.session.info.ID
	legs := Legs{Dir: b.dir, Node: "there", Media: disk(t), Ask: a.ask()}

	e2 := b.publish()
	if err := e2.send(5); err != nil {
		t.Fatal(err)
	}
	b.hub.beat(t.Context())
	moved := e2.session.info
	if moved.ID != session || len(moved.Earlier) != 1 || moved.Earlier[0].Node != "here" || moved.Earlier[0].SourceSegments != 2 {
		t.Fatalf("session %s goes on as %+v", session, moved)
	}
	if _, err := legs.Folder(t.Context(), moved, 0); weir.KindOf(err) != weir.Busy {
		t.Errorf("the files of a leg that is still written: error %v", err)
	}
	list := b.playlist(videoName, plain)
	if n := e2.session.lease.Sequence; n < 3+16 || !strings.Contains(list, "#EXT-X-DISCONTINUITY\n") || e2.session.video.base != n {
		t.Errorf("after segment 2 comes %d:\n%s", n, list)
	}
	waited, before := make(chan error, 1), a.broadcast()
	go func() {
		_, err := before.Playlist(t.Context(), videoName, Query{Segment: 3, Part: -1})
		waited <- err
	}()
	a.hub.beat(t.Context())
	if err := <-waited; !errors.Is(err, ErrMoved) {
		t.Errorf("who waits at the first node: %v", err)
	}
	if !a.broadcast().Moved() || strings.Contains(a.playlist(videoName, plain), "ENDLIST") {
		t.Error("players at the first node are told that it has ended")
	}
	if err := e.send(1); err == nil {
		t.Error("the first node goes on as well")
	}
	e.Close(false)

	e3 := a.publish()
	if err := e3.send(3); err != nil {
		t.Fatal(err)
	}
	if info := e3.session.info; info.ID != session || len(info.Earlier) != 2 || e3.session.lease.Sequence <= e2.session.lease.Sequence+2 || a.broadcast().Moved() {
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
func checkJoined(t *testing.T, a, b *station, session weir.Session) {
	t.Helper()
	legs := Legs{Dir: a.dir, Node: "here", Media: disk(t), Ask: b.ask()}
	var dirs []string
	for leg := range session.Earlier {
		for range 2 {
			dir, err := legs.Folder(t.Context(), session, leg)
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs[:leg], dir)
		}
	}
	last, err := a.hub.Folder(session.Folder(2))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := media.KeepRecording(t.Context(), legs.Media, "asset/x", append(dirs, last)...)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.Presentation.Duration; got < 12.9 || got > 13.1 || kept.MP4Size == 0 {
		t.Errorf("13 seconds became %v, an MP4 file of %d bytes: %s", got, kept.MP4Size, kept.NoMP4)
	}
	track, err := media.Open(t.Context(), legs.Media, "asset/x/"+videoName)
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
	for _, s := range []*station{a, b} {
		s.hub.forget(time.Now().Add(2 * shownAfter))
		s.hub.sweep(t.Context())
		if left, _ := filepath.Glob(filepath.Join(s.dir, session.ID+"*")); len(left) == 0 {
			t.Error("files are gone before there is an asset")
		}
	}
}

// TestFilesAreOfSessions asks for what is not a file of a session.
func TestFilesAreOfSessions(t *testing.T) {
	s := newStation(t, true)
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
// loses only the segment in hand.
func TestUpload(t *testing.T) {
	s := newStation(t, true)
	storage := disk(t)
	s.hub.o.Upload = storage
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.hub.keepUploaded(ctx)
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
	session.Earlier = []weir.Leg{{Node: "here"}}
	gone := func(context.Context, string, string) (io.ReadCloser, error) {
		return nil, weir.Errorf(weir.Upstream, "gone")
	}
	legs := Legs{Dir: t.TempDir(), Node: "there", Media: storage, Ask: gone}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		dir, err := legs.Folder(t.Context(), session, 0)
		var r *media.Recorder
		if err == nil {
			r, err = media.Recover(filepath.Join(dir, videoName))
		}
		if err == nil && r.Next() == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the storage does not have 3 segments: %v", err)
		}
	}
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
