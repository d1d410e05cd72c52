package live

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// end ends the broadcast of a station's stream, as its owner does.
func (s *testHub) end() {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(s.Context(), s.stream.ID, func(st *weir.Stream) error {
			st.LastTerminatedAt = new(weir.At(time.Now()))
			return nil
		})
		return err
	})
	s.hub.beat(s.Context())
}

// TestWholePlaylist asks for all of a broadcast while it grows and at its end.
func TestWholePlaylist(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	whole := func(name string) string {
		t.Helper()
		text, err := s.broadcast().WholePlaylist(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text.Plain)
	}
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	first := whole(videoName)
	if n := strings.Count(first, "#EXTINF"); n != 3 || !strings.Contains(first, "#EXT-X-PLAYLIST-TYPE:EVENT\n") || strings.Contains(first, "ENDLIST") {
		t.Errorf("7 seconds:\n%s", first)
	}
	if err := e.send(70); err != nil {
		t.Fatal(err)
	}
	e.Close(false)
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	grown := whole(videoName)
	if !strings.HasPrefix(grown, first) || strings.Count(grown, "#EXTINF") != 40 || strings.Count(grown, "DISCONTINUITY\n") != 1 || strings.Count(grown, "#EXT-X-MAP") != 1 {
		t.Errorf("80 seconds:\n%s", grown)
	}
	// Who asks for the first time gets the same.
	s.broadcast().session.renditions.video.history = history{}
	if again := whole(videoName); again != grown {
		t.Errorf("asked anew:\n%s", again)
	}
	m := s.broadcast().Recorded()
	if len(m.Video) != 1 || len(m.Audio) != 1 || m.Video[0].URI != "source/dvr.m3u8" || m.Audio[0].URI != "audio/dvr.m3u8" {
		t.Errorf("the whole broadcast has %+v", m)
	}
	if len(s.frames(videoName, 0, 20, 38)) != 125 {
		t.Error("segments of the list are gone")
	}
	s.end()
	if ended := whole(videoName); !strings.HasSuffix(ended, "\n40.m4s\n#EXT-X-ENDLIST\n") {
		t.Errorf("at the end:\n%s", ended)
	}
}

func TestWholePlaylistNeedsRecording(t *testing.T) {
	s := newTestHub(t, false)
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	if m := s.broadcast().Recorded(); len(m.Video)+len(m.Audio) > 0 {
		t.Errorf("what is not recorded has %+v", m)
	}
	if _, err := s.broadcast().WholePlaylist(videoName); weir.KindOf(err) != weir.NotFound {
		t.Errorf("error %v, want one of kind not-found", err)
	}
}

// TestFilesOfRecording looks when the files of a recorded session can be used, and when
// they go.
func TestFilesOfRecording(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	session := e.session.info
	dir := filepath.Join(s.dir, session.ID)
	there := func(when string, want bool) {
		t.Helper()
		s.hub.sweep(t.Context())
		if _, err := os.Stat(filepath.Join(dir, videoName, "0.m4s")); (err == nil) != want {
			t.Errorf("%s: error %v, want the files there: %v", when, err, want)
		}
	}
	if _, err := s.hub.Folder(session.ID); weir.KindOf(err) != weir.Busy {
		t.Errorf("the session is on: error %v, want one of kind busy", err)
	}
	there("on air", true)
	s.end()
	e.Close(false)
	if got, err := s.hub.Folder(session.ID); err != nil || got != dir {
		t.Errorf("the session has ended: %s, error %v", got, err)
	}
	there("ended", true)
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	there("before it is an asset", true)
	asset := weir.NewRecording(&session, &s.stream, time.Now())
	s.write(func(tx *store.Tx) error { return tx.CreateAsset(t.Context(), &asset) })
	there("before the asset is ready", true)
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), asset.ID, func(a *weir.Asset) error { a.Ready(time.Now()); return nil })
		return err
	})
	there("when the asset is ready", false)
	if err := os.MkdirAll(filepath.Join(s.dir, "unknown"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.hub.sweep(t.Context())
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// limitStorage sets the quota of storage of the account.
func (s *testHub) limitStorage(bytes int64) {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateUser(s.Context(), s.stream.UserID, func(u *weir.User) error {
			u.SetQuota(weir.Quota{weir.Storage: &bytes})
			return nil
		})
		return err
	})
}

// The recordings of an account end when it has used up its quota of storage; the streams go on. What
// they send afterwards is no part of the recording, although players can still get it, and is not
// counted.
func TestQuotaEndsRecording(t *testing.T) {
	s := newTestHub(t, true)
	other := s.beside(true)
	e, quiet := s.publish(), other.publish()
	if err := errors.Join(e.send(5), quiet.send(5)); err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		t.Helper()
		s.hub.beat(t.Context())
		n, err := s.store.Used(t.Context(), s.stream.UserID, weir.Storage)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	whole := used()
	s.limitStorage(whole + 1)
	s.hub.checkQuotas(t.Context())
	s.saysOf("continues without recording", false)
	if err := quiet.send(5); err != nil { // all recordings count together
		t.Fatal(err)
	}
	s.hub.checkQuotas(t.Context()) // before the store knows
	both := used()
	if both <= whole {
		t.Errorf("the recordings grew from %d to %d bytes", whole, both)
	}
	for _, one := range []*testHub{s, other} {
		one.saysOf("the account has reached its storage quota: the stream continues without recording", true)
	}
	if err := errors.Join(e.send(20), quiet.send(20)); err != nil {
		t.Fatal(err)
	}
	if n := used(); n != both {
		t.Errorf("after the end of the recordings %d bytes are counted, want %d", n, both)
	}
	s.stop()
	s.start()
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	s.saysOf("continues without recording", true)
	if n := used(); n != both {
		t.Errorf("after a restart %d bytes are counted, want %d", n, both)
	}
	session := s.broadcast().session.info
	s.end()
	if n := used(); n != both {
		t.Errorf("before the recordings are assets %d bytes are counted, want %d", n, both)
	}
	if frames := kept(t, filepath.Join(s.dir, session.ID)); frames < 100 || frames > 200 {
		t.Errorf("the recording has %d frames of video, want those of the 5 s before its end and of the segment that was open", frames)
	}
}

// kept returns how many frames of video the recording in a folder has.
func kept(t *testing.T, dir string) (frames int) {
	t.Helper()
	disk, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := media.KeepRecording(t.Context(), disk, "asset", dir); err != nil {
		t.Fatal(err)
	}
	track, err := media.Open(t.Context(), disk, "asset/"+media.RecordedVideo)
	if err != nil {
		t.Fatal(err)
	}
	for _, segment := range track.Index().Segments {
		for _, part := range segment.Parts {
			frames += len(part.Samples)
		}
	}
	return frames
}

// A broadcast that begins when the quota of storage is used up is not recorded from its start.
func TestQuotaBeforeRecording(t *testing.T) {
	s := newTestHub(t, true)
	s.limitStorage(0)
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	s.saysOf("the account has reached its storage quota: the stream continues without recording", true)
	if m := s.broadcast().Recorded(); len(m.Video)+len(m.Audio) > 0 {
		t.Errorf("recorded are %+v", m)
	}
	session, err := s.store.Session(t.Context(), s.broadcast().session.info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if session.SetRecording(nil, session.LastSeen); session.RecordingStatus != weir.RecordingNone {
		t.Errorf("the recording is %q, want none", session.RecordingStatus)
	}
	s.limitStorage(1e9)
	s.stop()
	s.start()
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	s.saysOf("the account has reached its storage quota: the stream continues without recording", true)
	s.hub.beat(t.Context())
	if n, err := s.store.Used(t.Context(), s.stream.UserID, weir.Storage); n != 0 || err != nil {
		t.Errorf("%d bytes are counted, error %v", n, err)
	}
	s.end()
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	if left, _ := filepath.Glob(filepath.Join(s.dir, session.ID)); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// The files of a deleted account go soon: nobody may play them any more.
func TestFilesOfDeletedAccount(t *testing.T) {
	s := newTestHub(t, true)
	gone := func(when string, want bool) {
		t.Helper()
		s.hub.beat(t.Context())
		s.hub.closeEnded(time.Now())
		s.hub.sweep(t.Context())
		if left, _ := filepath.Glob(filepath.Join(s.dir, "*-*")); (len(left) == 0) != want {
			t.Errorf("%s these files are left: %v", when, left)
		}
	}
	if err := s.publish().send(3); err != nil {
		t.Fatal(err)
	}
	gone("on air", false)
	s.write(func(tx *store.Tx) error {
		_, err := tx.DeleteUser(t.Context(), s.stream.UserID, weir.Base{}, time.Now())
		return err
	})
	gone("before the account is purged", false)
	if err := s.store.ForgetUser(t.Context(), s.stream.UserID); err != nil {
		t.Fatal(err)
	}
	gone("after the account was purged", true)
}

// A node that could not report for a while, so that another one closed its session, may find that the
// stream does not exist any more.
func TestStreamIsForgotten(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	if err := s.store.ForgetUser(t.Context(), s.stream.UserID); err != nil {
		t.Fatal(err)
	}
	s.hub.beat(t.Context())
	if err := e.send(1); err == nil {
		t.Error("the encoder of a stream that does not exist is still served")
	}
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	s.hub.sweep(t.Context())
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*-*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
